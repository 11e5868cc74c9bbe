#include "core/backends/native/composites.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/backends/native/attention_pattern.h"
#include "core/backends/native/channels_last.h"
#include "core/backends/native/depthwise_tokens.h"

namespace inlay::native {
namespace {

constexpr int64_t kMaxPlanes = 16;  // in turns along a row; code is emitted for each

std::unordered_set<const ir::Var*> ConstantsOf(const ir::Function& function, const Graph& graph) {
  std::unordered_set<const ir::Var*> constants;
  for (size_t i = 0; i < function.params.size(); ++i) {
    if (graph.param_is_constant[i]) constants.insert(function.params[i].get());
  }
  return constants;
}

class Folder {
 public:
  Folder(const ir::Function& function, const CpuFeatures& cpu, Graph* graph)
      : cpu_(cpu), graph_(*graph), def_use_(function.body, ConstantsOf(function, *graph)) {
    for (const auto& node : graph_.nodes) by_binding_[node->binding] = node.get();
  }

  void Run() {
    for (Node* node : NodesOf("matmul")) FoldAttention(node);
    for (Node* node : NodesOf("transpose")) FoldDepthwiseTokens(node);
    for (const char* conv : {"conv_integer", "conv"}) {
      for (Node* node : NodesOf(conv)) FoldWordPixels(node);
    }
    for (Node* node : NodesOf("max_pool")) FoldChannelsLast(node, kPoolPixels, {"pool"}, /*of_image=*/true);
    for (Node* node : NodesOf("transpose")) FoldDepthToSpace(node);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) graph_.nodes[i]->id = static_cast<int>(i);
  }

 private:
  std::vector<Node*> NodesOf(absl::string_view op) const {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes) {
      if (node->op == op) nodes.push_back(node.get());
    }
    return nodes;
  }

  void FoldAttention(Node* context) {
    ir::PatternMatch match;
    if (!ir::Match(AttentionCore(), *context->binding, def_use_, &match) || !CheckAttention(match).ok()) return;
    std::set<Node*> inside;
    for (const ir::Binding* binding : match.bindings) inside.insert(by_binding_.at(binding));
    auto part = [&](const char* name) -> Node* {
      const ir::Binding* binding = match.Find(name);
      return binding == nullptr ? nullptr : by_binding_.at(binding);
    };
    Node *scores = part("scores"), *k_scaled = part("k_scaled");
    auto composite = std::make_unique<Node>();
    composite->op = kAttention;
    composite->binding = context->binding;
    composite->attrs = context->attrs;
    composite->parts = {{"scores", scores}, {"softmax", part("softmax")}, {"context", context}};
    composite->inputs = {scores->inputs[0], scores->inputs[1], context->inputs[1]};
    if (k_scaled != nullptr) {
      composite->parts["k_scaled"] = k_scaled;
      composite->inputs[1] = k_scaled->inputs[0];
      composite->inputs.push_back(k_scaled->inputs[1]);
    }
    for (const auto& node : graph_.nodes) {  // in order, so that equal partitions become equal code
      if (inside.count(node.get()) == 0 || node.get() == scores || node.get() == context || node.get() == k_scaled) {
        continue;
      }
      for (Tensor* in : node->inputs) {
        if (inside.count(in->producer) > 0) continue;
        auto& inputs = composite->inputs;
        if (std::find(inputs.begin() + 3, inputs.end(), in) == inputs.end()) inputs.push_back(in);
      }
    }
    for (int operand : {1, 2}) ReadNarrow(&composite->inputs[operand], &inside);
    composite->outputs = context->outputs;
    if (Node* transpose = TransposeBehind(*context)) {
      composite->parts["transpose"] = transpose;
      composite->outputs = transpose->outputs;
      inside.insert(transpose);
    }
    Replace(inside, std::move(composite));
  }

  // What is made f32 of 16 bits, and moved since, for `operand` alone: moved as it is. The cast goes to `inside`.
  static void ReadNarrow(Tensor** operand, std::set<Node*>* inside) {
    auto for_this_alone = [](const Tensor* t) {
      return t->producer != nullptr && !t->is_result && t->users.size() == 1;
    };
    std::vector<Tensor*> moved;
    Tensor* wide = *operand;
    const std::set<std::string> moves = {"transpose", "reshape", "slice", "expand"};
    while (for_this_alone(wide) && moves.count(wide->producer->op) > 0) {
      moved.push_back(wide);
      wide = wide->producer->inputs[0];
    }
    if (!for_this_alone(wide) || wide->producer->op != "cast") return;
    Node* cast = wide->producer;
    Tensor* narrow = cast->inputs[0];
    if (!IsWidening(narrow->type, wide->type)) return;
    for (Tensor* t : moved) t->dtype = t->type.dtype = narrow->dtype;
    if (moved.empty()) {
      *operand = narrow;
    } else {
      Node* first = moved.back()->producer;
      first->inputs[0] = narrow;
      narrow->users.push_back(first);
    }
    wide->users.clear();
    inside->insert(cast);
  }

  // Heads moved back behind the positions; not one that would scatter what the kernel stores as vectors.
  static Node* TransposeBehind(const Node& context) {
    Node* transpose = OnlyUser(context, "transpose");
    const bool keeps_rows = transpose != nullptr && transpose->attrs->Ints("perm").back() == context.out().rank() - 1;
    return keeps_rows ? transpose : nullptr;
  }

  void FoldDepthwiseTokens(Node* to_last) {
    ir::PatternMatch match;
    if (!ir::Match(DepthwiseTokens(), *to_last->binding, def_use_, &match) || !CheckDepthwiseTokens(match).ok()) return;
    std::set<Node*> inside;
    for (const ir::Binding* binding : match.bindings) inside.insert(by_binding_.at(binding));
    Node* conv = by_binding_.at(match.Find("conv"));
    auto composite = std::make_unique<Node>();
    composite->op = kDepthwiseTokens;
    composite->binding = conv->binding;
    composite->attrs = conv->attrs;
    composite->parts = {{"conv", conv}, {"last", conv}};
    for (const ir::Binding* binding : match.bindings) {
      if (binding->IsCall("reshape") || binding->IsCall("transpose")) continue;
      composite->parts["last"] = by_binding_.at(binding);
    }
    composite->inputs = conv->inputs;
    composite->inputs[0] = by_binding_.at(match.Find("to_first"))->inputs[0];
    composite->outputs = to_last->outputs;
    Replace(inside, std::move(composite));
  }

  void FoldWordPixels(Node* conv) {
    if (!HasChannelsLastKernel(*conv->binding, cpu_) || !def_use_.IsConstant(conv->binding->args[1])) return;
    if (conv->attrs->IntOr("groups", 1) > 1) return FoldChannelsLast(conv, kDepthwiseTokens, {"conv", "last"}, true);
    FoldChannelsLast(conv, kWordPixels, {"conv"}, HasWordsOfChannels(*conv->binding));
  }

  // `node` with the transposes around it, as all of `parts`; `of_image`: the one in front too.
  void FoldChannelsLast(Node* node, const char* op, const std::vector<std::string>& parts, bool of_image) {
    Node* to_last = OnlyUser(*node, "transpose");
    if (to_last == nullptr || to_last->attrs->Ints("perm") != ToLast(node->out().rank())) return;
    std::set<Node*> inside = {node, to_last};
    auto composite = std::make_unique<Node>();
    composite->op = op;
    composite->binding = node->binding;
    composite->attrs = node->attrs;
    for (const std::string& part : parts) composite->parts[part] = node;
    composite->inputs = node->inputs;
    composite->outputs = to_last->outputs;
    if (of_image) {
      Node* to_first = node->in(0).producer;
      if (to_first == nullptr || to_first->op != "transpose") return;
      if (to_first->attrs->Ints("perm") != ToFirst(node->in(0).rank())) return;
      composite->inputs[0] = to_first->inputs[0];
      if (OnlyUser(*to_first, node->op) != nullptr) inside.insert(to_first);
    }
    Replace(inside, std::move(composite));
  }

  void FoldDepthToSpace(Node* transpose) {
    Node* reshape = OnlyUser(*transpose, "reshape");
    if (reshape == nullptr || !InterleavesRows(*transpose, *reshape)) return;
    std::set<Node*> inside = {transpose, reshape};
    auto composite = std::make_unique<Node>();
    composite->op = kDepthToSpace;
    composite->binding = reshape->binding;
    composite->attrs = reshape->attrs;
    composite->parts = {{"transpose", transpose}, {"reshape", reshape}};
    composite->inputs = {transpose->inputs[0]};
    composite->outputs = reshape->outputs;
    if (Node* slice = OnlyUser(*reshape, "slice"); slice != nullptr && LeavesRows(*slice, *transpose)) {
      composite->parts["slice"] = slice;
      composite->outputs = slice->outputs;
      inside.insert(slice);
    }
    Replace(inside, std::move(composite));
  }

  static Node* OnlyUser(const Node& node, absl::string_view op) {
    const Tensor& out = node.out();
    return !out.is_result && out.users.size() == 1 && out.users[0]->op == op ? out.users[0] : nullptr;
  }

  // [.., s, .., w] to [.., w, s], and that to [.., w * s].
  static bool InterleavesRows(const Node& transpose, const Node& reshape) {
    const Tensor &x = transpose.in(0), &moved = transpose.out(), &out = reshape.out();
    const int rank = x.rank();
    if (rank < 2 || x.IsEmpty() || x.dtype == ir::DType::kBool || out.rank() == 0) return false;
    const std::vector<int64_t>& perm = transpose.attrs->Ints("perm");
    const Extent &width = moved.dims[rank - 2], &planes = moved.dims[rank - 1];
    if (perm[rank - 2] != rank - 1 || width == Extent(1) || !planes.is_static()) return false;
    std::vector<int> part_of;
    return planes.value() > 1 && planes.value() <= kMaxPlanes && out.dims.back() == width * planes &&
           SplitsDims(out.dims, moved.dims, &part_of);
  }

  // A stretch of each row, in which every plane has its turn.
  static bool LeavesRows(const Node& slice, const Node& transpose) {
    const std::vector<int64_t> steps = slice.attrs->IntsOr("steps", {});
    if (slice.out().IsEmpty() || std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s != 1; }))
      return false;
    const Extent &width = slice.out().dims.back(), &planes = transpose.out().dims.back();
    if (slice.in(0).is_static()) return width.value() >= planes.value();
    // Whole turns, counted from the begin.
    const std::vector<int64_t>& begins = slice.attrs->Ints("begins");
    return width.IsMultipleOf(planes.value()) && *std::min_element(begins.begin(), begins.end()) >= 0;
  }

  void Replace(const std::set<Node*>& inside, std::unique_ptr<Node> composite) {
    for (Node* node : inside) {
      for (Tensor* in : node->inputs) {
        auto gone = std::remove(in->users.begin(), in->users.end(), node);
        in->users.erase(gone, in->users.end());
      }
      for (Tensor* out : node->outputs) out->inlined = true;
    }
    for (Tensor* in : composite->inputs) in->users.push_back(composite.get());
    for (Tensor* out : composite->outputs) {
      out->producer = composite.get();
      out->inlined = false;
    }
    // In the place of the last: everything that it reads is there by then.
    std::vector<std::unique_ptr<Node>> kept;
    size_t left = inside.size();
    for (auto& node : graph_.nodes) {
      if (inside.count(node.get()) == 0) {
        kept.push_back(std::move(node));
        continue;
      }
      graph_.folded.push_back(std::move(node));
      if (--left == 0) kept.push_back(std::move(composite));
    }
    graph_.nodes = std::move(kept);
  }

  const CpuFeatures& cpu_;
  Graph& graph_;
  ir::DefUse def_use_;
  std::unordered_map<const ir::Binding*, Node*> by_binding_;
};

}  // namespace

void FoldComposites(const ir::Function& function, const CpuFeatures& cpu, Graph* graph) {
  Folder(function, cpu, graph).Run();
}

}  // namespace inlay::native
