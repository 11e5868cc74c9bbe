#include "core/backends/native/fusion.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/backends/native/eval.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/views.h"
#include "mlir/IR/Value.h"

namespace inlay::native {
namespace {

constexpr int kCheap = 3;           // computed again rather than stored
constexpr int kMaxExpression = 64;  // operators in one expression: bounds compile time and register pressure

// Whether `x` is more than `y`, or may be.
bool MayBeMore(const Extent& x, const Extent& y) {
  return x.is_static() && y.is_static() ? x.value() > y.value() : x != y;
}

class Planner {
 public:
  explicit Planner(Graph* graph) : graph_(*graph), state_(graph->tensors.size()) {}

  absl::StatusOr<std::vector<KernelPlan>> Run() {
    for (const auto& node : graph_.nodes) {
      const Lowering* lowering = FindLowering(node->op);
      if (lowering == nullptr) {
        return absl::UnimplementedError(absl::StrCat("native: no lowering for operator '", node->op, "'"));
      }
      lowerings_.push_back(lowering);
      int cost = lowering->cost, size = 1;
      for (const Tensor* in : node->inputs) {
        if (in->producer == nullptr || Low(*in->producer).element == nullptr) continue;
        cost += state_[in->id].chain_cost;
        size += state_[in->id].chain_size;
      }
      if (node->op == "reshape" && !IsReadThrough(*node)) cost = size = 0;  // it names memory
      for (const Tensor* out : node->outputs) {
        state_[out->id].chain_cost = std::min(cost, 1000000);
        state_[out->id].chain_size = std::min(size, 1000000);
      }
    }
    for (int i = static_cast<int>(graph_.nodes.size()) - 1; i >= 0; --i) Decide(graph_.nodes[i].get());
    return Plan();
  }

 private:
  struct State {
    std::set<int> roots;  // nodes in whose kernels it is evaluated
    bool many = false;    // evaluated several times for each of its elements
    bool dead = false;
    int chain_cost = 0, chain_size = 0;
  };

  const Lowering& Low(const Node& node) const { return *lowerings_[node.id]; }

  bool IsLive(const Node& node) const {
    for (const Tensor* out : node.outputs) {
      if (!state_[out->id].dead) return true;
    }
    return false;
  }

  void Decide(Node* node) {
    for (Tensor* t : node->outputs) DecideTensor(node, t);
  }

  void DecideTensor(Node* node, Tensor* t) {
    State& s = state_[t->id];
    bool memory = t->is_result;
    bool used = t->is_result;
    for (Node* user : t->users) {
      if (!IsLive(*user)) continue;
      used = true;
      for (int arg = 0; arg < static_cast<int>(user->inputs.size()); ++arg) {
        if (user->inputs[arg] != t) continue;
        ArgUse use = Low(*user).UseOf(*user, arg);
        bool inlined_user = false;
        for (const Tensor* out : user->outputs) {
          if (out->alias_of == t) memory = true;
          if (!out->inlined) continue;
          inlined_user = true;
          s.roots.insert(state_[out->id].roots.begin(), state_[out->id].roots.end());
          s.many |= state_[out->id].many;
        }
        if (!inlined_user) s.roots.insert(user->id);
        if (use == ArgUse::kMemory) memory = true;
        if (use == ArgUse::kMany) s.many = true;
        if (Low(*user).element && MayBeMore(user->outputs[0]->Elements(), t->Elements())) s.many = true;
      }
    }
    s.dead = !used;
    if (s.dead) return;
    bool reshape = node->op == "reshape";
    if (reshape && (memory || !IsReadThrough(*node) || node->in(0).producer == nullptr || s.roots.size() != 1)) {
      t->alias_of = node->inputs[0];
      return;
    }
    const Lowering& lowering = Low(*node);
    if (memory || lowering.element == nullptr) return;
    bool cheap = s.chain_cost <= kCheap;
    bool single = s.roots.size() == 1 && !s.many && s.chain_size <= kMaxExpression;
    if (cheap || single) t->inlined = true;
  }

  // Follows pointwise operators of the root's shape up to kernels that could take them as their tail.
  void CollectTail(const Tensor& root, Node* node, std::set<Node*>* region, std::set<Tensor*>* anchors) {
    if (!region->insert(node).second) return;
    for (Tensor* in : node->inputs) {
      if (in->dims != root.dims || in->producer == nullptr) continue;
      const Lowering& lowering = Low(*in->producer);
      if (in->inlined && lowering.pointwise && state_[in->id].roots.size() == 1) {
        CollectTail(root, in->producer, region, anchors);
      } else if (!in->inlined && in->alias_of == nullptr && lowering.kernel && lowering.epilogue && !in->is_result &&
                 in == in->producer->outputs[0]) {
        anchors->insert(in);
      }
    }
  }

  // The kernel that takes `root` as the end of its tail, or nullptr.
  Tensor* FindAnchor(const Tensor& root, Node* node) {
    if (!Low(*node).pointwise) return nullptr;
    std::set<Node*> region;
    std::set<Tensor*> anchors;
    CollectTail(root, node, &region, &anchors);
    Tensor* best = nullptr;
    for (Tensor* anchor : anchors) {
      bool inside = true;
      for (Node* user : anchor->users) inside &= region.count(user) > 0 || !IsLive(*user);
      for (const Tensor* other : anchor->producer->outputs) inside &= other == anchor || state_[other->id].dead;
      if (inside && (best == nullptr || anchor->producer->id > best->producer->id)) best = anchor;
    }
    return best;
  }

  void CollectReads(const Node& node, const Tensor* provided, std::set<const Node*>* seen,
                    std::set<const Tensor*>* reads) {
    if (!seen->insert(&node).second) return;
    for (const Tensor* in : node.inputs) {
      if (in == provided) continue;
      if (in->inlined) {
        CollectReads(*in->producer, provided, seen, reads);
      } else {
        reads->insert(in->Base());
      }
    }
  }

  std::vector<KernelPlan> Plan() {
    std::vector<KernelPlan> plans;
    std::vector<Tensor*> tail_of(graph_.nodes.size());  // by the node that ends the tail: its kernel's output
    std::vector<bool> absorbed(graph_.nodes.size());
    for (const auto& node : graph_.nodes) {
      Tensor* out = node->outputs[0];
      if (!IsLive(*node) || out->inlined || out->alias_of != nullptr || node->outputs.size() != 1) continue;
      Tensor* anchor = FindAnchor(*out, node.get());
      if (anchor == nullptr || absorbed[anchor->producer->id]) continue;
      tail_of[node->id] = anchor;
      absorbed[anchor->producer->id] = true;
      anchor->inlined = true;
    }
    for (const auto& node : graph_.nodes) {
      if (!IsLive(*node) || absorbed[node->id]) continue;
      std::set<const Node*> seen;
      std::set<const Tensor*> reads;
      if (Tensor* anchor = tail_of[node->id]) {
        KernelPlan plan{anchor->producer, node->outputs[0], true, {}};
        CollectReads(*anchor->producer, anchor, &seen, &reads);
        CollectReads(*node, anchor, &seen, &reads);
        plan.reads.assign(reads.begin(), reads.end());
        plans.push_back(std::move(plan));
        continue;
      }
      CollectReads(*node, nullptr, &seen, &reads);
      if (Low(*node).HasKernel(*node)) {
        bool memory = false;
        for (const Tensor* out : node->outputs) memory |= !out->inlined && out->alias_of == nullptr;
        if (memory) plans.push_back({node.get(), nullptr, false, {reads.begin(), reads.end()}});
        continue;
      }
      for (Tensor* out : node->outputs) {
        if (out->inlined || out->alias_of != nullptr || state_[out->id].dead) continue;
        plans.push_back({node.get(), out, false, {reads.begin(), reads.end()}});
      }
    }
    return plans;
  }

  Graph& graph_;
  std::vector<State> state_;
  std::vector<const Lowering*> lowerings_;
};

}  // namespace

absl::StatusOr<std::vector<KernelPlan>> PlanKernels(Graph* graph) { return Planner(graph).Run(); }

}  // namespace inlay::native
