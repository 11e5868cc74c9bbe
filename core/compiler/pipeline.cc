#include "core/compiler/pipeline.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/artifact/planner.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "core/collage/partitioner.h"
#include "core/ir/proto_conversion.h"
#include "core/passes/pass_manager.h"

namespace inlay::compiler {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(google::protobuf::Map<std::string, double>* phases) : phases_(phases) {}
  void Lap(const std::string& phase) {
    const absl::Time now = absl::Now();
    (*phases_)[phase] = absl::ToDoubleMilliseconds(now - last_);
    last_ = now;
  }
  double total_ms() const { return absl::ToDoubleMilliseconds(absl::Now() - start_); }

 private:
  google::protobuf::Map<std::string, double>* phases_;
  const absl::Time start_ = absl::Now();
  absl::Time last_ = start_;
};

absl::Status CheckWeightsPresent(const proto::IRModule& module, cache::BlobStore* blobs, cache::BlobPin* pin) {
  std::vector<Digest> digests;
  std::map<Digest, std::string> names;
  for (const proto::Constant& constant : module.constants()) {
    if (constant.value_case() != proto::Constant::kDigest) continue;
    INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(constant.digest()));
    digests.push_back(digest);
    names.emplace(digest, constant.name());
  }
  *pin = blobs->Pin(digests);
  INLAY_ASSIGN_OR_RETURN(std::vector<Digest> missing, blobs->FindMissing(digests));
  if (missing.empty()) return absl::OkStatus();
  std::vector<std::string> some;
  for (size_t i = 0; i < missing.size() && i < 5; ++i) {
    some.push_back(absl::StrCat("'", names[missing[i]], "' (sha256 ", missing[i].short_hex(), ")"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(missing.size(), " of the module's weights are not on the server, such as ",
                   absl::StrJoin(some, ", "), ": upload them (UploadBlobs) and repeat"));
}

// Compiles everything that the cache has not, on as many threads as workers can make use of.
class ActionRunner {
 public:
  ActionRunner(CachingCompiler* compiler, CancelToken* token, const ProgressFn& progress)
      : compiler_(compiler), token_(token), progress_(progress) {}

  absl::StatusOr<std::vector<CompiledPartition>> Run(const std::vector<Action>& actions) {
    results_.resize(actions.size());
    std::vector<int> misses;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      absl::StatusOr<CompiledPartition> hit = compiler_->Lookup(actions[i]);
      if (hit.ok()) {
        results_[i] = *std::move(hit);
      } else {
        misses.push_back(i);
      }
    }
    INLAY_RETURN_IF_ERROR(RunMisses(actions, misses));
    return std::move(results_);
  }

 private:
  absl::Status RunMisses(const std::vector<Action>& actions, const std::vector<int>& misses) {
    if (misses.empty()) return absl::OkStatus();
    const int total = static_cast<int>(misses.size());
    const int parallelism = std::min(total, std::max(1, compiler_->compiler()->parallelism()));
    std::vector<std::thread> threads;
    for (int i = 0; i < parallelism; ++i) {
      threads.emplace_back([&] {
        for (int next; (next = next_.fetch_add(1)) < total;) Step(actions[misses[next]], misses[next]);
      });
    }
    ReportUntilDone(total);
    for (std::thread& thread : threads) thread.join();
    absl::MutexLock lock(&mutex_);
    return first_error_;
  }

  void Step(const Action& action, int index) {
    absl::Status status = token_->status();
    if (status.ok()) {
      absl::MutexLock lock(&mutex_);
      status = first_error_;  // one failed partition fails the request: start nothing more
    }
    if (status.ok()) {
      absl::StatusOr<CompiledPartition> compiled = compiler_->Compile(action, token_);
      status = compiled.status();
      if (compiled.ok()) results_[index] = *std::move(compiled);
    }
    absl::MutexLock lock(&mutex_);
    if (!status.ok() && first_error_.ok()) first_error_ = status;
    ++done_;
    last_ = absl::StrCat(action.action.backend(), " ", action.name);
  }

  // Progress goes out in the caller's thread.
  void ReportUntilDone(int total) {
    int reported = -1;
    while (reported < total) {
      Progress now{"compile", 0, total, ""};
      {
        absl::MutexLock lock(&mutex_);
        auto news = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done_ != reported; };
        mutex_.Await(absl::Condition(&news));
        now.done = done_;
        now.detail = last_;
      }
      reported = now.done;
      if (progress_) progress_(now);
    }
  }

  CachingCompiler* compiler_;
  CancelToken* token_;
  const ProgressFn& progress_;
  std::vector<CompiledPartition> results_;  // each written by one thread
  std::atomic<int> next_{0};
  absl::Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<collage::Partitioned> PartitionModule(const ir::IRModule& module) {
  const target::CompilationConfig& config = module.config();
  INLAY_ASSIGN_OR_RETURN(std::vector<const backend::Backend*> backends, collage::SelectBackends(config));
  std::unique_ptr<collage::CostEstimator> estimator = config.search_mode == target::SearchMode::kNone
                                                          ? collage::PreferenceEstimator()
                                                          : collage::AnalyticEstimator(config.target());
  return collage::Partitioner(std::move(backends), estimator.get()).Run(module);
}

void FillReport(const collage::Partitioned& partitioned, const std::vector<Action>& actions,
                const std::vector<CompiledPartition>& compiled, proto::CompileReport* report) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const collage::PartitionInfo& info = partitioned.partitions[i];
    proto::PartitionReport* out = report->add_partitions();
    out->set_name(info.function);
    out->set_backend(info.backend);
    for (const std::string& op : info.ops) out->add_ops(op);
    for (const std::string& location : info.locations) out->add_locations(location);
    out->set_why(info.why);
    out->set_cost_us(info.cost_us);
    out->set_call_sites(info.call_sites);
    out->set_cache_hit(compiled[i].hit);
    out->set_miss_reason(compiled[i].miss_reason);
    out->set_compile_ms(compiled[i].compile_ms);
    out->set_action_digest(actions[i].key.digest.hex());
    report->set_cache_hits(report->cache_hits() + compiled[i].hit);
    report->set_actions_run(report->actions_run() + compiled[i].ran_here);
  }
}

}  // namespace

absl::StatusOr<CompileResult> Pipeline::Compile(const proto::IRModule& module, CancelToken* token,
                                                const ProgressFn& progress) {
  const absl::Time start = absl::Now();
  const Digest key = Digest::Of(DeterministicBytes(module));
  auto flight =
      flights_.Do(key, token, [&](CancelToken* flight_token) { return CompileAlone(module, flight_token, progress); });
  INLAY_RETURN_IF_ERROR(flight.value.status());
  CompileResult result = *std::move(flight.value);
  if (flight.shared) {
    result.report.set_shared_flight(true);
    result.report.set_actions_run(0);
  }
  result.report.set_server_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
  return result;
}

absl::StatusOr<CompileResult> Pipeline::CompileAlone(const proto::IRModule& proto_module, CancelToken* token,
                                                     const ProgressFn& progress) {
  CompileResult result;
  Stopwatch watch(result.report.mutable_phase_ms());
  auto enter = [&](const char* phase) -> absl::Status {
    if (progress) progress({phase, 0, 0, ""});
    return token->status();
  };

  INLAY_RETURN_IF_ERROR(enter("normalise"));
  INLAY_ASSIGN_OR_RETURN(ir::IRModule module, ir::FromProto(proto_module));
  cache::BlobPin pin;
  INLAY_RETURN_IF_ERROR(CheckWeightsPresent(proto_module, compiler_->blobs(), &pin));
  watch.Lap("import");
  passes::PassManager passes = passes::BuildNormalisePipeline(module.config());
  INLAY_ASSIGN_OR_RETURN(module, passes.Run(std::move(module)));
  watch.Lap("normalise");

  INLAY_RETURN_IF_ERROR(enter("partition"));
  INLAY_ASSIGN_OR_RETURN(collage::Partitioned partitioned, PartitionModule(module));
  watch.Lap("partition");

  INLAY_RETURN_IF_ERROR(enter("compile"));
  std::vector<Action> actions;
  for (const collage::PartitionInfo& partition : partitioned.partitions) {
    INLAY_ASSIGN_OR_RETURN(std::string version, compiler_->compiler()->BackendVersion(partition.backend));
    actions.push_back(MakeAction(partitioned.module, partition.function, version));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<CompiledPartition> compiled,
                         ActionRunner(compiler_, token, progress).Run(actions));
  watch.Lap("compile");

  INLAY_RETURN_IF_ERROR(enter("plan"));
  proto::Executable& executable = result.executable;
  executable.set_format_version(1);
  std::vector<proto::StaticLibraryManifest> manifests;
  std::set<Digest> seen;
  for (const CompiledPartition& partition : compiled) {
    if (!seen.insert(partition.library_digest).second) continue;
    manifests.push_back(partition.library->manifest());
    executable.add_static_libraries(std::string(partition.library_digest.bytes()));
  }
  INLAY_ASSIGN_OR_RETURN(artifact::BuiltPlan plan, artifact::BuildPlan(partitioned.module, manifests));
  executable.set_plan_json(plan.plan.ToJson());
  for (size_t i = 0; i < plan.params.size(); ++i) {
    proto::ParamRef* param = executable.add_params();
    param->set_name(plan.plan.params[i].name);
    *param->mutable_type() = ir::ToProto(plan.params[i]->type);
    param->set_digest(std::string(plan.params[i]->digest.bytes()));
  }
  *executable.mutable_config() = module.config().ToProto();
  for (proto::StaticLibraryManifest& manifest : manifests) *executable.add_manifests() = std::move(manifest);
  INLAY_RETURN_IF_ERROR(Publish(&result));
  watch.Lap("plan");
  FillReport(partitioned, actions, compiled, &result.report);
  return result;
}

absl::Status Pipeline::Publish(CompileResult* result) {
  INLAY_ASSIGN_OR_RETURN(result->executable_digest, compiler_->blobs()->Put(DeterministicBytes(result->executable)));
  // A second compile of the same finds its row, and need not wait for a disk.
  if (tables_.published->Get(result->executable_digest).ok()) return absl::OkStatus();
  return tables_.published->PutIfAbsent(result->executable_digest, "executable").status();
}

}  // namespace inlay::compiler
