#include "core/compiler/build_executable.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/artifact/planner.h"
#include "core/base/status_macros.h"
#include "core/ir/proto_conversion.h"

namespace inlay::compiler {
namespace {

using Results = std::vector<absl::StatusOr<CompiledPartition>>;

// Compiles everything that the cache has not, on as many threads as workers can make use of.
class ActionRunner {
 public:
  ActionRunner(const std::vector<Action>& actions, bool stop_at_error, CachingCompiler* compiler, CancelToken* token,
               const ProgressFn& progress)
      : actions_(actions), stop_at_error_(stop_at_error), compiler_(compiler), token_(token), progress_(progress) {}

  Results Run() {
    std::vector<int> misses;
    for (int i = 0; i < static_cast<int>(actions_.size()); ++i) {
      results_.push_back(compiler_->Lookup(actions_[i]));
      if (!results_[i].ok()) misses.push_back(i);
    }
    if (!misses.empty()) RunMisses(misses);
    return std::move(results_);
  }

 private:
  void RunMisses(const std::vector<int>& misses) {
    const int total = static_cast<int>(misses.size());
    const int parallelism = std::min(total, std::max(1, compiler_->compiler()->parallelism()));
    std::vector<std::thread> threads;
    for (int i = 0; i < parallelism; ++i) {
      threads.emplace_back([&] {
        for (int next; (next = next_.fetch_add(1)) < total;) Step(misses[next]);
      });
    }
    ReportUntilDone(total);
    for (std::thread& thread : threads) thread.join();
  }

  void Step(int index) {
    absl::Status status = token_->status();
    if (status.ok() && stop_at_error_) {
      absl::MutexLock lock(&mutex_);
      status = first_error_;  // one failed partition fails the request: start nothing more
    }
    if (status.ok()) {
      results_[index] = compiler_->Compile(actions_[index], token_);
    } else {
      results_[index] = status;
    }
    absl::MutexLock lock(&mutex_);
    if (first_error_.ok()) first_error_ = results_[index].status();
    ++done_;
    last_ = absl::StrCat(actions_[index].action.backend(), " ", actions_[index].name);
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

  const std::vector<Action>& actions_;
  const bool stop_at_error_;
  CachingCompiler* compiler_;
  CancelToken* token_;
  const ProgressFn& progress_;
  Results results_;  // each written by one thread
  std::atomic<int> next_{0};
  absl::Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::vector<Action>> MakeActions(const collage::Partitioned& partitioned, PartitionCompiler* compiler) {
  std::vector<Action> actions;
  for (const collage::PartitionInfo& partition : partitioned.partitions) {
    INLAY_ASSIGN_OR_RETURN(std::string version, compiler->BackendVersion(target::BackendOfVariant(partition.backend)));
    actions.push_back(MakeAction(partitioned.module, partition.function, version));
  }
  return actions;
}

Results CompileEachAction(const std::vector<Action>& actions, CachingCompiler* compiler, CancelToken* token,
                          const ProgressFn& progress) {
  return ActionRunner(actions, /*stop_at_error=*/false, compiler, token, progress).Run();
}

absl::StatusOr<std::vector<CompiledPartition>> CompileActions(const std::vector<Action>& actions,
                                                              CachingCompiler* compiler, CancelToken* token,
                                                              const ProgressFn& progress) {
  std::vector<CompiledPartition> compiled;
  for (auto& result : ActionRunner(actions, /*stop_at_error=*/true, compiler, token, progress).Run()) {
    INLAY_RETURN_IF_ERROR(result.status());
    compiled.push_back(*std::move(result));
  }
  return compiled;
}

absl::StatusOr<proto::Executable> BuildExecutable(const collage::Partitioned& partitioned,
                                                  const std::vector<CompiledPartition>& compiled) {
  proto::Executable executable;
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
  *executable.mutable_config() = partitioned.module.config().ToProto();
  for (proto::StaticLibraryManifest& manifest : manifests) *executable.add_manifests() = std::move(manifest);
  return executable;
}

}  // namespace inlay::compiler
