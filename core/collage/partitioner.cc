#include "core/collage/partitioner.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/backend/variant.h"
#include "core/base/status_macros.h"
#include "core/collage/layouts.h"
#include "core/collage/merge.h"
#include "core/collage/micro_batches.h"
#include "core/collage/outline.h"
#include "core/collage/partition_rule.h"
#include "core/collage/pricing.h"
#include "core/collage/search.h"
#include "core/ir/structural_hash.h"

namespace inlay::collage {
namespace {

// Rewrites one function of the module to calls of partitions, which it adds to the module.
class FunctionPartitioner {
 public:
  FunctionPartitioner(const ir::Function& function, const Cover& cover, const std::vector<Group>& groups,
                      const target::CompilationConfig& config, Borders borders, Partitioned* out,
                      std::unordered_map<std::string, int>* index_of)
      : function_(function),
        cover_(cover),
        groups_(groups),
        graph_(function),
        config_(config),
        channels_last_(LayoutsOf(graph_, groups, borders, config.target()).channels_last),
        out_(out),
        index_of_(index_of) {}

  ir::Function Run() {
    ir::Function result = function_;
    result.body.bindings.clear();
    for (const Group& group : groups_) {
      if (group.backend == nullptr) {
        for (int position : group.positions) result.body.bindings.push_back(graph_.binding(position));
      } else {
        AddCall(group, &result.body);
      }
    }
    return result;
  }

 private:
  void AddCall(const Group& group, ir::Block* body) {
    Outlined outlined = Outline(graph_, group.positions);
    outlined.function.attrs.Set("backend", group.backend->name());
    // Nothing is loaded there, so nobody packs what is constant after load.
    if (config_.runtime.kind == target::RuntimeKind::kCrt) {
      outlined.function.attrs.Set(backend::kConstantParams, std::vector<int64_t>());
    }
    SetLayouts(&outlined);
    const std::string name = AddPartition(group, std::move(outlined.function));
    ir::Binding call;
    call.kind = ir::Binding::Kind::kCallFunction;
    call.callee = name;
    call.args = std::move(outlined.args);
    call.location = graph_.binding(group.positions.front()).location;
    if (outlined.results.size() == 1) {
      call.var = outlined.results[0];
      body->bindings.push_back(std::move(call));
      return;
    }
    ir::TupleType tuple;
    for (const ir::VarPtr& var : outlined.results) tuple.fields.push_back(var->type);
    call.var = ir::MakeVar(name, std::move(tuple));
    const ir::VarPtr tuple_var = call.var;
    body->bindings.push_back(std::move(call));
    for (int i = 0; i < static_cast<int>(outlined.results.size()); ++i) {
      ir::Binding item;
      item.kind = ir::Binding::Kind::kTupleGetItem;
      item.var = outlined.results[i];
      item.args = {tuple_var};
      item.index = i;
      body->bindings.push_back(std::move(item));
    }
  }

  void SetLayouts(Outlined* outlined) const {
    if (channels_last_.empty()) return;
    std::vector<int64_t> params, results;
    for (size_t i = 0; i < outlined->args.size(); ++i) {
      const ir::Operand& arg = outlined->args[i];
      if (arg.is_var() && channels_last_.count(arg.var.get()) > 0) params.push_back(static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < outlined->results.size(); ++i) {
      if (channels_last_.count(outlined->results[i].get()) > 0) results.push_back(static_cast<int64_t>(i));
    }
    if (!params.empty()) outlined->function.attrs.Set(backend::kChannelsLastParams, std::move(params));
    if (!results.empty()) outlined->function.attrs.Set(backend::kChannelsLastResults, std::move(results));
  }

  // Structurally equal partitions of one backend are one function.
  std::string AddPartition(const Group& group, ir::Function function) {
    std::string name = PartitionName(function, config_);
    auto [found, added] = index_of_->emplace(name, static_cast<int>(out_->partitions.size()));
    if (added) {
      out_->module.functions[name] = ir::Canonicalize(function);
      out_->partitions.push_back(Describe(group, name));
      out_->partitions.back().channels_last = {function.attrs.IntsOr(backend::kChannelsLastParams, {}),
                                               function.attrs.IntsOr(backend::kChannelsLastResults, {})};
    }
    ++out_->partitions[found->second].call_sites;
    return name;
  }

  PartitionInfo Describe(const Group& group, const std::string& name) const {
    PartitionInfo info;
    info.function = name;
    info.backend = group.backend->name();
    const target::Target codegen_target = config_.CodegenTarget(info.backend);
    if (!codegen_target.attrs.empty()) info.codegen_target = codegen_target.ToString();
    info.cost_us = group.cost_us;
    for (int position : group.positions) {
      if (!graph_.needs_cover(position)) continue;
      info.ops.push_back(graph_.binding(position).callee);
      const std::string& location = graph_.binding(position).location;
      if (!location.empty()) info.locations.push_back(location);
    }
    std::vector<std::string> rules;
    for (const std::string& rule : group.rules) {
      if (std::find(rules.begin(), rules.end(), rule) == rules.end()) rules.push_back(rule);
    }
    if (rules.size() > 4) rules.resize(4), rules.push_back("...");
    info.why = absl::StrCat(cover_.name, "; rules ", absl::StrJoin(rules, ", "));
    return info;
  }

  const ir::Function& function_;
  const Cover& cover_;
  const std::vector<Group>& groups_;
  const DataflowGraph graph_;
  const target::CompilationConfig& config_;
  const ValueSet channels_last_;
  Partitioned* out_;
  std::unordered_map<std::string, int>* index_of_;
};

}  // namespace

Partitioner::Partitioner(std::vector<const backend::Backend*> backends, const CostEstimator* estimator)
    : backends_(std::move(backends)), estimator_(estimator) {}

SearchSpace Partitioner::Propose(const ir::IRModule& module) const {
  const target::CompilationConfig& config = module.config();
  std::vector<PartitionRulePtr> rules;
  for (const backend::Backend* backend : backends_) {
    const target::Target codegen_target = config.CodegenTarget(backend->name());
    std::vector<backend::PatternRule> configured = backend->ConfiguredRules(config.target(), codegen_target);
    const auto& names = config.backends;
    // A codegen target of a hidden backend asks for what is in it; to compete for the rest is asked for by name.
    const std::string name = target::BackendOfVariant(backend->name());
    const bool competes =
        !backend->is_hidden(config.target()) || std::find(names.begin(), names.end(), name) != names.end();
    rules.push_back(BackendPatterns(backend, std::move(configured), competes));
  }
  const PartitionRulePtr rule = OnlyValid(OnlyIntended(UnionOf("backends", std::move(rules))));
  SearchSpace space;
  for (const std::string& name : FunctionsToCut(module)) {
    auto function = module.functions.find(name);
    FunctionSpace& added = space.functions.emplace_back();
    added.name = name;
    added.graph = std::make_unique<DataflowGraph>(function->second);
    added.candidates = rule->Find(*added.graph, module.config().target(), added.is_main() ? &space.refusals : nullptr);
    for (Candidate& candidate : added.candidates) {
      candidate.cost_us = estimator_->EstimateMicros(*added.graph, candidate);
    }
    ShareFusedCosts(*added.graph, *estimator_, &added.candidates);
    CapWholeRules(*added.graph, &added.candidates);
  }
  return space;
}

absl::StatusOr<std::vector<Cover>> Partitioner::Covers(const SearchSpace& space, int num_favourites) const {
  std::vector<Cover> covers(1);
  covers[0].name = "cheapest cover";
  for (const FunctionSpace& function : space.functions) {
    INLAY_ASSIGN_OR_RETURN(covers[0].functions[function.name], Cheapest(function));
    if (function.is_main()) Price(function, &covers[0]);
  }
  const auto main = std::find_if(space.functions.begin(), space.functions.end(),
                                 [](const FunctionSpace& function) { return function.is_main(); });
  if (main == space.functions.end()) return covers;
  for (int i = 0; i < std::min<int>(num_favourites, backends_.size()); ++i) {
    INLAY_ASSIGN_OR_RETURN(std::vector<Group> groups, Favouring(*main, *backends_[i]));
    if (groups.empty()) continue;
    Cover cover = covers[0];  // with its transform_params
    cover.name = absl::StrCat(backends_[i]->name(), " wherever it may");
    cover.functions[main->name] = std::move(groups);
    Price(*main, &cover);
    covers.push_back(std::move(cover));
  }
  return covers;
}

// By estimates in which other backends than the fallback bear the estimator's margin. Where some of them do not pay
// once their borders are counted too, anew without those.
absl::StatusOr<std::vector<Group>> Partitioner::Cheapest(const FunctionSpace& function) const {
  std::vector<Candidate> candidates = function.candidates;
  while (true) {
    std::vector<Candidate> cautious = candidates;
    for (Candidate& candidate : cautious) candidate.cost_us *= estimator_->Margin(*candidate.backend);
    INLAY_ASSIGN_OR_RETURN(std::vector<Candidate> cover, CheapestCover(*function.graph, std::move(cautious)));
    for (Candidate& candidate : cover) candidate.cost_us /= estimator_->Margin(*candidate.backend);
    const std::vector<Candidate> kept = WhatPays(*function.graph, *estimator_, function.candidates, cover);
    const auto others = std::count_if(cover.begin(), cover.end(),
                                      [](const Candidate& candidate) { return !candidate.backend->is_fallback(); });
    if (static_cast<int64_t>(kept.size()) == others) return MergeCover(*function.graph, cover);
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                    [](const Candidate& candidate) { return !candidate.backend->is_fallback(); }),
                     candidates.end());
    candidates.insert(candidates.end(), kept.begin(), kept.end());
  }
}

void Partitioner::Price(const FunctionSpace& function, Cover* cover) const {
  std::vector<Group>& groups = cover->functions[function.name];
  PriceFusedGroups(*function.graph, *estimator_, &groups);
  const CoverCost cost = CostWithBorders(*function.graph, groups, *estimator_);
  cover->estimated_us = cost.us;
  cover->cautious_us = cost.cautious_us;
}

// A cover that gives the favourite all that it can take; empty where it can take nothing.
absl::StatusOr<std::vector<Group>> Partitioner::Favouring(const FunctionSpace& function,
                                                          const backend::Backend& favourite) const {
  constexpr double kFavour = 1e-6;  // of the estimate: whatever it takes is all but free, sizes still compare
  std::vector<Candidate> favoured = function.candidates;
  bool any = false;
  for (Candidate& candidate : favoured) {
    if (candidate.backend != &favourite) continue;
    candidate.cost_us *= kFavour;
    any = true;
  }
  if (!any) return std::vector<Group>();
  INLAY_ASSIGN_OR_RETURN(std::vector<Candidate> cover, CheapestCover(*function.graph, std::move(favoured)));
  for (Candidate& candidate : cover) {
    if (candidate.backend == &favourite) candidate.cost_us /= kFavour;
  }
  return MergeCover(*function.graph, cover);
}

// The search sees one candidate at a time, borders only show in the whole. So the cover with the least sum competes
// with those that give each backend all that it can take, and the cheapest with its borders and margins wins: never (by
// the estimates) worse than one backend alone.
absl::StatusOr<Cover> Partitioner::BestByEstimate(const SearchSpace& space,
                                                  const target::CompilationConfig& config) const {
  const bool compares = config.search_mode != target::SearchMode::kNone;  // preferences are no times to add up
  INLAY_ASSIGN_OR_RETURN(std::vector<Cover> covers, Covers(space, compares ? static_cast<int>(backends_.size()) : 0));
  Cover& best = covers[CheapestByEstimate(covers)];
  best.name += compares ? " by the analytic model" : " by the order of preference";
  return std::move(best);
}

size_t CheapestByEstimate(const std::vector<Cover>& covers) {
  return std::min_element(covers.begin(), covers.end(),
                          [](const Cover& a, const Cover& b) { return a.cautious_us < b.cautious_us; }) -
         covers.begin();
}

Partitioned CutAlong(const ir::IRModule& module, const Cover& cover, Borders borders) {
  Partitioned result;
  result.module = module;
  std::unordered_map<std::string, int> index_of;
  for (const std::string& name : FunctionsToCut(module)) {
    auto function = module.functions.find(name);
    result.module.functions[name] = FunctionPartitioner(function->second, cover, cover.functions.at(name),
                                                        module.config(), borders, &result, &index_of)
                                        .Run();
  }
  if (!cover.whole_batch) UseMicroBatches(&result);
  return result;
}

namespace {

// Each backend, followed by its further variants. Where nobody compares costs, a second variant of the fallback could
// only take what is the first one's.
std::vector<const backend::Backend*> AllVariants(const std::vector<const backend::Backend*>& backends,
                                                 const target::CompilationConfig& config) {
  std::vector<const backend::Backend*> all;
  for (const backend::Backend* backend : backends) {
    const bool compares = config.search_mode != target::SearchMode::kNone || !backend->is_fallback();
    const int count = compares ? config.NumVariants(backend->name()) : 1;
    for (int variant = 1; variant <= count; ++variant) all.push_back(backend::Variant(backend, variant));
  }
  return all;
}

}  // namespace

absl::StatusOr<std::vector<const backend::Backend*>> SelectBackends(const target::CompilationConfig& config,
                                                                    std::vector<UnusableBackend>* unusable) {
  const backend::BackendRegistry& registry = backend::BackendRegistry::Global();
  std::vector<std::string> known;
  for (const backend::Backend* backend : registry.All()) known.push_back(backend->name());
  std::vector<const backend::Backend*> wanted;
  for (const std::string& name : config.backends) {
    const backend::Backend* backend = registry.Find(name);
    if (backend == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("config.search.backends names '", name, "'; this server has: ", absl::StrJoin(known, ", ")));
    }
    wanted.push_back(backend);
  }
  auto has_target = [&](const std::string& name) {
    return std::any_of(config.targets.begin() + 1, config.targets.end(),
                       [&](const target::Target& target) { return target.kind == name; });
  };
  std::vector<UnusableBackend> left_out;
  if (config.backends.empty()) {
    for (const backend::Backend* backend : registry.All()) {
      if (!backend->is_hidden(config.target()) || has_target(backend->name())) {
        wanted.push_back(backend);
      } else if (absl::Status s = backend->CheckTarget(config.target(), config.CodegenTarget(backend->name()));
                 !s.ok()) {
        left_out.push_back({backend->name(), std::string(s.message()), false});
      }
    }
  }
  // Native code is always possible: what nobody else takes goes there.
  for (const backend::Backend* backend : registry.All()) {
    if (backend->is_fallback() && std::find(wanted.begin(), wanted.end(), backend) == wanted.end()) {
      wanted.push_back(backend);
    }
  }
  std::vector<const backend::Backend*> usable;
  for (const backend::Backend* backend : AllVariants(wanted, config)) {
    absl::Status status = backend->CheckTarget(config.target(), config.CodegenTarget(backend->name()));
    if (status.ok()) {
      usable.push_back(backend);
    } else if (absl::IsInvalidArgument(status)) {
      return absl::InvalidArgumentError(absl::StrCat("config.targets: ", status.message()));  // the user's mistake
    } else if (backend->is_hidden(config.target())) {
      return Annotate(status, absl::StrCat("the configuration asks for ", backend->name()));  // else it were not here
    } else {
      const std::string name = target::BackendOfVariant(backend->name());
      const bool listed = std::find(config.backends.begin(), config.backends.end(), name) != config.backends.end();
      left_out.push_back({backend->name(), std::string(status.message()), listed || has_target(name)});
    }
  }
  if (usable.empty()) {
    auto reason = [](std::string* out, const UnusableBackend& b) { absl::StrAppend(out, b.backend, ": ", b.reason); };
    return absl::FailedPreconditionError(absl::StrCat("no backend serves target '", config.target().ToString(),
                                                      "': ", absl::StrJoin(left_out, "; ", reason)));
  }
  if (unusable != nullptr) *unusable = std::move(left_out);
  return usable;
}

}  // namespace inlay::collage
