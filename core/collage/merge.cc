#include "core/collage/merge.h"

#include <algorithm>
#include <utility>

#include "core/collage/convexity.h"
#include "core/ir/op_registry.h"
#include "core/ir/open_symbols.h"

namespace inlay::collage {
namespace {

using ir::OpPattern;

class Merger {
 public:
  Merger(const DataflowGraph& graph, const std::vector<Candidate>& cover)
      : graph_(graph),
        groups_(MakeGroups(graph, cover)),
        candidates_in_(groups_.size(), 1),
        quotient_(graph, GroupOf(), groups_.size()) {}

  std::vector<Group> Run(bool merge_regions) {
    if (merge_regions) MergeRegions();
    FuseByKind(Narrow::kApart);
    FuseByKind(Narrow::kFused);
    std::vector<Group> ordered;
    for (int group : quotient_.TopologicalOrder()) {
      groups_[group].positions = quotient_.members(group);
      ordered.push_back(std::move(groups_[group]));
    }
    return ordered;
  }

 private:
  static std::vector<Group> MakeGroups(const DataflowGraph& graph, const std::vector<Candidate>& cover) {
    std::vector<bool> covered(graph.size(), false);
    std::vector<Group> groups;
    for (const Candidate& candidate : cover) {
      groups.push_back({candidate.positions, candidate.backend, {candidate.rule}, candidate.cost_us});
      for (int position : candidate.positions) covered[position] = true;
    }
    for (int i = 0; i < graph.size(); ++i) {
      if (!covered[i]) groups.push_back({{i}, nullptr, {}, 0});
    }
    return groups;
  }

  std::vector<int> GroupOf() const {
    std::vector<int> group_of(graph_.size(), -1);
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      for (int position : groups_[group].positions) group_of[position] = group;
    }
    return group_of;
  }

  void Merge(int into, int from) {
    quotient_.Merge(into, from);
    groups_[into].rules.insert(groups_[into].rules.end(), groups_[from].rules.begin(), groups_[from].rules.end());
    groups_[into].cost_us += groups_[from].cost_us;
    candidates_in_[into] += candidates_in_[from];
  }

  // Regions grow along the dataflow: each candidate joins the region of a producer where it may.
  void MergeRegions() {
    for (int position = 0; position < graph_.size(); ++position) {
      for (int producer : graph_.producers(position)) {
        int group = quotient_.group_of(position), region = quotient_.group_of(producer);
        if (group == region || !SameBackend(group, region)) continue;
        if (!groups_[group].backend->merges_regions()) continue;
        if (candidates_in_[group] + candidates_in_[region] > kMaxRegionCandidates) continue;
        if (quotient_.CanMerge(region, group)) Merge(region, group);
      }
    }
  }

  // Whether a group takes the maker of a value that was made narrower (quantised, rounded to 16 bits) and that it
  // begins to widen. It better lies between the two than what it is widened to: so who widens takes that in first, from
  // all sides, and then one of the makers.
  enum class Narrow { kApart, kFused };

  // As TVM's FuseOps: elementwise and injective producers into what consumes them, elementwise consumers onto a
  // contraction or a reduction. A producer goes in only where nobody else needs its value.
  void FuseByKind(Narrow narrow) {
    for (int position = 0; position < graph_.size(); ++position) {
      while (FuseProducer(quotient_.group_of(position), narrow)) {
      }
    }
  }

  // What is pointwise before a product, which takes nothing in once it has its tail.
  bool FuseProducer(int group, Narrow narrow) {
    return FuseProducer(group, narrow, OpPattern::kBroadcast) || FuseProducer(group, narrow, OpPattern::kOpaque);
  }

  bool FuseProducer(int group, Narrow narrow, OpPattern most) {
    std::vector<int> members = quotient_.members(group);
    // Of several makers of narrow values the last one, which had to wait for the others' anyway.
    if (narrow == Narrow::kFused) std::reverse(members.begin(), members.end());
    for (int member : members) {
      for (int producer : graph_.producers(member)) {
        const int other = quotient_.group_of(producer);
        if (other == group || (narrow == Narrow::kApart && Widens(member, producer))) continue;
        if (KindOfGroup(other) > most || !MayFuse(other, group) || !quotient_.CanMerge(other, group)) continue;
        Merge(other, group);
        return true;
      }
    }
    return false;
  }

  bool Widens(int position, int producer) const {
    const ir::Binding &call = graph_.binding(position), &made = graph_.binding(producer);
    if (!call.IsCall("cast") || !made.IsCall("cast")) return false;
    return ir::ByteSize(made.var->type.tensor().dtype) < ir::ByteSize(call.var->type.tensor().dtype);
  }

  bool SameBackend(int a, int b) const {
    return groups_[a].backend != nullptr && groups_[a].backend == groups_[b].backend;
  }

  OpPattern KindOf(int position) const {
    const ir::Binding& binding = graph_.binding(position);
    if (binding.kind == ir::Binding::Kind::kTupleGetItem) return OpPattern::kElementwise;
    return ir::PatternOf(binding);
  }

  OpPattern KindOfGroup(int group) const {
    OpPattern kind = OpPattern::kElementwise;
    for (int member : quotient_.members(group)) kind = std::max(kind, KindOf(member));
    return kind;
  }

  bool MayFuse(int producer, int consumer) const {
    if (!SameBackend(producer, consumer) || !groups_[consumer].backend->fuses_by_kind()) return false;
    if (quotient_.members(producer).size() + quotient_.members(consumer).size() > kMaxFusedCalls) return false;
    for (int member : quotient_.members(producer)) {
      if (graph_.is_result(member)) return false;
      for (int user : graph_.consumers(member)) {
        if (quotient_.group_of(user) != producer && quotient_.group_of(user) != consumer) return false;
      }
    }
    const OpPattern from = KindOfGroup(producer), to = KindOfGroup(consumer);
    if (from == OpPattern::kOpaque || to == OpPattern::kOpaque) return false;
    if (IsView(producer) && HasProduct(consumer)) return true;
    if (from <= OpPattern::kInjective) return to <= OpPattern::kReduction;
    return to <= OpPattern::kBroadcast && SameSpace(producer, consumer);
  }

  // Reshapes alone: a product reads what is in memory under another name.
  bool IsView(int group) const {
    const std::vector<int>& members = quotient_.members(group);
    return std::all_of(members.begin(), members.end(),
                       [&](int member) { return graph_.binding(member).IsCall("reshape"); });
  }
  bool HasProduct(int group) const {
    const std::vector<int>& members = quotient_.members(group);
    return std::any_of(members.begin(), members.end(),
                       [&](int member) { return graph_.binding(member).IsCall("matmul"); });
  }

  // Whether every value that crosses from producer to consumer has the shape of everything in the consumer: an
  // epilogue.
  bool SameSpace(int producer, int consumer) const {
    const ir::TensorType* space = nullptr;
    for (int member : quotient_.members(producer)) {
      for (int user : graph_.consumers(member)) {
        if (quotient_.group_of(user) != consumer) continue;
        if (!graph_.binding(member).var->type.is_tensor()) return false;
        space = &graph_.binding(member).var->type.tensor();
      }
    }
    if (space == nullptr) return false;
    for (int member : quotient_.members(consumer)) {
      const ir::Type& type = graph_.binding(member).var->type;
      if (!type.is_tensor() || type.tensor().dims != space->dims) return false;
    }
    return true;
  }

  const DataflowGraph& graph_;
  std::vector<Group> groups_;
  std::vector<int> candidates_in_;
  Quotient quotient_;
};

}  // namespace

std::vector<Group> MergeCover(const DataflowGraph& graph, const std::vector<Candidate>& cover, bool merge_regions) {
  return Merger(graph, cover).Run(merge_regions);
}

}  // namespace inlay::collage
