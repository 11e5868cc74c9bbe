// FunctionEmitter's tables of bytes: between quantised tensors an activation is a function of 256 numbers. _init
// computes it for each of them, by the code that would have done so for every element.
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

// The tensor of bytes, of the same shape, that alone decides what `bytes` is; null: there is none, or it is itself.
const Tensor* FunctionEmitter::SourceOfBytes(const Tensor& bytes, int* cost) const {
  const Tensor* source = nullptr;
  std::set<const Tensor*> seen;
  std::function<bool(const Tensor&)> visit = [&](const Tensor& t) {
    if (IsNumber(t) || !seen.insert(&t).second) return true;
    int before = 0;
    const Tensor* known = &t != &bytes && IsByte(t) && t.inlined ? SourceOfBytes(t, &before) : nullptr;
    if (known != nullptr || (&t != &bytes && IsByte(t))) {
      const Tensor& leaf = known != nullptr ? *known : t;
      *cost += before;
      if ((source != nullptr && source != &leaf) || leaf.dims != bytes.dims) return false;
      source = &leaf;
      return true;
    }
    if (t.producer == nullptr || (&t != &bytes && !t.inlined)) return false;
    const Lowering* lowering = FindLowering(t.producer->op);
    if (lowering == nullptr || !lowering->pointwise) return false;
    *cost += lowering->cost;
    for (const Tensor* in : t.producer->inputs) {
      if (!visit(*in)) return false;
    }
    return true;
  };
  return visit(bytes) ? source : nullptr;
}

void FunctionEmitter::MakeByteTables() {
  if (!cpu_.byte_tables) return;
  for (const auto& node : graph_->nodes) {
    if (node->op != "cast" || !IsByte(node->out()) || node->out().IsEmpty()) continue;
    const Tensor& bytes = node->out();
    int cost = 0;
    const Tensor* source = SourceOfBytes(bytes, &cost);
    if (source == nullptr || cost < kLeastCost) continue;
    const ByteTable table{source, State(kBytes)};
    Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          Ops& o = k.o;
          const mlir::Type byte = o.b.getI8Type();
          o.For(o.Int(0), o.Int(kBytes), kLanes, [&](Value first) {
            Eval e(k, kLanes);
            const Value lanes = o.TruncateI(o.Iota(kLanes, 1), byte);
            e.Provide(*source, o.AddI(o.Broadcast(o.TruncateI(first, byte), kLanes), lanes));
            const Indices at(bytes.rank(), Index(o.Int(0)));
            o.Store(FindLowering("cast")->element(e, *node, 0, at), o.At(k.Pointer(table.values), first, byte));
          });
        },
        Phase::kInit);
    byte_tables_[&bytes] = table;
  }
}

}  // namespace inlay::native
