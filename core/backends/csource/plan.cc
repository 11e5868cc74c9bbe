#include "core/backends/csource/plan.h"

#include <algorithm>
#include <set>

#include "core/backends/csource/op.h"

namespace inlay::csource {
namespace {

constexpr int kCheap = 3;           // computed again rather than stored
constexpr int kMaxExpression = 64;  // operators in one loop: bounds the compiler's time and its registers

Shape WithoutOnes(const Shape& shape) {
  Shape result;
  for (int64_t d : shape) {
    if (d != 1) result.push_back(d);
  }
  return result;
}

class Planner {
 public:
  explicit Planner(Graph* graph) : graph_(*graph), state_(graph->tensors.size()) {}

  std::vector<Kernel> Run() {
    for (const auto& node : graph_.nodes) SumCosts(*node);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      for (Tensor* t : (*node)->outputs) Decide(node->get(), t);
    }
    FoldTails();
    return MakeKernels();
  }

 private:
  struct State {
    std::set<int> roots;  // nodes in whose kernels it is evaluated
    bool many = false;    // evaluated several times for each of its elements
    bool dead = false;
    int cost = 0, size = 0;  // of the expression that computes it
  };

  static bool HasElement(const Node& node) { return node.user_kernel == nullptr && FindOp(node.op)->element; }
  static bool IsPointwise(const Node& node) { return HasElement(node) && FindOp(node.op)->pointwise; }
  static Use UseOf(const Node& node, int arg) {
    if (node.user_kernel != nullptr) return Use::kMemory;
    const Op* op = FindOp(node.op);
    return op->use ? op->use(node, arg) : Use::kOnce;
  }
  bool IsLive(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](const Tensor* t) { return !state_[t->id].dead; });
  }

  void SumCosts(const Node& node) {
    int cost = HasElement(node) ? FindOp(node.op)->cost : 0, size = 1;
    for (const Tensor* in : node.inputs) {
      if (in->producer == nullptr || !HasElement(*in->producer)) continue;
      cost += state_[in->id].cost;
      size += state_[in->id].size;
    }
    for (const Tensor* out : node.outputs) {
      state_[out->id].cost = std::min(cost, 1000000);
      state_[out->id].size = std::min(size, 1000000);
    }
  }

  void Decide(Node* node, Tensor* t) {
    State& s = state_[t->id];
    bool memory = t->is_result, used = t->is_result;
    for (Node* user : t->users) {
      if (!IsLive(*user)) continue;
      used = true;
      bool inlined_user = false;
      for (const Tensor* out : user->outputs) {
        if (out->alias_of == t) memory = true;
        if (!out->inlined) continue;
        inlined_user = true;
        s.roots.insert(state_[out->id].roots.begin(), state_[out->id].roots.end());
        s.many |= state_[out->id].many;
      }
      if (!inlined_user) s.roots.insert(user->id);
      for (int arg = 0; arg < static_cast<int>(user->inputs.size()); ++arg) {
        if (user->inputs[arg] != t) continue;
        const Use use = UseOf(*user, arg);
        memory |= use == Use::kMemory;
        s.many |= use == Use::kMany || (HasElement(*user) && user->outputs[0]->size() > t->size());
      }
    }
    s.dead = !used;
    if (s.dead) return;
    if (node->op == "reshape" && node->user_kernel == nullptr) {
      const bool same_indices = WithoutOnes(node->in(0).shape) == WithoutOnes(t->shape);
      if (memory || !same_indices || node->in(0).producer == nullptr || s.roots.size() != 1) {
        t->alias_of = node->inputs[0];
        return;
      }
    }
    if (memory || !HasElement(*node)) return;
    t->inlined = s.cost <= kCheap || (s.roots.size() == 1 && !s.many && s.size <= kMaxExpression);
  }

  // Follows pointwise operators of the root's shape up to kernels that could take them as their tail.
  void CollectTail(const Tensor& root, Node* node, std::set<Node*>* region, std::set<Tensor*>* anchors) {
    if (!region->insert(node).second) return;
    for (Tensor* in : node->inputs) {
      if (in->shape != root.shape || in->producer == nullptr) continue;
      if (in->inlined && IsPointwise(*in->producer) && state_[in->id].roots.size() == 1) {
        CollectTail(root, in->producer, region, anchors);
      } else if (!in->inlined && in->alias_of == nullptr && !in->is_result && !HasElement(*in->producer) &&
                 in->producer->user_kernel == nullptr && in->producer->outputs.size() == 1) {
        anchors->insert(in);
      }
    }
  }

  // Each pointwise operator with memory goes into the last kernel that feeds it, where nobody else reads that one.
  void FoldTails() {
    tail_of_.resize(graph_.nodes.size());
    anchor_of_.resize(graph_.nodes.size());
    for (const auto& node : graph_.nodes) {
      Tensor* root = node->outputs[0];
      if (!IsLive(*node) || root->inlined || root->alias_of != nullptr || !IsPointwise(*node)) continue;
      std::set<Node*> region;
      std::set<Tensor*> anchors;
      CollectTail(*root, node.get(), &region, &anchors);
      Tensor* best = nullptr;
      for (Tensor* anchor : anchors) {
        bool inside = tail_of_[anchor->producer->id] == nullptr;
        for (Node* user : anchor->users) inside &= region.count(user) > 0 || !IsLive(*user);
        if (inside && (best == nullptr || anchor->producer->id > best->producer->id)) best = anchor;
      }
      if (best == nullptr) continue;
      best->inlined = true;  // its value goes into the tail and nowhere else
      tail_of_[best->producer->id] = root;
      anchor_of_[node->id] = best;
    }
  }

  void CollectReads(const Node& node, const Tensor* provided, std::set<int>* seen, std::set<const Tensor*>* reads) {
    if (!seen->insert(node.id).second) return;
    for (const Tensor* in : node.inputs) {
      if (in == provided) continue;
      const Tensor* base = in->Base();
      if (base->inlined) {
        CollectReads(*base->producer, provided, seen, reads);
      } else {
        reads->insert(base);
      }
    }
  }

  // A kernel with a tail runs where the tail stands: everything else that the tail reads is there by then.
  std::vector<Kernel> MakeKernels() {
    std::vector<Kernel> kernels;
    for (const auto& node : graph_.nodes) {
      if (!IsLive(*node) || tail_of_[node->id] != nullptr) continue;
      std::set<int> seen;
      std::set<const Tensor*> reads;
      const Tensor* anchor = anchor_of_[node->id];
      CollectReads(*node, anchor, &seen, &reads);
      if (anchor != nullptr) {
        CollectReads(*anchor->producer, anchor, &seen, &reads);
        kernels.push_back({anchor->producer, 0, node->outputs[0], {reads.begin(), reads.end()}, {node->outputs[0]}});
      } else if (HasElement(*node)) {
        for (int i = 0; i < static_cast<int>(node->outputs.size()); ++i) {
          const Tensor* out = node->outputs[i];
          if (out->inlined || out->alias_of != nullptr || state_[out->id].dead) continue;
          kernels.push_back({node.get(), i, nullptr, {reads.begin(), reads.end()}, {out}});
        }
      } else {
        Kernel kernel{node.get(), 0, nullptr, {reads.begin(), reads.end()}, {}};
        for (const Tensor* out : node->outputs) kernel.writes.push_back(out);
        kernels.push_back(std::move(kernel));
      }
    }
    // By id, not by address: the source must not depend on where the graph lies.
    auto by_id = [](const Tensor* a, const Tensor* b) { return a->id < b->id; };
    for (Kernel& kernel : kernels) std::sort(kernel.reads.begin(), kernel.reads.end(), by_id);
    return kernels;
  }

  Graph& graph_;
  std::vector<State> state_;
  std::vector<Tensor*> tail_of_;    // by the node that computes: the end of its tail
  std::vector<Tensor*> anchor_of_;  // by the node that ends a tail: the kernel's own output
};

}  // namespace

std::vector<Kernel> PlanKernels(Graph* graph) { return Planner(graph).Run(); }

}  // namespace inlay::csource
