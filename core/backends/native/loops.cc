#include "core/backends/native/loops.h"

#include "core/backends/native/graph.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Value;

Values LoopNest(Ops& o, const Shape& shape, const Values& init,
                const std::function<Values(const Indices&, const Values&)>& body) {
  std::function<Values(size_t, Indices, const Values&)> nest = [&](size_t d, Indices at,
                                                                   const Values& carried) -> Values {
    if (d == shape.size()) return body(at, carried);
    return o.For(o.Int(0), o.Int(shape[d]), 1, carried, [&](Value i, const Values& inner) {
      Indices next = at;
      next.push_back(i);
      return nest(d + 1, next, inner);
    });
  };
  return nest(0, {}, init);
}

static Value MaskOf(Ops& o, int64_t lanes, int64_t begin, int64_t end) {
  if (lanes == 1) return o.ConstI(o.b.getI1Type(), begin <= 0 && end > 0);
  llvm::SmallVector<bool> bits;
  for (int64_t i = 0; i < lanes; ++i) bits.push_back(i >= begin && i < end);
  auto type = mlir::VectorType::get({lanes}, o.b.getI1Type());
  return o.b.create<mlir::arith::ConstantOp>(o.loc, mlir::DenseElementsAttr::get(type, bits));
}
Value LastLanes(Ops& o, int64_t lanes, const Extent& count) {
  if (count.is_static()) return MaskOf(o, lanes, lanes - count.value(), lanes);
  return o.LaneMask(lanes, o.Sub(o.Int(lanes), o.Int(count)), o.Int(lanes));
}
Value FirstLanes(Ops& o, int64_t lanes, int64_t count) { return MaskOf(o, lanes, 0, count); }

Value NumberLike(Ops& o, Value like, const Extent& extent) {
  if (extent.is_static()) return o.Const(like.getType(), static_cast<double>(extent.value()));
  mlir::Type element = Ops::WithLanes(like.getType(), 1);
  Value value = o.Int(extent);
  if (!element.isInteger(64)) value = o.IntToFloat(value, element, true);
  return o.Broadcast(value, Ops::Lanes(like));
}

Values IfRest(Ops& o, const Extent& extent, int64_t lanes, const Values& values, const std::function<Values()>& last) {
  if (extent.IsMultipleOf(lanes)) return values;
  if (extent.is_static()) return last();
  std::vector<mlir::Type> types;
  for (Value v : values) types.push_back(v.getType());
  Value rest = o.Less(o.Int(0), o.Int(extent % lanes));
  return o.IfElse(rest, types, last, [&] { return values; });
}

Values VectorLoop(Ops& o, const Shape& shape, int64_t lanes, const Values& init,
                  const std::function<Values(const VectorPoint&, const Values&)>& body) {
  if (shape.empty()) return body({{}, o.Int(0), nullptr}, init);
  const Extent extent = shape.back();
  Shape outer(shape.begin(), shape.end() - 1), strides = RowMajorStrides(shape);
  return LoopNest(o, outer, init, [&](const Indices& at, const Values& carried) {
    Value row = o.Int(0);
    for (size_t i = 0; i < at.size(); ++i) row = o.Add(row, o.Mul(at[i].base, strides[i]));
    auto point = [&](Value i, Value fresh) {
      VectorPoint p{at, o.Add(row, i), fresh};
      p.at.push_back(Index(i, lanes == 1 ? 0 : 1));
      return p;
    };
    Values values = o.For(o.Int(0), o.Int(extent / lanes * Extent(lanes)), lanes, carried,
                          [&](Value i, const Values& inner) { return body(point(i, nullptr), inner); });
    return IfRest(o, extent, lanes, values,
                  [&] { return body(point(o.Int(extent - lanes), LastLanes(o, lanes, extent % lanes)), values); });
  });
}

Value InTurns(Ops& o, const Extent& count, int64_t lanes, int64_t turns, Value init,
              const std::function<Value(Value, Value)>& body, const std::function<Value(Value, Value)>& combine) {
  if (count.is_static() && count.value() < turns) turns = 1;
  const Extent whole = count / turns * Extent(turns * lanes);
  Values values = o.For(o.Int(0), o.Int(whole), turns * lanes, Values(turns, init), [&](Value i, const Values& before) {
    Values after;
    for (int64_t t = 0; t < turns; ++t) after.push_back(body(o.Add(i, t * lanes), before[t]));
    return after;
  });
  if (!count.IsMultipleOf(turns)) {
    values[0] = o.For(o.Int(whole), o.Int(count * Extent(lanes)), lanes, {values[0]},
                      [&](Value i, const Values& before) { return Values{body(i, before[0])}; })[0];
  }
  for (int64_t t = 1; t < turns; ++t) values[0] = combine(values[0], values[t]);
  return values[0];
}

}  // namespace inlay::native
