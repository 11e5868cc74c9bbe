// Softmax, log_softmax.
#include <algorithm>
#include <numeric>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

DType Accumulator(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Whether passes over the axis may leave elements of the accumulator's type for the next where the result will be.
bool ResultHolds(const FunctionEmitter& f, const Node& n, DType acc) {
  const Tensor& stored = f.StoredTensor(n);
  return stored.dtype == acc && stored.dims == n.out().dims;
}

// [outer, extent, inner]: softmax along another axis than the last, with a vector's lanes as columns, or along the last
// where rows are shorter than a vector, with scalars (inner = 1).
struct SoftmaxColumns {
  FunctionEmitter& f;
  const Node& n;
  bool logarithm;
  int64_t axis;
  Shape outer = {};
  Extent extent = 0, inner = 1;
  ShapeMap shapes = {};
  bool columns = false;

  void Emit(int64_t lanes);
  void EmitColumns(Kernel& k, const Indices& row, Value column, int64_t lanes, int64_t width);
};

// Three loops over the axis, for `width` columns from `column` on, which are several vectors of `lanes`. What has a
// row's exponentials is the result, if it can.
void SoftmaxColumns::EmitColumns(Kernel& k, const Indices& row, Value column, int64_t lanes, int64_t width) {
  Ops& o = k.o;
  const Tensor &x = n.in(0), &stored = f.StoredTensor(n);
  const DType acc = Accumulator(x.dtype);
  const bool keeps = columns && !logarithm && ResultHolds(f, n, acc);
  mlir::Type vector = o.ComputeType(acc, width);
  auto indices = [&](Value i, int64_t part = 0) {
    Indices at = row;
    at.insert(at.begin() + axis, Index(i));
    if (columns) at.push_back(Index(o.Add(column, part * lanes), lanes == 1 ? 0 : 1));
    return at;
  };
  auto element = [&](Value i) {
    Values parts;
    Eval e(k, lanes);
    for (int64_t p = 0; p < width / lanes; ++p) parts.push_back(e.At(x, indices(i, p)));
    return o.Joined(parts);
  };
  auto place = [&](Value i) { return Eval(k, lanes).Offset(k.Shape(stored), indices(i)).base; };
  Value zero = o.Int(0), end = o.Int(extent);
  Value maximum = o.For(zero, end, 1, {o.LowestN(acc, vector)},
                        [&](Value i, const Values& best) { return Values{o.MaxN(acc, best[0], element(i))}; })[0];
  auto exponential = [&](Value i) { return ExpOfNonPositive(o, o.SubF(element(i), maximum)); };
  Value sum = o.For(zero, end, 1, {o.ConstF(vector, 0)}, [&](Value i, const Values& sums) {
    Value v = exponential(i);
    if (keeps) o.StoreElements(acc, v, k.Pointer(stored), place(i));
    return Values{o.AddF(sums[0], v)};
  })[0];
  Value factor = logarithm ? o.AddF(maximum, Log(o, sum)) : o.DivF(o.ConstF(vector, 1), sum);
  o.For(zero, end, 1, [&](Value i) {
    Value v = logarithm ? o.SubF(element(i), factor)
              : keeps   ? o.MulF(o.LoadElements(acc, k.Pointer(stored), place(i), width), factor)
                        : o.MulF(exponential(i), factor);
    const Values parts = o.Parts(v, lanes);
    for (size_t p = 0; p < parts.size(); ++p) k.StoreResult(n.out(), indices(i, static_cast<int64_t>(p)), parts[p]);
  });
}

// An item is a block of columns that lie beside each other, several vectors. The last one has the rest as well, one by
// one: no other task may touch columns whose exponentials are in the result.
void SoftmaxColumns::Emit(int64_t lanes) {
  int cost = 0;
  f.Expression(n.in(0), nullptr, nullptr, &cost);
  const int64_t vectors = lanes == 1 ? 1 : Ops::kSideBySide, block = vectors * lanes;
  const Extent blocks = Extent::Max(1, inner / block);
  const Cycles cycles = Cycles(extent) * (static_cast<double>(vectors) * (3 * cost + 50));
  f.ParallelEach(Product(outer) * blocks, cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = shapes;
    const Indices row = Delinearise(o, o.Div(item, blocks), outer);
    const Value number = o.Rem(item, blocks), whole = o.Int(inner / block * Extent(block));
    const Value begin = o.Mul(number, block), end = o.Min(o.Add(begin, block), whole);
    o.For(begin, end, block, [&](Value column) { EmitColumns(k, row, column, lanes, block); });
    if (inner.IsMultipleOf(block)) return;
    o.If(o.Less(o.Int(blocks - 2), number), [&] {
      o.For(whole, o.Int(inner), lanes, [&](Value column) {
        if (!inner.IsMultipleOf(lanes)) column = o.Min(column, o.Int(inner - lanes));
        EmitColumns(k, row, column, lanes, lanes);
      });
    });
  });
}

void EmitSoftmaxColumns(FunctionEmitter& f, const Node& n, bool logarithm, int64_t axis) {
  const Tensor& x = n.in(0);
  const int behind = x.rank() - 1 - static_cast<int>(axis);
  SoftmaxColumns s{f, n, logarithm, axis};
  s.outer.assign(x.dims.begin(), x.dims.begin() + axis);
  s.extent = x.dims[axis];
  s.columns = behind > 0;
  if (behind == 0) return s.Emit(1);
  std::vector<int> groups(axis, 1);
  groups.insert(groups.end(), {1, behind});
  if (behind > 1 && f.MergeDimsOf(x, groups, &s.shapes) && f.MergeDims(n, groups, &s.shapes)) {
    s.inner = Product(x.dims, static_cast<int>(axis) + 1, x.rank());
  } else {
    s.shapes.clear();
    s.outer.insert(s.outer.end(), x.dims.begin() + axis + 1, x.dims.end() - 1);
    s.inner = x.dims.back();
  }
  std::vector<const Tensor*> tensors = f.Expression(x);
  const int64_t widest = ir::ByteSize(Accumulator(x.dtype));
  f.WithLanes(s.inner, std::min(f.LanesFor(tensors, s.inner), f.LanesForBytes(widest, s.inner)),
              [&](int64_t lanes) { s.Emit(lanes); });
}

// Where a row's values, then its exponentials, lie between the passes over it.
enum class Room {
  kLine,     // scratch: on the stack, or in the workspace where extents are known
  kResult,   // where the result will be
  kNowhere,  // each pass computes them
};

// Softmax of rows along the last axis, of a vector and more.
struct SoftmaxRows {
  SoftmaxRows(FunctionEmitter& function, const Node& node, bool log);
  // A row of the accumulator's type, filled up to whole vectors.
  int64_t LineBytes() const;
  bool LineOnStack() const { return LineBytes() <= Kernel::kMaxStackBytes; }
  void Emit(Room room);

  FunctionEmitter& f;
  const Node& n;
  const Tensor& x;
  const bool logarithm;
  const DType acc;
  Shape outer;
  ShapeMap shapes;
  const Extent extent;
  int cost = 0;  // of an element of x
  int64_t lanes;
  bool in_memory;  // x is, as it is computed with: every pass reads it there
};

SoftmaxRows::SoftmaxRows(FunctionEmitter& function, const Node& node, bool log)
    : f(function),
      n(node),
      x(node.in(0)),
      logarithm(log),
      acc(Accumulator(x.dtype)),
      outer(x.dims.begin(), x.dims.end() - 1),
      extent(x.dims.back()),
      in_memory(!x.inlined && x.dtype == acc) {
  std::vector<int> groups = {x.rank() - 1, 1};
  if (x.rank() > 2) {
    if (f.MergeDimsOf(x, groups, &shapes) && f.MergeDims(n, groups, &shapes)) {
      outer = {Product(outer)};
    } else {
      shapes.clear();
    }
  }
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  lanes = std::min(f.LanesFor(tensors, extent), f.LanesForBytes(ir::ByteSize(acc), extent));
}

// The code for one row: a pass that finds the maximum, one that takes exponentials and sums them, one that stores.
class SoftmaxRow {
 public:
  SoftmaxRow(const SoftmaxRows& rows, Room room, Kernel& kernel, Indices at, Value line)
      : s_(rows),
        room_(room),
        k_(kernel),
        o_(kernel.o),
        at_(std::move(at)),
        line_(line),
        lanes_(rows.lanes),
        last_(o_.Int(rows.extent - rows.lanes)),
        keeps_values_(!rows.in_memory && room != Room::kNowhere) {}
  void Emit() {
    FindMaximum();
    Sum();
    Store();
  }

 private:
  Indices At(Value i, int64_t width) const {
    Indices at = at_;
    at.push_back(Index(i, width == 1 ? 0 : 1));
    return at;
  }
  Value Evaluated(Value i, int64_t width) {
    if (width == lanes_ || !s_.x.inlined) return Eval(k_, width).At(s_.x, At(i, width));
    Values parts;
    for (int64_t p = 0; p < width; p += lanes_) parts.push_back(Evaluated(o_.Add(i, p), lanes_));
    return o_.Joined(parts);
  }
  Value Kept(Value i, int64_t width) { return o_.LoadElements(s_.acc, line_, i, width); }
  void Keep(Value v, Value i) { o_.StoreElements(s_.acc, v, line_, i); }
  Value ValueAt(Value i, int64_t width) { return keeps_values_ ? Kept(i, width) : Evaluated(i, width); }
  Value ExponentialOf(Value v) { return ExpOfNonPositive(o_, o_.SubF(v, o_.Broadcast(maximum_, Ops::Lanes(v)))); }
  Value Exponential(Value i, int64_t width) {
    Value v = ExponentialOf(ValueAt(i, width));
    if (!s_.logarithm && room_ != Room::kNowhere) Keep(v, i);
    return v;
  }
  void StoreScaled(Value v, Value i) {
    Value factor = o_.Broadcast(factor_, Ops::Lanes(v));
    v = s_.logarithm ? o_.SubF(v, factor) : o_.MulF(v, factor);
    const Values parts = o_.Parts(v, lanes_);
    for (size_t p = 0; p < parts.size(); ++p) {
      k_.StoreResult(s_.n.out(), At(o_.Add(i, static_cast<int64_t>(p) * lanes_), lanes_), parts[p]);
    }
  }

  void FindMaximum();
  Value SumOfVectors(const Extent& vectors);
  void Sum();
  void Store();

  const SoftmaxRows& s_;
  const Room room_;
  Kernel& k_;
  Ops& o_;
  const Indices at_;
  const Value line_;
  const int64_t lanes_;
  const Value last_;         // where the last vector begins
  const bool keeps_values_;  // in the line
  Value maximum_, factor_;
  // Of a row in the result, whose vectors change in place: the last one's value, then what is stored of it, for by then
  // the elements that it shares with the vector before are not what they were.
  Value rest_;
};

void SoftmaxRow::FindMaximum() {
  constexpr int kShort = 8;
  auto larger = [&](Value a, Value b) { return LargerOf(o_, a, b); };
  const Value lowest = o_.LowestN(s_.acc, o_.ComputeType(s_.acc, lanes_));
  const Extent padded = RoundUp(s_.extent, lanes_);
  // The line's last vector is filled up with -Inf.
  if (keeps_values_ && room_ == Room::kLine && padded != s_.extent) Keep(lowest, o_.Int(padded - lanes_));
  auto look = [&](Value i, Value best) {
    Value v = Evaluated(i, lanes_);
    if (keeps_values_) Keep(v, i);
    return larger(v, best);
  };
  const int64_t turns = room_ == Room::kNowhere && s_.cost > kShort ? 1 : 4;
  Value maximum = InTurns(o_, s_.extent / lanes_, lanes_, turns, lowest, look, larger);
  if (room_ == Room::kResult) {
    const Values values = IfRest(o_, s_.extent, lanes_, {maximum, lowest}, [&] {
      Value v = Evaluated(last_, lanes_);
      return Values{larger(v, maximum), v};
    });
    maximum = values[0];
    rest_ = values[1];
  } else {
    maximum = IfRest(o_, s_.extent, lanes_, {maximum}, [&] { return Values{look(last_, maximum)}; })[0];
  }
  maximum_ = o_.ReduceLanes(maximum, larger);
}

Value SoftmaxRow::SumOfVectors(const Extent& vectors) {
  auto sum_of = [&](Value a, Value b) { return o_.AddF(a, b); };
  const Value zero = o_.ConstF(o_.ComputeType(s_.acc, lanes_), 0);
  if (lanes_ == 1 || (vectors.is_static() && vectors.value() < Ops::kSideBySide)) {
    auto add = [&](Value i, Value before) { return o_.AddF(before, Exponential(i, lanes_)); };
    return InTurns(o_, vectors, lanes_, 2, zero, add, sum_of);
  }
  auto add_from = [&](Value begin, Value end, int64_t width, Value to) {
    return o_.For(begin, end, width, {to},
                  [&](Value i, const Values& in) { return Values{o_.AddF(in[0], Exponential(i, width))}; })[0];
  };
  const int64_t width = Ops::kSideBySide * lanes_;
  const Value whole = o_.Int(vectors / Ops::kSideBySide * Extent(width)), end = o_.Int(vectors * Extent(lanes_));
  const Value wide_zero = o_.ConstF(o_.ComputeType(s_.acc, width), 0);
  const Values sums = o_.Parts(add_from(o_.Int(0), whole, width, wide_zero), lanes_);
  return add_from(whole, end, lanes_, std::accumulate(sums.begin() + 1, sums.end(), sums[0], sum_of));
}

void SoftmaxRow::Sum() {
  // The last vector of a line with values is filled up with -Inf; elsewhere it begins earlier.
  const bool filled = keeps_values_ && room_ == Room::kLine;
  Value sum = SumOfVectors(filled ? RoundUp(s_.extent, lanes_) / lanes_ : s_.extent / lanes_);
  const Value zero = o_.ConstF(sum.getType(), 0);
  auto add_fresh = [&](Value v) { return o_.AddF(sum, o_.Select(LastLanes(o_, lanes_, s_.extent % lanes_), v, zero)); };
  if (room_ == Room::kResult) {
    const Values values = IfRest(o_, s_.extent, lanes_, {sum, rest_}, [&] {
      Value v = ExponentialOf(rest_);
      return Values{add_fresh(v), s_.logarithm ? rest_ : v};
    });
    sum = values[0];
    rest_ = values[1];
  } else if (!filled) {
    sum = IfRest(o_, s_.extent, lanes_, {sum}, [&] { return Values{add_fresh(Exponential(last_, lanes_))}; })[0];
  }
  sum = o_.ReduceLanes(sum, [&](Value a, Value b) { return o_.AddF(a, b); });
  factor_ = s_.logarithm ? o_.AddF(maximum_, Log(o_, sum)) : o_.DivF(o_.ConstF(sum.getType(), 1), sum);
}

void SoftmaxRow::Store() {
  auto store = [&](Value i, int64_t width) {
    Value v = s_.logarithm ? ValueAt(i, width) : room_ == Room::kNowhere ? Exponential(i, width) : Kept(i, width);
    StoreScaled(v, i);
  };
  Value begin = o_.Int(0);
  if (room_ == Room::kNowhere && !s_.logarithm && lanes_ > 1) {
    const int64_t width = Ops::kSideBySide * lanes_;
    const Value end = o_.Int(s_.extent / width * Extent(width));
    o_.For(begin, end, width, [&](Value i) { store(i, width); });
    begin = end;
  }
  o_.For(begin, o_.Int(s_.extent / lanes_ * Extent(lanes_)), lanes_, [&](Value i) { store(i, lanes_); });
  IfRest(o_, s_.extent, lanes_, {}, [&] {
    if (room_ == Room::kResult) {
      StoreScaled(rest_, last_);
    } else {
      store(last_, lanes_);
    }
    return Values{};
  });
}

int64_t SoftmaxRows::LineBytes() const {
  const int64_t elements = extent.is_static() ? RoundUp(extent, lanes).value() : Kernel::kMaxOpenRow + lanes;
  return elements * ir::ByteSize(acc);
}

void SoftmaxRows::Emit(Room room) {
  const Extent padded = RoundUp(extent, lanes), items = Product(outer);
  const bool on_stack = room == Room::kLine && LineOnStack();
  Buffer rows;
  if (room == Room::kLine && !on_stack) rows = f.Temporary(items * padded * ir::ByteSize(acc));
  const Cycles cycles = Cycles(extent) / lanes * (room == Room::kNowhere ? 3 * cost + 45 : cost + 25);
  f.Parallel(items, cycles, [&](Kernel& k, Value begin, Value end) {
    Ops& o = k.o;
    k.shapes = shapes;
    Value line;
    if (room == Room::kResult) line = k.Pointer(f.StoredTensor(n));
    if (room == Room::kLine) line = on_stack ? k.Scratch(LineBytes()) : k.Pointer(rows);
    o.For(begin, end, 1, [&](Value item) {
      Value of_row = line;
      if (line && !on_stack) {
        of_row = o.At(line, o.Mul(item, room == Room::kResult ? extent : padded), o.ComputeType(acc));
      }
      SoftmaxRow(*this, room, k, Delinearise(o, item, outer), of_row).Emit();
    });
  });
}

void EmitSoftmaxRows(FunctionEmitter& f, const Node& n, bool logarithm) {
  SoftmaxRows rows(f, n, logarithm);
  const bool holds = ResultHolds(f, n, rows.acc);
  if (rows.extent.is_static()) return rows.Emit(holds && !rows.LineOnStack() ? Room::kResult : Room::kLine);
  const FunctionEmitter::Condition has_vectors = {rows.extent, rows.lanes, INT64_MAX};
  // What the first pass keeps of rows that fit there, it keeps on the stack, whose lines are aligned.
  const int64_t most = holds && rows.in_memory ? 0 : Kernel::kMaxOpenRow;
  if (most > 0) f.Either({has_vectors, {rows.extent, 0, most}}, [&] { rows.Emit(Room::kLine); }, [] {});
  f.Either(
      {has_vectors, {rows.extent, most + 1, INT64_MAX}}, [&] { rows.Emit(holds ? Room::kResult : Room::kNowhere); },
      [] {});
  f.Either({has_vectors}, [] {}, [&] { EmitSoftmaxColumns(f, n, logarithm, n.in(0).rank() - 1); });
}

Lowering Softmax(bool logarithm) {
  Lowering lowering;
  lowering.cost = 40;
  lowering.epilogue = true;
  auto axis_of = [](const Node& n) {
    return n.attrs->IntOr("axis", -1) + (n.attrs->IntOr("axis", -1) < 0 ? n.in(0).rank() : 0);
  };
  lowering.arg_use_of = [axis_of](const Node& n, int) {
    return axis_of(n) + 1 == n.in(0).rank() ? ArgUse::kOnce : ArgUse::kMany;
  };
  lowering.kernel = [logarithm, axis_of](FunctionEmitter& f, const Node& n) {
    if (n.out().IsEmpty()) return absl::OkStatus();
    if (axis_of(n) + 1 == n.in(0).rank()) {
      EmitSoftmaxRows(f, n, logarithm);
    } else {
      EmitSoftmaxColumns(f, n, logarithm, axis_of(n));
    }
    return absl::OkStatus();
  };
  return lowering;
}

}  // namespace

void RegisterSoftmax(LoweringTable* table) {
  (*table)["softmax"] = Softmax(false);
  (*table)["log_softmax"] = Softmax(true);
}

}  // namespace inlay::native
