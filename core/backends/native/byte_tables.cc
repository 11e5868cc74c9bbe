// FunctionEmitter's tables of bytes: between quantised tensors an activation is a function of 256 numbers. _init
// computes it for each of them, by the code that would have done so for every element.
#include <functional>
#include <optional>
#include <set>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {

using mlir::Value;

namespace {

constexpr int kLeastCost = 10;  // of operators, in cycles of a vector
constexpr int64_t kBytes = 256, kLanes = 16;

bool IsByte(const Tensor& t) { return t.dtype == ir::DType::kI8 || t.dtype == ir::DType::kU8; }
bool IsNumber(const Tensor& t) { return t.literal != nullptr && t.Elements() == Extent(1); }

}  // namespace

const FunctionEmitter::ByteTable* FunctionEmitter::FindByteTable(const Tensor& bytes) const {
  auto found = byte_tables_.find(&bytes);
  return found == byte_tables_.end() ? nullptr : &found->second;
}

// Of operators that make `bytes` of one tensor of bytes of the same shape, and of nothing else; none: there is no such
// tensor.
std::optional<FunctionEmitter::ByteChain> FunctionEmitter::ChainOfBytes(const Tensor& bytes) {
  ByteChain chain;
  auto begins_at = [&](const Tensor& source) {
    if ((chain.source != nullptr && chain.source != &source) || source.dims != bytes.dims) return false;
    chain.source = &source;
    return true;
  };
  std::function<bool(const Tensor&)> computes = [&](const Tensor& made) {
    const Lowering* lowering = made.producer == nullptr ? nullptr : FindLowering(made.producer->op);
    if (lowering == nullptr || !lowering->pointwise) return false;
    chain.cost += lowering->cost;
    for (const Tensor* t : made.producer->inputs) {
      if (IsNumber(*t) || !chain.tensors.insert(t).second) continue;
      if (IsByte(*t)) {
        // Bytes between the two ends, or else that one.
        const std::optional<ByteChain> before = t->inlined ? ChainOfBytes(*t) : std::nullopt;
        if (before) {
          chain.cost += before->cost;
          chain.tensors.insert(before->tensors.begin(), before->tensors.end());
        }
        if (!begins_at(before ? *before->source : *t)) return false;
      } else if (!t->inlined || !computes(*t)) {
        return false;
      }
    }
    return true;
  };
  if (!computes(bytes) || chain.source == nullptr) return std::nullopt;
  return chain;
}

void FunctionEmitter::MakeByteTables() {
  if (!cpu_.byte_tables) return;
  std::set<const Tensor*> within;  // of chains that have a table
  for (auto it = graph_->nodes.rbegin(); it != graph_->nodes.rend(); ++it) {
    const Node* node = it->get();
    if (node->op != "cast" || !IsByte(node->out()) || node->out().IsEmpty()) continue;
    const Tensor& bytes = node->out();
    const bool only_within = within.count(&bytes) > 0 && bytes.inlined && bytes.users.size() == 1;
    const std::optional<ByteChain> chain = only_within ? std::nullopt : ChainOfBytes(bytes);
    if (!chain || chain->cost < kLeastCost) continue;
    within.insert(chain->tensors.begin(), chain->tensors.end());
    const ByteTable table{chain->source, State(kBytes)};
    Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          Ops& o = k.o;
          const mlir::Type byte = o.b.getI8Type();
          o.For(o.Int(0), o.Int(kBytes), kLanes, [&](Value first) {
            Eval e(k, kLanes);
            const Value lanes = o.TruncateI(o.Iota(kLanes, 1), byte);
            e.Provide(*table.source, o.AddI(o.Broadcast(o.TruncateI(first, byte), kLanes), lanes));
            const Indices at(bytes.rank(), Index(o.Int(0)));
            o.Store(FindLowering("cast")->element(e, *node, 0, at), o.At(k.Pointer(table.values), first, byte));
          });
        },
        Phase::kInit);
    byte_tables_[&bytes] = table;
  }
}

}  // namespace inlay::native
