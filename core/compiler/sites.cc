#include "core/compiler/sites.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/collage/convexity.h"
#include "core/collage/outline.h"
#include "core/ir/structural_hash.h"

namespace inlay::compiler {
namespace {

using Positions = std::vector<int>;

// The sub-graph alone, as a module whose main it is.
ir::IRModule ModuleOf(const ir::Function& outlined, const ir::IRModule& model) {
  ir::IRModule module;
  module.set_config(model.config());
  ir::Function main = outlined;
  main.attrs = {};
  std::map<const ir::Var*, ir::ConstantPtr> weights;
  for (int64_t index : outlined.attrs.Ints(backend::kConstantParams)) {
    const std::string name = absl::StrCat("w", index);
    weights.emplace(outlined.params[index].get(),
                    ir::MakeWeight(outlined.params[index]->type.tensor(), Digest::Of(name), name));
  }
  main.params.clear();
  for (const ir::VarPtr& param : outlined.params) {
    if (weights.count(param.get()) == 0) main.params.push_back(param);
  }
  auto replace = [&](ir::Operand& operand) {
    if (!operand.is_var()) return;
    auto found = weights.find(operand.var.get());
    if (found != weights.end()) operand = found->second;
  };
  for (ir::Binding& binding : main.body.bindings) std::for_each(binding.args.begin(), binding.args.end(), replace);
  std::for_each(main.body.results.begin(), main.body.results.end(), replace);
  for (size_t i = 0; i < main.body.results.size(); ++i) main.result_names.push_back(absl::StrCat("y", i));
  module.functions["main"] = std::move(main);
  return module;
}

class Finder {
 public:
  Finder(const ir::IRModule& module, const collage::Partitioner& partitioner, const collage::CostEstimator* estimator,
         const collage::FunctionSpace& space)
      : module_(module), partitioner_(partitioner), estimator_(estimator), space_(space), graph_(*space.graph) {
    for (const backend::Backend* backend : partitioner.backends()) {
      if (backend->is_fallback()) fallback_ = backend;
    }
  }

  absl::StatusOr<std::vector<Site>> Run(const std::vector<collage::Cover>& covers) {
    if (fallback_ == nullptr) return absl::FailedPreconditionError("a measured search needs a fallback backend");
    std::vector<Positions> parts_of_fallback;
    std::set<Positions> others;
    for (const collage::Cover& cover : covers) {
      for (const collage::Group& group : cover.functions.at("main")) {
        if (group.backend == nullptr) continue;
        if (group.backend == fallback_) {
          parts_of_fallback.push_back(group.positions);
        } else {
          others.insert(group.positions);
        }
        INLAY_RETURN_IF_ERROR(Add(group.positions, group.backend, absl::StrJoin(Distinct(group.rules), ", ")));
      }
    }
    for (const collage::Candidate* candidate : BiggestMatches()) {
      INLAY_RETURN_IF_ERROR(Add(candidate->positions, candidate->backend, candidate->rule));
      others.insert(candidate->positions);
    }
    // A mixture cuts through the fallback's partitions: what is left of them needs times of its own.
    for (const Positions& part : std::set<Positions>(parts_of_fallback.begin(), parts_of_fallback.end())) {
      for (const Positions& other : others) INLAY_RETURN_IF_ERROR(AddRemainder(part, other));
    }
    return std::move(sites_);
  }

 private:
  static std::vector<std::string> Distinct(const std::vector<std::string>& rules) {
    std::vector<std::string> distinct;
    for (const std::string& rule : rules) {
      if (std::find(distinct.begin(), distinct.end(), rule) == distinct.end()) distinct.push_back(rule);
    }
    if (distinct.size() > 4) distinct.resize(4), distinct.push_back("...");
    return distinct;
  }

  // Candidates of libraries that are inside no other of the same library.
  std::vector<const collage::Candidate*> BiggestMatches() const {
    std::map<const backend::Backend*, std::vector<const collage::Candidate*>> by_backend;
    for (const collage::Candidate& candidate : space_.candidates) {
      if (candidate.backend != fallback_) by_backend[candidate.backend].push_back(&candidate);
    }
    std::vector<const collage::Candidate*> biggest;
    for (auto& [backend, candidates] : by_backend) {
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const auto* a, const auto* b) { return a->positions.size() > b->positions.size(); });
      std::vector<std::vector<const collage::Candidate*>> at(graph_.size());  // those kept that contain a position
      for (const collage::Candidate* candidate : candidates) {
        const Positions& inner = candidate->positions;
        const auto& rivals = at[inner.front()];
        const bool inside = std::any_of(rivals.begin(), rivals.end(), [&](const collage::Candidate* rival) {
          return std::includes(rival->positions.begin(), rival->positions.end(), inner.begin(), inner.end());
        });
        if (inside) continue;
        biggest.push_back(candidate);
        for (int position : inner) at[position].push_back(candidate);
      }
    }
    return biggest;
  }

  absl::Status AddRemainder(const Positions& part, const Positions& other) {
    Positions rest;
    std::set_difference(part.begin(), part.end(), other.begin(), other.end(), std::back_inserter(rest));
    if (rest.empty() || rest.size() == part.size()) return absl::OkStatus();
    for (const Positions& piece : ConnectedPieces(rest)) {
      if (collage::IsConvex(graph_, piece)) INLAY_RETURN_IF_ERROR(Add(piece, fallback_, "what is left"));
    }
    return absl::OkStatus();
  }

  std::vector<Positions> ConnectedPieces(const Positions& positions) const {
    std::map<int, int> piece_of;  // position -> first member of its piece
    for (int position : positions) {
      piece_of[position] = position;
      for (int producer : graph_.producers(position)) {
        auto found = piece_of.find(producer);
        if (found == piece_of.end()) continue;
        const int from = found->second, into = piece_of[position];
        for (auto& [member, piece] : piece_of) {
          if (piece == from) piece = into;
        }
      }
    }
    std::map<int, Positions> pieces;
    for (const auto& [position, piece] : piece_of) pieces[piece].push_back(position);
    std::vector<Positions> result;
    for (auto& [piece, members] : pieces) {
      if (std::any_of(members.begin(), members.end(), [&](int p) { return graph_.needs_cover(p); })) {
        result.push_back(graph_.WithTupleItems(std::move(members)));
      }
    }
    return result;
  }

  absl::Status Add(const Positions& positions, const backend::Backend* backend, const std::string& rule) {
    auto known = site_at_.find(positions);
    if (known == site_at_.end()) {
      INLAY_ASSIGN_OR_RETURN(int site, SiteOf(positions));
      known = site_at_.emplace(positions, site).first;
    }
    if (known->second < 0) return absl::OkStatus();  // one too many
    Site& site = sites_[known->second];
    for (const Alternative& alternative : site.alternatives) {
      if (alternative.backend == backend) return absl::OkStatus();
    }
    Alternative added{backend, rule, 0, {}};
    collage::Group group;
    group.backend = backend;
    group.rules = {rule};
    for (size_t i = 0; i < positions.size(); ++i) group.positions.push_back(static_cast<int>(i));
    collage::Candidate whole{group.positions, backend, rule, 0};
    added.estimate_us = estimator_->EstimateMicros(collage::DataflowGraph(site.module.functions.at("main")), whole);
    added.cover.name = backend->name();
    added.cover.functions["main"].push_back(std::move(group));
    site.alternatives.push_back(std::move(added));
    return absl::OkStatus();
  }

  absl::StatusOr<int> SiteOf(const Positions& positions) {
    collage::Outlined outlined = collage::Outline(graph_, positions);
    const Digest structure = ir::StructuralHash(outlined.function);
    auto [found, is_new] = by_structure_.emplace(structure, static_cast<int>(sites_.size()));
    if (is_new) {
      if (sites_.size() >= kMaxSites) {
        found->second = -1;
        return -1;
      }
      Site& site = sites_.emplace_back();
      site.structure = structure;
      site.module = ModuleOf(outlined.function, module_);
      const collage::Partitioner alone({fallback_}, estimator_);
      const collage::SearchSpace space = alone.Propose(site.module);
      INLAY_ASSIGN_OR_RETURN(collage::Cover cover, alone.BestByEstimate(space, module_.config()));
      const double estimate = cover.estimated_us;
      std::vector<std::string> rules;
      for (const collage::Group& group : cover.functions["main"]) {
        rules.insert(rules.end(), group.rules.begin(), group.rules.end());
      }
      site.alternatives.push_back({fallback_, absl::StrJoin(Distinct(rules), ", "), estimate, std::move(cover)});
    }
    if (found->second >= 0) sites_[found->second].occurrences.push_back({positions});
    return found->second;
  }

  const ir::IRModule& module_;
  const collage::Partitioner& partitioner_;
  const collage::CostEstimator* estimator_;
  const collage::FunctionSpace& space_;
  const collage::DataflowGraph& graph_;
  const backend::Backend* fallback_ = nullptr;
  std::vector<Site> sites_;
  std::map<Digest, int> by_structure_;  // -> index; -1: beyond kMaxSites
  std::map<Positions, int> site_at_;
};

}  // namespace

absl::StatusOr<std::vector<Site>> FindSites(const ir::IRModule& module, const collage::Partitioner& partitioner,
                                            const collage::CostEstimator* estimator, const collage::SearchSpace& space,
                                            const std::vector<collage::Cover>& covers) {
  for (const collage::FunctionSpace& function : space.functions) {
    if (function.is_main()) return Finder(module, partitioner, estimator, function).Run(covers);
  }
  return std::vector<Site>();
}

}  // namespace inlay::compiler
