#include "core/backends/native/lowerings/attention_parts.h"

#include <algorithm>

#include "core/backends/native/loops.h"

namespace inlay::native {
namespace {

using mlir::Value;

// The heads that read the same keys and values one after the other are rows of one: takes their axes from the end of
// `batch`, and from k's and v's.
Shape TakeGroup(Shape* batch, Matrices* k, Matrices* v) {
  Shape group;
  auto is_shared = [](const Matrices& m) { return m.batch.empty() || m.batch.back() == Extent(1); };
  while (!batch->empty() && is_shared(*k) && is_shared(*v)) {
    group.insert(group.begin(), batch->back());
    batch->pop_back();
    k->DropBatches(1);
    v->DropBatches(1);
  }
  return group;
}

Shape BatchOf(const Node& n) {
  const Shape& scores = n.parts.at("scores")->out().dims;
  return Shape(scores.begin(), scores.end() - 2);
}

}  // namespace

AttentionParts::AttentionParts(FunctionEmitter& f, const Node& n, Matrices keys_of, Matrices values_of)
    : f(f),
      n(n),
      types(f, n.in(0).dtype),
      key_types(f, n.in(1).dtype),
      value_types(f, n.in(2).dtype),
      k(std::move(keys_of)),
      v(std::move(values_of)),
      batch(BatchOf(n)),
      rows(TakeGroup(&batch, &k, &v)),
      head_size(n.in(0).dims.back().value()),
      keys(n.parts.at("scores")->out().dims.back()) {
  const Tensor& scores = n.parts.at("scores")->out();
  rows.push_back(scores.dims[scores.rank() - 2]);
}

StridedMatrix AttentionParts::MatrixOf(Kernel& kernel, const Matrices& m, const GemmTypes& of, Value head) const {
  mlir::Type stored = of.Stored(kernel.o);
  Value from = m.Pointer(kernel, stored);
  if (BatchOffset offset = m.OffsetOf(f, batch, m.batch_strides)) {
    from = kernel.o.At(from, offset(kernel.o, head), stored);
  }
  return {from, stored, m.row_stride, m.column_stride};
}

Indices AttentionParts::AtRow(Kernel& kernel, const Indices& at, Value row) const {
  Indices result = at;
  for (const Index& i : Delinearise(kernel.o, row, rows)) result.push_back(i);
  return result;
}

void AttentionParts::CopyQ(Kernel& kernel, const Indices& at, Value first, Value count, Value to, ir::DType stored,
                           int64_t stride) const {
  Ops& o = kernel.o;
  const Tensor& q = n.in(0);
  const int64_t lanes =
      std::min(f.LanesFor(f.Expression(q), head_size), f.LanesForBytes(types.accumulator_bytes, head_size));
  o.For(o.Int(0), count, 1, [&](Value r) {
    Value line = o.At(to, o.Mul(r, stride), o.StoredType(stored));
    VectorLoop(o, {head_size}, lanes, {}, [&](const VectorPoint& p, const native::Values&) {
      Eval e(kernel, lanes);
      Indices from = AtRow(kernel, at, o.Add(first, r));
      from.push_back(p.at[0]);
      Value value = e.At(q, e.BroadcastTo(q, from));
      if (n.parts.count("k_scaled") > 0) {
        Value scale = e.At(n.in(3), Indices(n.in(3).rank(), e.Constant(0)));
        value = n.parts.at("k_scaled")->op == "div" ? o.DivF(value, scale) : o.MulF(value, scale);
      }
      o.StoreElements(stored, value, line, p.linear);
      return native::Values{};
    });
    if (stride > head_size) {
      o.ZeroBytes(o.At(line, head_size, o.StoredType(stored)), (stride - head_size) * ir::ByteSize(stored));
    }
  });
}

void AttentionParts::StoreContext(Kernel& kernel, const Indices& at, Value row, Value column, Value sums) const {
  Indices here = AtRow(kernel, at, row);
  here.push_back(Index(column, Ops::Lanes(sums) == 1 ? 0 : 1));
  if (auto transpose = n.parts.find("transpose"); transpose != n.parts.end()) {
    Indices moved;
    for (int64_t axis : transpose->second->attrs->Ints("perm")) moved.push_back(here[axis]);
    here = moved;
  }
  kernel.StoreResult(n.out(), here, sums);
}

ScoreRows AttentionParts::MakeScoreRows() const {
  ScoreRows s;
  s.raw = &n.parts.at("scores")->out();
  s.scores = &n.parts.at("softmax")->in(0);
  s.weights = &n.parts.at("softmax")->out();
  s.result = &n.parts.at("context")->in(0);
  s.accumulator = types.accumulator_dtype;
  s.rows = rows;
  s.extent = keys;
  return s;
}

}  // namespace inlay::native
