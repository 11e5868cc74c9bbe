// Reductions: sum, mean, product, maximum, minimum; argmax and argmin.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

enum class Kind { kSum, kMean, kProd, kMax, kMin };

// How a reduction combines values, in which type.
struct Combiner {
  Kind kind;
  DType dtype;  // of the accumulator

  Combiner(Kind k, DType in) : kind(k), dtype(in) {
    if (k == Kind::kMean && ir::IsInteger(in)) dtype = DType::kI64;  // the sum must not wrap
  }
  Value Identity(Ops& o, int64_t lanes) const {
    mlir::Type type = o.ComputeType(dtype, lanes);
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean:
        return o.Const(type, 0);
      case Kind::kProd:
        return o.Const(type, 1);
      case Kind::kMax:
        return o.LowestN(dtype, type);
      case Kind::kMin:
        return o.HighestN(dtype, type);
    }
    return nullptr;
  }
  Value Combine(Ops& o, Value x, Value y) const {
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean:
        return o.AddN(dtype, x, y);
      case Kind::kProd:
        return o.MulN(dtype, x, y);
      case Kind::kMax:
        return o.MaxN(dtype, x, y);
      case Kind::kMin:
        return o.MinN(dtype, x, y);
    }
    return nullptr;
  }
  Value Finish(Ops& o, Value x, const Extent& count, DType out) const {
    if (kind != Kind::kMean) return x;
    if (ir::IsFloat(dtype)) return o.DivF(x, NumberLike(o, x, count));
    return o.Cast(dtype, out, o.DivI(x, NumberLike(o, x, count), true));
  }
};

// The dimensions of x after merging neighbours: which are reduced, and how the result is indexed by the others.
struct Plan {
  Shape shape;
  std::vector<bool> reduced;
  ShapeMap shapes;
  bool merged = false;
  std::vector<bool> original_reduced;
  bool keepdims = false;

  Shape Select(bool which) const {
    Shape result;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (reduced[i] == which) result.push_back(shape[i]);
    }
    return result;
  }
  Indices Interleave(const Indices& kept, const Indices& inner) const {
    Indices at;
    size_t a = 0, b = 0;
    for (bool r : reduced) at.push_back(r ? inner[b++] : kept[a++]);
    return at;
  }
  Indices OutIndices(Ops& o, const Indices& kept) const {
    if (merged || !keepdims) return kept;
    Indices at;
    size_t next = 0;
    for (bool r : original_reduced) at.push_back(r ? Index(o.Int(0)) : kept[next++]);
    return at;
  }
};

Plan MakePlan(FunctionEmitter& f, const Node& n) {
  const Tensor& x = n.in(0);
  Plan plan;
  plan.keepdims = n.attrs->BoolOr("keepdims", false);
  std::vector<int64_t> axes = n.attrs->IntsOr("axes", {});
  plan.original_reduced.assign(x.rank(), axes.empty());
  for (int64_t a : axes) plan.original_reduced[a < 0 ? a + x.rank() : a] = true;
  const std::vector<bool>& reduced = plan.original_reduced;
  std::vector<bool> boundary(x.rank());
  for (int i = 1; i < x.rank(); ++i) boundary[i] = reduced[i] != reduced[i - 1];

  auto apply = [&](const std::vector<int>& groups) {
    plan.shape.clear();
    plan.reduced.clear();
    int begin = 0;
    for (int size : groups) {
      plan.shape.push_back(Product(x.dims, begin, begin + size));
      plan.reduced.push_back(reduced[begin]);
      begin += size;
    }
  };
  std::vector<int> groups = f.MergeableGroups(x, boundary);
  std::vector<int> out_groups;
  int begin = 0, pending = 0;
  for (int size : groups) {
    if (!reduced[begin]) {
      out_groups.push_back(size + pending);
      pending = 0;
    } else if (plan.keepdims) {
      if (out_groups.empty())
        pending += size;
      else
        out_groups.back() += size;
    }
    begin += size;
  }
  ShapeMap shapes;
  if (!out_groups.empty() && f.MergeDimsOf(x, groups, &shapes) && f.MergeDims(n, out_groups, &shapes)) {
    plan.merged = true;
    plan.shapes = shapes;
    apply(groups);
    return plan;
  }
  // Only runs of reduced dimensions.
  std::vector<int> fallback;
  begin = 0;
  for (int size : groups) {
    if (reduced[begin])
      fallback.push_back(size);
    else
      fallback.insert(fallback.end(), size, 1);
    begin += size;
  }
  // What follows the reduction is indexed by its own dimensions.
  std::vector<int> unmerged(n.out().rank(), 1);
  if (!f.MergeDimsOf(x, fallback, &plan.shapes) || !f.MergeDims(n, unmerged, &plan.shapes)) {
    plan.shapes.clear();
    fallback.assign(x.rank(), 1);
  }
  apply(fallback);
  return plan;
}

// Each lane reduces a row of its own: of kept dimension `along`, of known extent, along which memory is contiguous.
void ReduceAcross(FunctionEmitter& f, const Node& n, const Combiner& c, const Plan& plan, size_t along, int64_t lanes,
                  int cost) {
  const Shape kept = plan.Select(false), reduced = plan.Select(true);
  const Extent count = Product(reduced);
  const int64_t extent = kept[along].value();
  Shape blocks = kept;
  blocks[along] = CeilDiv(extent, lanes);
  f.ParallelEach(Product(blocks), Cycles(count) * (cost + 2), [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = plan.shapes;
    Indices row = Delinearise(o, item, blocks);
    const Value first = o.Min(o.Mul(row[along].base, lanes), o.Int(extent - lanes));
    row[along] = Index(first, 1);
    const Values sum = LoopNest(o, reduced, {c.Identity(o, lanes)}, [&](const Indices& in, const Values& before) {
      Eval e(k, lanes);
      const Value element = o.Cast(n.in(0).dtype, c.dtype, e.At(n.in(0), plan.Interleave(row, in)));
      return Values{c.Combine(o, before[0], element)};
    });
    const Value result = c.Finish(o, sum[0], count, n.out().dtype);
    for (int64_t i = 0; i < lanes; ++i) {
      row[along] = Index(o.Add(first, i));
      k.StoreResult(n.out(), plan.OutIndices(o, row), o.Extract(result, i));
    }
  });
}

// The last dimension is reduced: vectors along it, several accumulators, one result a row. Where memory is contiguous
// along another (a transposition): each lane a row.
void ReduceRows(FunctionEmitter& f, const Node& n, const Combiner& c, const Plan& plan) {
  const Tensor& x = n.in(0);
  int cost = 0;
  bool pointwise = false;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, &pointwise, &cost);
  Shape kept = plan.Select(false), reduced = plan.Select(true);
  Extent inner = reduced.back();
  Shape outer(reduced.begin(), reduced.end() - 1);
  Extent count = Product(reduced);
  const auto emit = [&](int64_t lanes) {
    // Several accumulators, so that no addition waits for the one before; what takes longer than that is computed side
    // by side (Ops), and where that could be irregular, one vector after the other.
    const bool many = !inner.is_static() || inner.value() >= 8 * lanes;
    const bool side_by_side = many && lanes > 1 && pointwise && cost > 4;
    const int64_t unroll = side_by_side || (many && cost <= 4) ? Ops::kSideBySide : 1;
    const int64_t width = side_by_side ? unroll * lanes : lanes;
    f.ParallelEach(Product(kept), Cycles(count) / lanes * (cost + 2), [&](Kernel& k, Value item) {
      Ops& o = k.o;
      k.shapes = plan.shapes;
      Indices row = Delinearise(o, item, kept);
      Values init(unroll, c.Identity(o, lanes));
      Values sums = LoopNest(o, outer, init, [&](const Indices& at, Values acc) {
        auto element = [&](Value i, int64_t width) {
          Eval e(k, width);
          Indices in = at;
          in.push_back(Index(i, width == 1 ? 0 : 1));
          return o.Cast(x.dtype, c.dtype, e.At(x, plan.Interleave(row, in)));
        };
        int64_t step = lanes * unroll;
        Extent main = inner / step * step, whole = inner / lanes * lanes;
        if (side_by_side) acc = {o.Joined(acc)};
        acc = o.For(o.Int(0), o.Int(main), step, acc, [&](Value i, const Values& carried) {
          Values next;
          for (size_t u = 0; u < carried.size(); ++u) {
            next.push_back(c.Combine(o, carried[u], element(o.Add(i, static_cast<int64_t>(u) * lanes), width)));
          }
          return next;
        });
        if (side_by_side) acc = o.Parts(acc[0], lanes);
        if (main != whole) {
          acc[0] = o.For(o.Int(main), o.Int(whole), lanes, {acc[0]}, [&](Value i, const Values& carried) {
            return Values{c.Combine(o, carried[0], element(i, lanes))};
          })[0];
        }
        acc[0] = IfRest(o, inner, lanes, {acc[0]}, [&] {
          Value last = element(o.Int(inner - lanes), lanes);
          Value fresh = LastLanes(o, lanes, inner - whole);
          return Values{c.Combine(o, acc[0], o.Select(fresh, last, c.Identity(o, lanes)))};
        })[0];
        return acc;
      });
      Value sum = sums[0];
      for (int64_t u = 1; u < unroll; ++u) sum = c.Combine(o, sum, sums[u]);
      sum = o.ReduceLanes(sum, [&](Value a, Value b) { return c.Combine(o, a, b); });
      k.StoreResult(n.out(), plan.OutIndices(o, row), c.Finish(o, sum, count, n.out().dtype));
    });
  };
  const int64_t lanes = f.LanesFor(tensors, inner);
  std::vector<std::function<void()>> ways = {[&] { emit(lanes); }};
  const bool may_go_across = inner.is_static() && lanes > 1;
  for (size_t along = may_go_across ? kept.size() : 0; along-- > 0;) {
    const int64_t across = f.LanesFor(tensors, kept[along]);
    if (!kept[along].is_static() || across < lanes) continue;
    ways.push_back([&, along, across] { ReduceAcross(f, n, c, plan, along, across, cost); });
  }
  ways.push_back([&] { f.WithLanesOrScalar(inner, lanes, cost, emit); });
  ways.size() == 2 ? ways[1]() : f.FirstRegular(ways);
}

// The last dimension is kept: each lane reduces its own column.
void ReduceColumns(FunctionEmitter& f, const Node& n, const Combiner& c, const Plan& plan) {
  const Tensor& x = n.in(0);
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  Shape kept = plan.Select(false), reduced = plan.Select(true);
  Extent columns = kept.empty() ? Extent(1) : kept.back();
  Shape rows(kept.begin(), kept.empty() ? kept.end() : kept.end() - 1);
  Extent count = Product(reduced);
  f.WithLanesOrScalar(columns, f.LanesFor(tensors, columns), cost, [&](int64_t lanes) {
    const bool may_be_wide = lanes > 1 && (!columns.is_static() || columns.value() >= 4 * lanes);
    const int64_t most = may_be_wide ? 4 : 1, block = most * lanes;
    Extent blocks = CeilDiv(columns, block);
    f.ParallelEach(Product(rows) * blocks, Cycles(count) * most * (cost + 2), [&](Kernel& k, Value item) {
      Ops& o = k.o;
      k.shapes = plan.shapes;
      Indices row = Delinearise(o, o.Div(item, blocks), rows);
      auto reduce = [&](Value first, int64_t vectors) {
        auto at_column = [&](int64_t u) {
          Indices at = row;
          if (!kept.empty()) at.push_back(Index(o.Add(first, u * lanes), lanes == 1 ? 0 : 1));
          return at;
        };
        Values sums =
            LoopNest(o, reduced, Values(vectors, c.Identity(o, lanes)), [&](const Indices& in, const Values& acc) {
              Values next;
              Eval e(k, lanes);
              for (int64_t u = 0; u < vectors; ++u) {
                Value element = o.Cast(x.dtype, c.dtype, e.At(x, plan.Interleave(at_column(u), in)));
                next.push_back(c.Combine(o, acc[u], element));
              }
              return next;
            });
        for (int64_t u = 0; u < vectors; ++u) {
          k.StoreResult(n.out(), plan.OutIndices(o, at_column(u)), c.Finish(o, sums[u], count, n.out().dtype));
        }
      };
      auto reduce_block = [&] { reduce(o.Min(o.Mul(o.Rem(item, blocks), block), o.Int(columns - block)), most); };
      if (AlwaysFits(columns, block)) return reduce_block();
      // Of open number, at least `lanes`: vector by vector where they are no block.
      o.If(
          o.Less(o.Int(columns), o.Int(block)),
          [&] {
            o.For(o.Int(0), o.Int(columns), lanes, [&](Value i) { reduce(o.Min(i, o.Int(columns - lanes)), 1); });
          },
          reduce_block);
    });
  });
}

Lowering Reduce(Kind kind) {
  Lowering lowering;
  lowering.cost = 10;
  lowering.epilogue = true;
  lowering.kernel = [kind](FunctionEmitter& f, const Node& n) {
    if (n.out().IsEmpty()) return absl::OkStatus();
    Combiner combiner(kind, n.in(0).dtype);
    Plan plan = MakePlan(f, n);
    if (!plan.reduced.empty() && plan.reduced.back()) {
      ReduceRows(f, n, combiner, plan);
    } else {
      ReduceColumns(f, n, combiner, plan);
    }
    return absl::OkStatus();
  };
  return lowering;
}

// Index of the largest (smallest) element; the first of several, or the last. A NaN counts as larger (smaller) than
// all, as in NumPy.
struct ArgExtreme {
  DType dtype;
  bool largest, select_last;

  Value Beats(Ops& o, Value v, Value best) const {
    return o.CompareN(largest ? Compare::kGt : Compare::kLt, dtype, v, best);
  }
  // Whether v, which comes after `best`, replaces it.
  Value Replaces(Ops& o, Value v, Value best) const {
    Value better = select_last ? o.CompareN(largest ? Compare::kGe : Compare::kLe, dtype, v, best) : Beats(o, v, best);
    if (!ir::IsFloat(dtype)) return better;
    return o.Or(better, select_last ? o.IsNan(v) : o.And(o.IsNan(v), o.Not(o.IsNan(best))));
  }
  // {value, index} of the two; in any order.
  Values Merge(Ops& o, const Values& x, const Values& y) const {
    Value wins = Beats(o, y[0], x[0]), same = o.CompareN(Compare::kEq, dtype, y[0], x[0]);
    if (ir::IsFloat(dtype)) {
      Value x_nan = o.IsNan(x[0]), y_nan = o.IsNan(y[0]);
      wins = o.Or(wins, o.And(y_nan, o.Not(x_nan)));
      same = o.Or(same, o.And(x_nan, y_nan));
    }
    Value ahead = o.CompareI(select_last ? Compare::kGt : Compare::kLt, y[1], x[1], true);
    wins = o.Or(wins, o.And(same, ahead));
    return {o.Select(wins, y[0], x[0]), o.Select(wins, y[1], x[1])};
  }
};

// `otherwise` where the extent is 0.
Value UnlessEmpty(Ops& o, const Extent& extent, Value otherwise, const std::function<Value()>& make) {
  if (extent.is_static()) return extent.value() > 0 ? make() : otherwise;
  Value some = o.Less(o.Int(0), o.Int(extent));
  return o.IfElse(some, {otherwise.getType()}, [&] { return Values{make()}; }, [&] { return Values{otherwise}; })[0];
}

// Along the last dimension: each lane keeps the best of what it has seen.
void ArgReduceRows(FunctionEmitter& f, const Node& n, const ArgExtreme& extreme, int64_t lanes, int cost) {
  const Tensor& x = n.in(0);
  Shape others(x.dims.begin(), x.dims.end() - 1);
  Extent extent = x.dims.back(), whole = extent / lanes * lanes;
  f.ParallelEach(Product(others), Cycles(extent) / lanes * (cost + 3) + 60, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    Indices at = Delinearise(o, item, others);
    auto candidate = [&](Value i) -> Values {
      Eval e(k, lanes);
      Indices in = at;
      in.push_back(Index(i, lanes == 1 ? 0 : 1));
      return {e.At(x, in), e.AsVector(in.back())};
    };
    auto step = [&](Value i, const Values& best) -> Values {
      Values next = candidate(i);
      Value better = extreme.Replaces(o, next[0], best[0]);
      return {o.Select(better, next[0], best[0]), o.Select(better, next[1], best[1])};
    };
    auto best_index = [&]() -> Value {
      Values best = o.For(o.Int(lanes), o.Int(whole), lanes, candidate(o.Int(0)), step);
      best = IfRest(o, extent, lanes, best, [&] { return step(o.Int(extent - lanes), best); });
      Values winner = best;
      if (lanes > 1) winner = {o.Extract(best[0], 0), o.Extract(best[1], 0)};
      for (int64_t l = 1; l < lanes; ++l) {
        winner = extreme.Merge(o, winner, {o.Extract(best[0], l), o.Extract(best[1], l)});
      }
      return winner[1];
    };
    Value index = UnlessEmpty(o, extent, o.Int(0), best_index);
    if (n.attrs->BoolOr("keepdims", false)) at.push_back(Index(o.Int(0)));
    k.StoreElement(n.out(), at, index);
  });
}

// Along another dimension: a vector of results.
void ArgReduceColumns(FunctionEmitter& f, const Node& n, const ArgExtreme& extreme, int64_t axis, int64_t lanes,
                      int cost) {
  const Tensor& x = n.in(0);
  Shape others(x.dims.begin(), x.dims.end() - 1);
  others.erase(others.begin() + axis);
  Extent extent = x.dims[axis], inner = x.dims.back();
  f.ParallelEach(Product(others), Cycles(extent * inner) / lanes * (cost + 3), [&](Kernel& k, Value item) {
    Ops& o = k.o;
    Indices outer = Delinearise(o, item, others);
    VectorLoop(o, {inner}, lanes, {}, [&](const VectorPoint& point, const Values&) {
      Indices at = outer;
      at.push_back(point.at[0]);
      auto element = [&](Value i) {
        Eval e(k, lanes);
        Indices in = at;
        in.insert(in.begin() + axis, Index(i));
        return e.At(x, in);
      };
      Value first = o.Broadcast(o.Int(0), lanes);
      Value index = UnlessEmpty(o, extent, first, [&] {
        return o.For(o.Int(1), o.Int(extent), 1, {element(o.Int(0)), first}, [&](Value i, const Values& best) {
          Value v = element(i);
          Value better = extreme.Replaces(o, v, best[0]);
          return Values{o.Select(better, v, best[0]), o.Select(better, o.Broadcast(i, lanes), best[1])};
        })[1];
      });
      if (n.attrs->BoolOr("keepdims", false)) at.insert(at.begin() + axis, Index(o.Int(0)));
      k.StoreElement(n.out(), at, index);
      return Values{};
    });
  });
}

absl::Status ArgReduce(FunctionEmitter& f, const Node& n, bool largest) {
  const Tensor& x = n.in(0);
  if (n.out().IsEmpty()) return absl::OkStatus();
  int64_t axis = n.attrs->IntOr("axis", 0);
  ArgExtreme extreme{x.dtype, largest, n.attrs->BoolOr("select_last", false)};
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  // Of narrow types too, no more lanes than of f32: the indices are of 64 bits.
  int64_t lanes = std::min(f.LanesFor(tensors, x.dims.back()), f.cpu().core.vector_bytes / 4);
  // Merging a row's lanes costs as much as 30 scalars; with masks (AVX-512) scalars take longer than that.
  const Extent& row = x.dims.back();
  bool short_row = axis == x.rank() - 1 && f.cpu().core.vector_bytes < 64 && row.is_static() &&
                   row.value() < f.cpu().core.vector_bytes;
  if (x.dtype == DType::kBool || short_row) lanes = 1;
  f.WithLanesOrScalar(row, lanes, cost, [&](int64_t lanes) {
    if (axis == x.rank() - 1) {
      ArgReduceRows(f, n, extreme, lanes, cost);
    } else {
      ArgReduceColumns(f, n, extreme, axis, lanes, cost);
    }
  });
  return absl::OkStatus();
}

Lowering Arg(bool largest) {
  Lowering lowering;
  lowering.cost = 10;
  lowering.kernel = [largest](FunctionEmitter& f, const Node& n) { return ArgReduce(f, n, largest); };
  return lowering;
}

}  // namespace

void RegisterReductions(LoweringTable* table) {
  LoweringTable& t = *table;
  t["reduce_sum"] = Reduce(Kind::kSum);
  t["reduce_mean"] = Reduce(Kind::kMean);
  t["reduce_prod"] = Reduce(Kind::kProd);
  t["reduce_max"] = Reduce(Kind::kMax);
  t["reduce_min"] = Reduce(Kind::kMin);
  t["argmax"] = Arg(true);
  t["argmin"] = Arg(false);
}

}  // namespace inlay::native
