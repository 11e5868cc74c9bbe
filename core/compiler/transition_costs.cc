#include "core/compiler/transition_costs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/collage/cost_estimator.h"
#include "core/collage/outline.h"
#include "core/compiler/build_executable.h"
#include "core/compiler/cost_rows.h"
#include "core/compiler/site_costs.h"

namespace inlay::compiler {
namespace {

constexpr double kBudgetMs = 120;  // of the runs of a kind of probe
constexpr int kMaxRounds = 60;
constexpr int kShortChain = 2, kLongChain = 18;
constexpr int64_t kTiny = 4;
// Up to 256 KiB a copy and its source lie in a core's caches, 64 MiB in none.
constexpr int64_t kSmallCopies[] = {16 << 10, 256 << 10}, kLargeCopies[] = {4 << 20, 64 << 20};
// Feature maps of depthwise convolutions: little arithmetic for what crosses, and as many channels as real ones have
// (with 16, whose strides fit the caches, reorders were seen to take a quarter of what they take in models).
constexpr int64_t kChannels = 96, kSides[] = {14, 56, 112};

ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

// A chain of one operator with one constant weight.
absl::StatusOr<ir::IRModule> Chain(const target::CompilationConfig& config, const std::string& op, int length,
                                   const ir::TensorType& x, const ir::TensorType& weight, const ir::Attrs& attrs = {}) {
  ir::IRModule module;
  module.set_config(config);
  ir::Builder builder(&module.functions["main"]);
  ir::VarPtr y = builder.Param("x", x);
  const ir::ConstantPtr w = ir::MakeWeight(weight, Digest::Of("w"), "w");
  for (int i = 0; i < length; ++i) {
    INLAY_ASSIGN_OR_RETURN(y, builder.Call(op, {y, w}, attrs));
  }
  builder.Return({y});
  module.functions["main"].result_names = {"y"};
  return module;
}

// The whole of main for one backend, in partitions of `size` calls.
collage::Cover InPartitionsOf(int size, const ir::IRModule& module, const backend::Backend* backend) {
  collage::Cover cover;
  cover.name = backend->name();
  std::vector<collage::Group>& groups = cover.functions["main"];
  const int length = static_cast<int>(module.functions.at("main").body.bindings.size());
  for (int i = 0; i < length; ++i) {
    if (i % size == 0) groups.emplace_back().backend = backend;
    groups.back().positions.push_back(i);
  }
  return cover;
}

// Whether the backend takes each call of the module alone.
bool Takes(const backend::Backend* backend, const ir::IRModule& module) {
  const auto estimator = collage::PreferenceEstimator(module.config().target());
  const collage::SearchSpace space = collage::Partitioner({backend}, estimator.get()).Propose(module);
  std::vector<bool> taken(module.functions.at("main").body.bindings.size());
  for (const collage::Candidate& candidate : space.functions[0].candidates) {
    if (candidate.positions.size() == 1) taken[candidate.positions[0]] = true;
  }
  return std::all_of(taken.begin(), taken.end(), [](bool t) { return t; });
}

struct Probe {
  ir::IRModule module;
  collage::Cover cover;
  absl::Status failed = absl::OkStatus();
  double us = 0;
};

// Where a copy is all that there is to do.
Probe CopyProbe(const target::CompilationConfig& config, int64_t bytes) {
  Probe probe;
  probe.module.set_config(config);
  ir::Builder builder(&probe.module.functions["main"]);
  builder.Return({builder.Param("x", F32({bytes / static_cast<int64_t>(sizeof(float))}))});
  probe.module.functions["main"].result_names = {"y"};
  probe.cover.functions["main"] = {};
  return probe;
}

class TransitionProbes {
 public:
  TransitionProbes(const target::CompilationConfig& config, const MeasuringContext& context, std::string* failure)
      : config_(config), context_(context), failure_(failure) {}

  // Compiles and times them against each other: of one order of magnitude, for all run as often in a sample.
  absl::Status Measure(std::vector<Probe>* probes) {
    DistinctActions distinct;
    std::vector<collage::Partitioned> partitioned;
    std::vector<std::vector<Action>> actions;
    for (const Probe& probe : *probes) {
      partitioned.push_back(collage::CutAlong(probe.module, probe.cover, collage::Borders::kRowMajor));
      INLAY_ASSIGN_OR_RETURN(actions.emplace_back(), MakeActions(partitioned.back(), context_.compiler->compiler()));
      distinct.Add(actions.back());
    }
    INLAY_ASSIGN_OR_RETURN(const CompiledActions compiled, CompileAll(distinct.actions(), context_));
    proto::MeasureAction measurement = NewMeasurement(config_);
    measurement.set_reference(-1);  // they are no rivals
    measurement.set_budget_ms(kBudgetMs);
    measurement.set_max_rounds(kMaxRounds);
    std::vector<Probe*> measured;
    for (size_t i = 0; i < probes->size(); ++i) {
      Probe& probe = (*probes)[i];
      auto subject = distinct.SubjectOf(partitioned[i], actions[i], compiled);
      probe.failed = subject.status();
      if (!subject.ok()) continue;
      subject->set_name(absl::StrCat("transition probe, ", probe.cover.name));
      measurement.add_subjects()->Swap(&*subject);
      measured.push_back(&probe);
    }
    if (measured.empty()) return absl::OkStatus();
    const auto result = context_.measurer->Measure(measurement, context_.token);
    INLAY_RETURN_IF_ERROR(context_.token->status());
    for (size_t i = 0; i < measured.size(); ++i) {
      if (!result.ok()) {
        measured[i]->failed = result.status();
        *failure_ = std::string(result.status().message());
        continue;
      }
      const SiteCosts::Timing& timing = result->timings(static_cast<int>(i));
      measured[i]->us = timing.min_us();
      if (timing.code() == 0) continue;
      measured[i]->failed = absl::Status(static_cast<absl::StatusCode>(timing.code()), timing.message());
      if (!IsOfTheSubject(timing)) *failure_ = timing.message();
    }
    return absl::OkStatus();
  }

 private:
  const target::CompilationConfig& config_;
  const MeasuringContext& context_;
  std::string* failure_;
};

std::string FirstFailure(const Probe& a, const Probe& b) {
  return std::string(a.failed.ok() ? b.failed.message() : a.failed.message());
}

absl::Status AddDispatch(const target::CompilationConfig& config, const std::vector<const backend::Backend*>& backends,
                         TransitionProbes* measure, proto::TransitionCosts* costs) {
  const ir::TensorType tiny = F32({kTiny, kTiny});
  INLAY_ASSIGN_OR_RETURN(const ir::IRModule chain, Chain(config, "matmul", kShortChain, tiny, tiny));
  INLAY_ASSIGN_OR_RETURN(const ir::IRModule longer, Chain(config, "matmul", kLongChain, tiny, tiny));
  std::vector<Probe> probes;
  std::vector<const backend::Backend*> probed;
  for (const backend::Backend* backend : backends) {
    if (!Takes(backend, chain)) continue;
    for (const ir::IRModule* module : {&chain, &longer})
      probes.push_back({*module, InPartitionsOf(1, *module, backend)});
    probed.push_back(backend);
  }
  INLAY_RETURN_IF_ERROR(measure->Measure(&probes));
  const collage::DataflowGraph graph(chain.functions.at("main"));
  for (size_t i = 0; i < probed.size(); ++i) {
    const Probe &few = probes[2 * i], &many = probes[2 * i + 1];
    proto::TransitionCosts::Dispatch* dispatch = costs->add_dispatch();
    dispatch->set_backend(probed[i]->name());
    dispatch->set_failed(FirstFailure(few, many));
    dispatch->set_us(std::max(0.0, (many.us - few.us) / (kLongChain - kShortChain)));
    const double estimate = probed[i]->EstimateMicros(collage::Outline(graph, {0}).function, config.target());
    dispatch->set_estimated_us(std::max(0.0, estimate));
  }
  return absl::OkStatus();
}

template <size_t kCount>
absl::Status AddCopies(const target::CompilationConfig& config, const int64_t (&sizes)[kCount],
                       TransitionProbes* measure, proto::TransitionCosts* costs) {
  std::vector<Probe> probes;
  for (int64_t bytes : sizes) probes.push_back(CopyProbe(config, bytes));
  INLAY_RETURN_IF_ERROR(measure->Measure(&probes));
  for (size_t i = 0; i < kCount; ++i) {
    if (!probes[i].failed.ok()) continue;
    proto::TransitionCosts::Copy* copy = costs->add_copies();
    copy->set_bytes(sizes[i]);
    copy->set_us(probes[i].us);
  }
  return absl::OkStatus();
}

absl::Status AddLayouts(const target::CompilationConfig& config, const std::vector<const backend::Backend*>& backends,
                        TransitionProbes* measure, proto::TransitionCosts* costs) {
  const collage::CostModel calls(*costs);
  for (int64_t side : kSides) {
    const ir::TensorType image = F32({1, kChannels, side, side});
    INLAY_ASSIGN_OR_RETURN(const ir::IRModule pair,
                           Chain(config, "conv", 2, image, F32({kChannels, 1, 3, 3}), {{"groups", kChannels}}));
    const ir::TensorType crossing = pair.functions.at("main").body.bindings[0].var->type.tensor();
    std::vector<Probe> probes;
    std::vector<const backend::Backend*> probed;
    for (const backend::Backend* backend : backends) {
      const bool changes = backend->merges_regions() && backend->TransitionMicros(image, config.target()) > 0;
      if (!changes || !Takes(backend, pair)) continue;
      for (int size : {1, 2}) probes.push_back({pair, InPartitionsOf(size, pair, backend)});
      probed.push_back(backend);
    }
    if (probed.empty()) continue;
    INLAY_RETURN_IF_ERROR(measure->Measure(&probes));
    for (size_t i = 0; i < probed.size(); ++i) {
      const Probe &apart = probes[2 * i], &together = probes[2 * i + 1];
      proto::TransitionCosts::Layout* layout = costs->add_layouts();
      layout->set_backend(probed[i]->name());
      layout->set_bytes(crossing.NumBytes());
      layout->set_failed(FirstFailure(apart, together));
      // Out of the one partition and into the other: two crossings, and a call.
      const double both = apart.us - together.us - calls.LeastMicros(probed[i]->name());
      layout->set_us(std::max(0.0, both / 2));
      layout->set_estimated_us(probed[i]->TransitionMicros(crossing, config.target()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Digest> TransitionKey(const target::CompilationConfig& config,
                                     const std::vector<const backend::Backend*>& backends, const std::string& device,
                                     PartitionCompiler* compiler) {
  Hasher hasher;
  hasher.UpdateField("inlay transitions/1").UpdateField(device).UpdateField(absl::StrCat(config.num_threads));
  hasher.UpdateField(config.target().ToString());
  for (const backend::Backend* backend : backends) {
    INLAY_ASSIGN_OR_RETURN(const std::string version,
                           compiler->BackendVersion(target::BackendOfVariant(backend->name())));
    hasher.UpdateField(backend->name()).UpdateField(version);
    hasher.UpdateField(config.CodegenTarget(backend->name()).ToString());
  }
  return hasher.Finish();
}

proto::TransitionCosts KnownTransitions(const Digest& key, cache::KeyValueTable* costs) {
  return FindRow<proto::TransitionCosts>(key, costs).value_or(proto::TransitionCosts());
}

absl::StatusOr<proto::TransitionCosts> MeasureTransitions(const target::CompilationConfig& config,
                                                          const std::vector<const backend::Backend*>& backends,
                                                          const MeasuringContext& context, std::string* failure) {
  INLAY_ASSIGN_OR_RETURN(const Digest key,
                         TransitionKey(config, backends, context.measurer->device(), context.compiler->compiler()));
  proto::TransitionCosts costs = KnownTransitions(key, context.costs);
  if (!costs.device().empty()) return costs;
  costs.set_device(context.measurer->device());
  costs.set_num_threads(config.num_threads);
  if (context.progress) context.progress({"measure transitions", 0, 0, ""});
  TransitionProbes measure(config, context, failure);
  INLAY_RETURN_IF_ERROR(AddDispatch(config, backends, &measure, &costs));
  INLAY_RETURN_IF_ERROR(AddCopies(config, kSmallCopies, &measure, &costs));
  INLAY_RETURN_IF_ERROR(AddCopies(config, kLargeCopies, &measure, &costs));
  INLAY_RETURN_IF_ERROR(AddLayouts(config, backends, &measure, &costs));
  if (!failure->empty()) return costs;
  KeepRow(key, costs, context.costs);
  return FindRow<proto::TransitionCosts>(key, context.costs).value_or(costs);  // of whoever was first
}

}  // namespace inlay::compiler
