#include "core/collage/partition_rule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/collage/convexity.h"
#include "core/ir/open_symbols.h"

namespace inlay::collage {
namespace {

// The first open dimension of what is matched; "": there is none.
std::string OpenSymbol(const ir::PatternMatch& match) {
  for (const ir::Binding* binding : match.bindings) {
    if (std::string symbol = ir::FirstOpen(*binding); !symbol.empty()) return symbol;
  }
  return "";
}

class BackendPatternsRule : public PartitionRule {
 public:
  BackendPatternsRule(const backend::Backend* backend, std::vector<backend::PatternRule> configured, bool with_own)
      : backend_(backend), configured_(std::move(configured)) {
    for (const backend::PatternRule& rule : configured_) by_priority_.push_back(&rule);
    if (with_own) {
      for (const backend::PatternRule& rule : backend->rules()) by_priority_.push_back(&rule);
    }
    std::stable_sort(by_priority_.begin(), by_priority_.end(),
                     [](const auto* a, const auto* b) { return a->priority > b->priority; });
  }

  std::string name() const override { return backend_->name(); }

  std::vector<Candidate> Find(const DataflowGraph& graph, const target::Target& target,
                              std::vector<Refusal>* refusals) const override {
    std::vector<Candidate> found;
    for (int root = 0; root < graph.size(); ++root) {
      if (graph.needs_cover(root)) FindAt(graph, root, target, &found, refusals);
    }
    return found;
  }

 private:
  void FindAt(const DataflowGraph& graph, int root, const target::Target& target, std::vector<Candidate>* found,
              std::vector<Refusal>* refusals) const {
    std::set<std::vector<int>> seen;
    for (const backend::PatternRule* rule : by_priority_) {
      if (seen.size() >= kMaxCandidatesPerRoot) return;
      ir::PatternMatch match;
      if (!ir::Match(rule->pattern, graph.binding(root), graph.def_use(), &match)) continue;
      if (const std::string symbol = OpenSymbol(match); !symbol.empty() && !backend_->takes_open_shapes()) {
        if (refusals != nullptr) {
          refusals->push_back({root, backend_->name(), rule->name, absl::StrCat("dimension '", symbol, "' is open")});
        }
        continue;
      }
      if (rule->check) {
        absl::Status status = rule->check(match, target);
        if (!status.ok()) {
          if (refusals != nullptr) {
            refusals->push_back({root, backend_->name(), rule->name, std::string(status.message())});
          }
          continue;
        }
      }
      std::vector<int> positions;
      for (const ir::Binding* binding : match.bindings) positions.push_back(graph.def_use().Position(binding));
      positions = graph.WithTupleItems(std::move(positions));
      if (seen.insert(positions).second) {
        found->push_back({std::move(positions), backend_, rule->name, 0, rule->intended});
      }
    }
  }

  const backend::Backend* backend_;
  const std::vector<backend::PatternRule> configured_;
  std::vector<const backend::PatternRule*> by_priority_;
};

class UnionRule : public PartitionRule {
 public:
  UnionRule(std::string name, std::vector<PartitionRulePtr> rules) : name_(std::move(name)), rules_(std::move(rules)) {}
  std::string name() const override { return name_; }
  std::vector<Candidate> Find(const DataflowGraph& graph, const target::Target& target,
                              std::vector<Refusal>* refusals) const override {
    std::vector<Candidate> all;
    for (const PartitionRulePtr& rule : rules_) {
      for (Candidate& candidate : rule->Find(graph, target, refusals)) all.push_back(std::move(candidate));
    }
    return all;
  }

 private:
  std::string name_;
  std::vector<PartitionRulePtr> rules_;
};

class OnlyIntendedRule : public PartitionRule {
 public:
  explicit OnlyIntendedRule(PartitionRulePtr rule) : rule_(std::move(rule)) {}
  std::string name() const override { return rule_->name(); }
  std::vector<Candidate> Find(const DataflowGraph& graph, const target::Target& target,
                              std::vector<Refusal>* refusals) const override {
    std::vector<Candidate> all = rule_->Find(graph, target, refusals);
    std::vector<const Candidate*> intended(graph.size(), nullptr);
    for (const Candidate& candidate : all) {
      if (!candidate.intended) continue;
      for (int position : candidate.positions) {
        if (intended[position] == nullptr) intended[position] = &candidate;
      }
    }
    std::vector<Candidate> kept;
    for (const Candidate& candidate : all) {
      const Candidate* other = nullptr;
      for (int position : candidate.positions) {
        if (intended[position] != nullptr && intended[position] != &candidate) other = intended[position];
      }
      if (other == nullptr) {
        kept.push_back(candidate);
      } else if (refusals != nullptr) {
        refusals->push_back({candidate.positions.back(), candidate.backend->name(), candidate.rule,
                             absl::StrCat("the configuration asks for ", other->rule)});
      }
    }
    return kept;
  }

 private:
  PartitionRulePtr rule_;
};

class OnlyValidRule : public PartitionRule {
 public:
  explicit OnlyValidRule(PartitionRulePtr rule) : rule_(std::move(rule)) {}
  std::string name() const override { return rule_->name(); }
  std::vector<Candidate> Find(const DataflowGraph& graph, const target::Target& target,
                              std::vector<Refusal>* refusals) const override {
    std::vector<Candidate> valid;
    for (Candidate& candidate : rule_->Find(graph, target, refusals)) {
      if (IsConvex(graph, candidate.positions)) {
        valid.push_back(std::move(candidate));
      } else if (refusals != nullptr) {
        refusals->push_back({candidate.positions.back(), candidate.backend->name(), candidate.rule,
                             "a path leaves the sub-graph and comes back"});
      }
    }
    return valid;
  }

 private:
  PartitionRulePtr rule_;
};

}  // namespace

PartitionRulePtr BackendPatterns(const backend::Backend* backend, std::vector<backend::PatternRule> configured,
                                 bool with_own) {
  return std::make_unique<BackendPatternsRule>(backend, std::move(configured), with_own);
}

PartitionRulePtr OnlyIntended(PartitionRulePtr rule) { return std::make_unique<OnlyIntendedRule>(std::move(rule)); }

PartitionRulePtr UnionOf(std::string name, std::vector<PartitionRulePtr> rules) {
  return std::make_unique<UnionRule>(std::move(name), std::move(rules));
}

PartitionRulePtr OnlyValid(PartitionRulePtr rule) { return std::make_unique<OnlyValidRule>(std::move(rule)); }

}  // namespace inlay::collage
