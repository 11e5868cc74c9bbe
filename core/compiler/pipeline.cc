#include "core/compiler/pipeline.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "core/collage/partitioner.h"
#include "core/compiler/aot_entry.h"
#include "core/compiler/build_executable.h"
#include "core/compiler/cost_samples.h"
#include "core/compiler/fold_params.h"
#include "core/compiler/plan_search.h"
#include "core/compiler/transition_costs.h"
#include "core/ir/open_symbols.h"
#include "core/ir/printer.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/passes/pass_manager.h"

namespace inlay::compiler {
namespace {

constexpr double kDefaultSearchSeconds = 60;

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

bool HasControlFlow(const ir::IRModule& module) {
  for (const auto& [name, function] : module.functions) {
    if (name != "main" && name != "transform_params") return true;
    for (const ir::Binding& binding : function.body.bindings) {
      if (binding.kind == ir::Binding::Kind::kCallPacked || binding.kind == ir::Binding::Kind::kIf) return true;
    }
  }
  return false;
}

// A measurement of one size says little about the others, and the plan that ships would claim to be the fastest.
absl::Status CheckMeasurable(const ir::IRModule& module) {
  for (const auto& [name, function] : module.functions) {
    const std::vector<std::string> symbols = ir::OpenSymbols(function);
    if (symbols.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("config.search.mode is MEASURED, and config.executor.kind VM leaves dimension '", symbols[0],
                     "' open: what is measured must have one size. Fix it (--shape ", symbols[0],
                     "=N), or use ANALYTIC, which takes sizes from config.search.dim_hints"));
  }
  return absl::OkStatus();
}

void Explain(proto::PlanRecord record, const char* source, proto::CompileReport* report) {
  report->set_plan_source(source);
  report->mutable_cover()->Swap(record.mutable_cover());
  report->mutable_plans()->Swap(record.mutable_plans());
  report->mutable_candidates()->Swap(record.mutable_candidates());
  report->mutable_notes()->Swap(record.mutable_notes());
  report->mutable_transitions()->Swap(record.mutable_transitions());
}

void FillReport(const collage::Partitioned& partitioned, const std::vector<Action>& actions,
                const std::vector<CompiledPartition>& compiled, proto::CompileReport* report) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const collage::PartitionInfo& info = partitioned.partitions[i];
    proto::PartitionReport* out = report->add_partitions();
    out->set_name(info.function);
    out->set_backend(info.backend);
    out->set_codegen_target(info.codegen_target);
    for (const std::string& op : info.ops) out->add_ops(op);
    for (const std::string& location : info.locations) out->add_locations(location);
    for (int64_t i : info.channels_last.params) out->add_channels_last_inputs(static_cast<int32_t>(i));
    for (int64_t i : info.channels_last.results) out->add_channels_last_outputs(static_cast<int32_t>(i));
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

absl::StatusOr<target::CompilationConfig> Pipeline::CheckConfig(const proto::CompilationConfig& config) {
  INLAY_ASSIGN_OR_RETURN(target::CompilationConfig completed, target::CompilationConfig::FromProto(config));
  INLAY_RETURN_IF_ERROR(passes::BuildNormalisePipeline(completed).CheckConfig());
  INLAY_RETURN_IF_ERROR(collage::SelectBackends(completed).status());
  return completed;
}

absl::StatusOr<CompileResult> Pipeline::Compile(const proto::IRModule& module, CancelToken* token,
                                                const ProgressFn& progress, bool trace_passes) {
  const absl::Time start = absl::Now();
  const Digest key = Hasher().UpdateField(DeterministicBytes(module)).UpdateInt(trace_passes).Finish();
  auto flight = flights_.Do(key, token, [&](CancelToken* flight_token) {
    return CompileAlone(module, flight_token, progress, trace_passes);
  });
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
                                                     const ProgressFn& progress, bool trace_passes) {
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
  if (trace_passes) {
    passes.set_dump([&](const passes::PassTiming& pass, const ir::IRModule& after) {
      result.passes.push_back({pass.name, pass.millis, ir::Print(after)});
    });
  }
  INLAY_ASSIGN_OR_RETURN(module, passes.Run(std::move(module)));
  const bool crt = module.config().runtime.kind == target::RuntimeKind::kCrt;
  if (crt) {
    INLAY_ASSIGN_OR_RETURN(
        module, FoldParams(std::move(module), compiler_->blobs(),
                           [&](const ir::IRModule& transform) { return Evaluate(transform, token, progress); }));
  }
  watch.Lap("normalise");

  INLAY_RETURN_IF_ERROR(enter("partition"));
  INLAY_ASSIGN_OR_RETURN(collage::Cover cover,
                         ChooseCover(module, proto_module.config().search(), token, progress, &result.report));
  const collage::Partitioned partitioned = collage::CutAlong(module, cover);
  watch.Lap("partition");

  INLAY_RETURN_IF_ERROR(enter("compile"));
  INLAY_ASSIGN_OR_RETURN(std::vector<Action> actions, MakeActions(partitioned, compiler_->compiler()));
  INLAY_ASSIGN_OR_RETURN(std::vector<CompiledPartition> compiled, CompileActions(actions, compiler_, token, progress));
  watch.Lap("compile");

  INLAY_RETURN_IF_ERROR(enter("plan"));
  INLAY_ASSIGN_OR_RETURN(result.executable, BuildExecutable(partitioned, compiled));
  if (module.config().executor.kind == target::ExecutorKind::kAot && !crt) {
    INLAY_ASSIGN_OR_RETURN(CompiledPartition entry, AddAotEntry(module.config(), compiler_, token, &result.executable));
    result.report.set_cache_hits(result.report.cache_hits() + entry.hit);
    result.report.set_actions_run(result.report.actions_run() + entry.ran_here);
  }
  if (crt) result.executable.set_ir_text(ir::Print(module));
  INLAY_RETURN_IF_ERROR(Publish(&result));
  watch.Lap("plan");
  FillReport(partitioned, actions, compiled, &result.report);
  return result;
}

absl::StatusOr<collage::Cover> Pipeline::ChooseCover(const ir::IRModule& module, const proto::SearchOptions& options,
                                                     CancelToken* token, const ProgressFn& progress,
                                                     proto::CompileReport* report) {
  const target::CompilationConfig& config = module.config();
  std::vector<collage::UnusableBackend> unusable;
  INLAY_ASSIGN_OR_RETURN(std::vector<const backend::Backend*> backends, collage::SelectBackends(config, &unusable));
  for (const collage::UnusableBackend& backend : unusable) {
    proto::UnusableBackend* out = report->add_unusable();
    out->set_backend(backend.backend);
    out->set_reason(backend.reason);
    out->set_named(backend.named);
  }
  const Digest module_hash = ir::StructuralHash(module);
  if (options.has_pinned()) {
    report->set_plan_source("pinned");
    *report->mutable_cover() = options.pinned();
    return Annotate(collage::FromProto(options.pinned(), module, module_hash, backends), "config.search.pinned");
  }
  std::map<std::string, std::string> versions;
  for (const backend::Backend* backend : backends) {
    const std::string name = target::BackendOfVariant(backend->name());
    INLAY_ASSIGN_OR_RETURN(versions[backend->name()], compiler_->compiler()->BackendVersion(name));
  }
  if (config.search_mode == target::SearchMode::kMeasured) INLAY_RETURN_IF_ERROR(CheckMeasurable(module));
  // What a run does depends on its inputs there, and a measurement's are made up: a loop could turn for ever.
  const bool measures = config.search_mode == target::SearchMode::kMeasured && !HasControlFlow(module);
  if (measures && measurer_ == nullptr) {
    return absl::FailedPreconditionError(
        "config.search.mode is MEASURED, and this server does not measure (no inlay_measurer beside it): use ANALYTIC");
  }
  const Digest key = plans_.Key(module_hash, config, versions, measures ? measurer_->device() : "");
  if (!options.replan()) {
    absl::StatusOr<proto::PlanRecord> known = plans_.Get(key);
    if (known.ok()) {
      absl::StatusOr<collage::Cover> cover = collage::FromProto(known->cover(), module, module_hash, backends);
      if (cover.ok()) {
        Explain(*std::move(known), "plan cache", report);
        return cover;
      }
    }
  }
  SearchInput input{module, module_hash, backends, {}, {}};
  if (config.search_mode == target::SearchMode::kAnalytic && measurer_ != nullptr) {
    INLAY_ASSIGN_OR_RETURN(const Digest transitions,
                           TransitionKey(config, backends, measurer_->device(), compiler_->compiler()));
    const Digest samples = SamplesKey(config, measurer_->device());
    input.transitions = KnownTransitions(transitions, tables_.costs);
    input.fit = collage::ScaleFit(KnownSamples(samples, tables_.costs));
  }
  int actions_run = 0;
  const double budget_s = options.budget_s() > 0 ? options.budget_s() : kDefaultSearchSeconds;
  INLAY_ASSIGN_OR_RETURN(proto::PlanRecord record,
                         measures ? SearchByMeasuring(input, {compiler_, measurer_, tables_.costs,
                                                              absl::Seconds(budget_s), token, progress, &actions_run})
                                  : SearchByEstimate(input));
  report->set_measure_ms(record.measure_ms());
  report->set_actions_run(actions_run);  // of the partitions that ship, those are now hits
  if (record.provisional()) {
    // The next compile tries again.
  } else if (options.replan()) {
    INLAY_RETURN_IF_ERROR(plans_.Replace(key, record));
  } else if (absl::StatusOr<proto::PlanRecord> kept = plans_.PutIfAbsent(key, record); kept.ok()) {
    record = *std::move(kept);  // of whoever was first, so that all go on with the same plan
  }
  absl::StatusOr<collage::Cover> cover = collage::FromProto(record.cover(), module, module_hash, backends);
  Explain(std::move(record), "search", report);
  return cover;
}

absl::StatusOr<std::vector<std::string>> Pipeline::Evaluate(const ir::IRModule& module, CancelToken* token,
                                                            const ProgressFn& progress) {
  if (!run_here_) {
    return absl::FailedPreconditionError(
        "runtime crt has it done by the server, whose configuration (trust_cache_for_jit=false) does not let it run "
        "compiled code");
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<const backend::Backend*> backends, collage::SelectBackends(module.config()));
  INLAY_ASSIGN_OR_RETURN(proto::PlanRecord record,
                         SearchByEstimate({module, ir::StructuralHash(module), backends, {}, {}}));
  INLAY_ASSIGN_OR_RETURN(collage::Cover cover,
                         collage::FromProto(record.cover(), module, ir::StructuralHash(module), backends));
  const collage::Partitioned partitioned = collage::CutAlong(module, cover);
  INLAY_ASSIGN_OR_RETURN(std::vector<Action> actions, MakeActions(partitioned, compiler_->compiler()));
  INLAY_ASSIGN_OR_RETURN(std::vector<CompiledPartition> compiled, CompileActions(actions, compiler_, token, progress));
  INLAY_ASSIGN_OR_RETURN(proto::Executable executable, BuildExecutable(partitioned, compiled));
  return run_here_(executable, compiled);
}

absl::Status Pipeline::Publish(CompileResult* result) {
  INLAY_ASSIGN_OR_RETURN(result->executable_digest, compiler_->blobs()->Put(DeterministicBytes(result->executable)));
  // A second compile of the same finds its row, and need not wait for a disk.
  if (tables_.published->Get(result->executable_digest).ok()) return absl::OkStatus();
  return tables_.published->PutIfAbsent(result->executable_digest, "executable").status();
}

}  // namespace inlay::compiler
