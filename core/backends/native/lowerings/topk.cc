// The k largest (smallest) elements along an axis, with their indices.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

// A heap of k pairs (value, index) in scratch whose root is the worst kept. Each element of the row that beats the root
// replaces it; then the heap is taken apart from the back, which leaves it sorted, best first: O(n log k), and k
// memory. Most elements of a long row beat nothing: they are passed over a vector at a time.
struct TopK {
  Kernel& k;
  const Node& n;
  bool largest;
  Value values, indices;  // pointers

  Ops& o() const { return k.o; }
  DType dtype() const { return n.in(0).dtype; }
  // In registers' form would lose nothing, but memory holds what the tensor holds.
  Value ValueAt(Value i) const { return k.o.LoadElements(dtype(), values, i, 1); }
  Value IndexAt(Value i) const { return k.o.LoadElements(DType::kI64, indices, i, 1); }
  void Set(Value i, Value v, Value index) const {
    k.o.StoreElements(dtype(), v, values, i);
    k.o.StoreElements(DType::kI64, index, indices, i);
  }

  // Whether (v, i) comes before (w, j): NaN counts as largest; of equals the lower index first.
  Value Before(Value v, Value i, Value w, Value j) const {
    Ops& ops = k.o;
    DType d = dtype() == DType::kBool ? DType::kU8 : dtype();
    Value x = v, y = w;
    if (dtype() == DType::kBool) {
      x = ops.ExtendI(v, ops.b.getI8Type(), false);
      y = ops.ExtendI(w, ops.b.getI8Type(), false);
    }
    Value better = ops.CompareN(largest ? Compare::kGt : Compare::kLt, d, x, y);
    Value worse = ops.CompareN(largest ? Compare::kLt : Compare::kGt, d, x, y);
    if (ir::IsFloat(d)) {
      Value v_nan = ops.IsNan(v), w_nan = ops.IsNan(w);
      Value v_only = ops.And(v_nan, ops.Not(w_nan)), w_only = ops.And(w_nan, ops.Not(v_nan));
      better = ops.Or(better, largest ? v_only : w_only);
      worse = ops.Or(worse, largest ? w_only : v_only);
    }
    return ops.Or(better, ops.And(ops.Not(worse), ops.CompareI(Compare::kLt, i, j, true)));
  }

  // Whether a lane of v may come before the root, behind which all of v lie in the row.
  Value MayEnter(Value v) const {
    Ops& ops = k.o;
    Value root = ops.Broadcast(ValueAt(ops.Int(0)), Ops::Lanes(v));
    Value beaten = ops.CompareN(largest ? Compare::kLe : Compare::kGe, dtype(), v, root);  // no NaN is
    return ops.ReduceLanes(ops.Not(beaten), [&](Value x, Value y) { return ops.Or(x, y); });
  }

  // Puts (v, i) in at the root of a heap of `size` and lets it sink: worse ones stay above.
  void SiftDown(Value size, Value v, Value index) const {
    Ops& ops = k.o;
    Value one = ops.Int(1), two = ops.Int(2);
    // State: position, whether to go on.
    Values end = ops.While(
        {ops.Int(0), ops.ConstI(ops.b.getI1Type(), 1)}, [&](const Values& s) { return s[1]; },
        [&](const Values& s) {
          Value left = ops.Add(ops.MulI(s[0], two), one);
          Value right = ops.Add(left, one);
          Value has_left = ops.Less(left, size);
          return ops.IfElse(
              has_left, {ops.b.getI64Type(), ops.b.getI1Type()},
              [&] {
                Value safe_right = ops.Select(ops.Less(right, size), right, left);
                Value lv = ValueAt(left), li = IndexAt(left), rv = ValueAt(safe_right), ri = IndexAt(safe_right);
                Value left_worse = Before(rv, ri, lv, li);
                Value child = ops.Select(left_worse, left, safe_right);
                Value cv = ValueAt(child), ci = IndexAt(child);
                Value child_worse = Before(v, index, cv, ci);
                return ops.IfElse(
                    child_worse, {ops.b.getI64Type(), ops.b.getI1Type()},
                    [&] {
                      Set(s[0], cv, ci);
                      return Values{child, ops.ConstI(ops.b.getI1Type(), 1)};
                    },
                    [&] { return Values{s[0], ops.ConstI(ops.b.getI1Type(), 0)}; });
              },
              [&] { return Values{s[0], ops.ConstI(ops.b.getI1Type(), 0)}; });
        });
    Set(end[0], v, index);
  }
};

// Where heaps of `count` lie: one on a task's stack where it is known to have room there, else one for each row in
// memory of the call.
class HeapMemory {
 public:
  HeapMemory(FunctionEmitter& f, const Extent& rows, const Extent& count, int64_t value_bytes)
      : count_(count), value_bytes_(value_bytes) {
    on_stack_ = count.is_static() && count.value() <= Kernel::kMaxStackBytes / (value_bytes + kIndexBytes);
    if (on_stack_) return;
    values_ = f.Temporary(rows * count * Extent(value_bytes));
    indices_ = f.Temporary(rows * count * Extent(kIndexBytes));
  }

  // Emit at the kernel's start.
  struct Task {
    Value values, indices;
  };
  Task Of(Kernel& k) const {
    if (!on_stack_) return {k.Pointer(values_), k.Pointer(indices_)};
    return {k.Scratch(count_.value() * value_bytes_), k.Scratch(count_.value() * kIndexBytes)};
  }
  Task OfRow(Ops& o, const Task& task, Value row) const {
    if (on_stack_) return task;
    auto at = [&](Value base, int64_t bytes) { return o.At(base, o.Mul(o.Mul(row, count_), bytes), o.b.getI8Type()); };
    return {at(task.values, value_bytes_), at(task.indices, kIndexBytes)};
  }

 private:
  static constexpr int64_t kIndexBytes = 8;
  Extent count_;
  int64_t value_bytes_;
  bool on_stack_;
  Buffer values_, indices_;
};

// `lanes`: of vectors along the axis; 1, unless that is the last.
void EmitTopK(FunctionEmitter& f, const Node& n, int64_t axis, int64_t lanes, int cost) {
  const Tensor &x = n.in(0), &out = n.out(0);
  const Extent extent = x.dims[axis], count = out.dims[axis];
  Shape others = x.dims;
  others.erase(others.begin() + axis);
  const HeapMemory memory(f, Product(others), count, ir::ByteSize(x.dtype));
  f.Parallel(Product(others), Cycles(extent) * (cost + 10.0) / lanes, [&](Kernel& k, Value begin, Value end) {
    Ops& o = k.o;
    const HeapMemory::Task heaps = memory.Of(k);
    o.For(begin, end, 1, [&](Value item) {
      const HeapMemory::Task mine = memory.OfRow(o, heaps, item);
      TopK heap{k, n, n.attrs->BoolOr("largest", true), mine.values, mine.indices};
      Indices at = Delinearise(o, item, others);
      auto place = [&](const Index& i) {
        Indices where = at;
        where.insert(where.begin() + axis, i);
        return where;
      };
      auto elements = [&](Value i, int64_t lanes) {
        Eval e(k, lanes);
        return e.At(x, place(Index(i, lanes == 1 ? 0 : 1)));
      };
      // The first k, each sifted up from the end.
      o.For(o.Int(0), o.Int(count), 1, [&](Value i) {
        Value v = elements(i, 1);
        Values hole = o.While(
            {i},
            [&](const Values& s) {
              Value parent = o.Div(o.Max(o.Add(s[0], -1), o.Int(0)), 2);
              Value parent_better = heap.Before(heap.ValueAt(parent), heap.IndexAt(parent), v, i);
              return o.And(o.Less(o.Int(0), s[0]), parent_better);
            },
            [&](const Values& s) {
              Value parent = o.Div(o.Add(s[0], -1), 2);
              heap.Set(s[0], heap.ValueAt(parent), heap.IndexAt(parent));
              return Values{parent};
            });
        heap.Set(hole[0], v, i);
      });
      auto enter = [&](Value first, Value last) {
        o.For(first, last, 1, [&](Value i) {
          Value v = elements(i, 1);
          auto enters = [&] { return heap.Before(v, i, heap.ValueAt(o.Int(0)), heap.IndexAt(o.Int(0))); };
          o.If(heap.MayEnter(v), [&] { o.If(enters(), [&] { heap.SiftDown(o.Int(count), v, i); }); });
        });
      };
      if (extent != count) {
        const Extent vectors_end = lanes == 1 ? count : extent - (extent - count) % lanes;
        o.For(o.Int(count), o.Int(vectors_end), lanes,
              [&](Value i) { o.If(heap.MayEnter(elements(i, lanes)), [&] { enter(i, o.Add(i, lanes)); }); });
        enter(o.Int(vectors_end), o.Int(extent));
      }
      o.For(o.Int(0), o.Int(count), 1, [&](Value taken) {
        Value last = o.Sub(o.Int(count - 1), taken);
        Value root = heap.ValueAt(o.Int(0)), root_index = heap.IndexAt(o.Int(0));
        k.StoreElement(out, place(last), root);
        k.StoreElement(n.out(1), place(last), root_index);
        heap.SiftDown(last, heap.ValueAt(last), heap.IndexAt(last));
      });
    });
  });
}

absl::Status TopKKernel(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &out = n.out(0);
  int64_t axis = n.attrs->IntOr("axis", -1);
  if (axis < 0) axis += x.rank();
  if (out.IsEmpty()) return absl::OkStatus();
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  const Extent passed = x.dims[axis] - out.dims[axis];
  const bool in_vectors = axis == x.rank() - 1 && x.dtype != DType::kBool;
  f.WithLanesOrScalar(passed, in_vectors ? f.LanesFor(tensors, passed) : 1, cost,
                      [&](int64_t lanes) { EmitTopK(f, n, axis, lanes, cost); });
  return absl::OkStatus();
}

}  // namespace

void RegisterTopK(LoweringTable* table) {
  Lowering& topk = (*table)["topk"];
  topk.cost = 100;
  topk.kernel = TopKKernel;
}

}  // namespace inlay::native
