// Layer normalisation, batch normalisation (inference), local response normalisation.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"
#include "core/backends/native/packing.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

DType Accumulator(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Of open size, rows shorter than a vector: scalars, nothing kept between three passes.
void LayerNormInPasses(FunctionEmitter& f, const Node& n, int axis) {
  const Tensor &x = n.in(0), &scale = n.in(1), &bias = n.in(2);
  DType acc = Accumulator(x.dtype);
  Shape outer(x.dims.begin(), x.dims.begin() + axis), inner(x.dims.begin() + axis, x.dims.end());
  Extent extent = Product(inner);
  int cost = 0;
  f.Expression(x, nullptr, nullptr, &cost);
  f.ParallelEach(Product(outer), Cycles(extent) * (3 * cost + 8), [&](Kernel& k, Value item) {
    Ops& o = k.o;
    Indices row = Delinearise(o, item, outer);
    Value zero = o.ConstF(o.ComputeType(acc), 0), count = NumberLike(o, zero, extent);
    auto whole = [&](const Indices& at) {
      Indices all = row;
      all.insert(all.end(), at.begin(), at.end());
      return all;
    };
    auto element = [&](const Indices& at) {
      Eval e(k, 1);
      return e.At(x, whole(at));
    };
    Value sum = LoopNest(o, inner, {zero}, [&](const Indices& at, const Values& sums) {
      return Values{o.AddF(sums[0], element(at))};
    })[0];
    Value mean = o.DivF(sum, count);
    Value squares = LoopNest(o, inner, {zero}, [&](const Indices& at, const Values& sums) {
      Value d = o.SubF(element(at), mean);
      return Values{o.AddF(sums[0], o.MulF(d, d))};
    })[0];
    Value epsilon = o.ConstF(zero.getType(), n.attrs->FloatOr("epsilon", 1e-5));
    Value deviation = o.Sqrt(o.AddF(o.DivF(squares, count), epsilon));
    LoopNest(o, inner, {}, [&](const Indices& at, const Values&) {
      Eval e(k, 1);
      Value v = o.DivF(o.SubF(element(at), mean), deviation);
      v = o.Fma(v, e.At(scale, e.BroadcastTo(scale, at)), e.At(bias, e.BroadcastTo(bias, at)));
      k.StoreResult(n.out(), whole(at), v);
      return Values{};
    });
  });
}

// The sum of a row's vectors, lane by lane. Several sums take turns, so that none waits for the addition before; in a
// row of open size, if the code for an element may stand there several times (`is_short`).
Value SumOfRow(Ops& o, const Shape& shape, int64_t lanes, Value zero, bool is_short,
               const std::function<Value(const VectorPoint&)>& element) {
  constexpr int64_t kManyVectors = 8;
  int64_t turns = 1;
  if (shape.size() == 1) {
    for (int64_t t : {2, 3, 4}) turns = shape[0].IsMultipleOf(t * lanes) ? t : turns;
    const bool has_many = shape[0].is_static() ? shape[0].value() >= kManyVectors * lanes : is_short;
    if (turns < 3 && has_many) turns = 4;
  }
  auto masked = [&](const VectorPoint& p) {
    Value v = element(p);
    return p.fresh ? o.Select(p.fresh, v, zero) : v;
  };
  if (turns == 1) {
    return VectorLoop(o, shape, lanes, {zero},
                      [&](const VectorPoint& p, const Values& sums) { return Values{o.AddF(sums[0], masked(p))}; })[0];
  }
  auto point = [&](Value i, Value fresh) { return VectorPoint{{Index(i, lanes == 1 ? 0 : 1)}, i, fresh}; };
  const Value sum = InTurns(
      o, shape[0] / lanes, lanes, turns, zero,
      [&](Value i, Value before) { return o.AddF(before, element(point(i, nullptr))); },
      [&](Value x, Value y) { return o.AddF(x, y); });
  return IfRest(o, shape[0], lanes, {sum}, [&] {
    return Values{o.AddF(sum, masked(point(o.Int(shape[0] - lanes), LastLanes(o, lanes, shape[0] % lanes))))};
  })[0];
}

// Of an input that is contiguous along dimension `along` of the rows, not in the rows (a transposition before it): the
// lanes of a vector are `side` rows. What is normalised is transposed in registers on its way out.
void LayerNormAcrossRows(FunctionEmitter& f, const Node& n, int along, int following, int64_t side) {
  const Tensor &x = n.in(0), &scale = n.in(1), &bias = n.in(2);
  int last = x.rank() - 1;
  DType acc = Accumulator(x.dtype);
  int64_t extent = x.dims[last].value(), length = Product(x.dims, along + 1 - following, along + 1).value();
  Shape outer(x.dims.begin(), x.dims.end() - 1);
  for (int d = along + 1 - following; d < along; ++d) outer[d] = 1;
  outer[along] = CeilDiv(length, side);
  int cost = 0;
  f.Expression(x, nullptr, nullptr, &cost);
  f.Parallel(Product(outer), Cycles(extent) * (cost + 12), [&](Kernel& k, Value begin, Value end) {
    Ops& o = k.o;
    Value scratch = k.Scratch(extent * side * ir::ByteSize(acc));
    mlir::Type vector = o.ComputeType(acc, side);
    Value count = o.ConstF(vector, static_cast<double>(extent));
    int64_t step = extent % 4 == 0 ? 4 : 1;  // as many sums, so that none waits for the one before
    auto sum_up = [&](const std::function<Value(Value)>& element) {
      Values sums =
          o.For(o.Int(0), o.Int(extent), step, Values(step, o.ConstF(vector, 0)), [&](Value i, const Values& before) {
            Values after;
            for (int64_t s = 0; s < step; ++s) {
              after.push_back(o.AddF(before[s], element(o.Add(i, s))));
            }
            return after;
          });
      return step == 1 ? sums[0] : o.AddF(o.AddF(sums[0], sums[1]), o.AddF(sums[2], sums[3]));
    };
    o.For(begin, end, 1, [&](Value item) {
      Indices row = Delinearise(o, item, outer);
      Value band = o.Min(o.Mul(row[along].base, side), o.Int(length - side));
      row[along] = Index(band, 1);
      row.emplace_back();
      auto kept = [&](Value i) { return o.LoadElements(acc, scratch, o.Mul(i, side), side); };
      Value mean = o.DivF(sum_up([&](Value i) {
                            Eval e(k, side);
                            Indices at = row;
                            at[last] = i;
                            Value v = e.At(x, at);
                            o.StoreElements(acc, v, scratch, o.Mul(i, side));
                            return v;
                          }),
                          count);
      Value squares = sum_up([&](Value i) {
        Value d = o.SubF(kept(i), mean);
        return o.MulF(d, d);
      });
      Value epsilon = o.ConstF(vector, n.attrs->FloatOr("epsilon", 1e-5));
      Value factor = o.DivF(o.ConstF(vector, 1), o.Sqrt(o.AddF(o.DivF(squares, count), epsilon)));
      o.For(o.Int(0), o.Int(extent), side, [&](Value first) {
        if (extent % side != 0) first = o.Min(first, o.Int(extent - side));
        Values square;
        for (int64_t i = 0; i < side; ++i) square.push_back(o.MulF(o.SubF(kept(o.Add(first, i)), mean), factor));
        square = TransposeSquare(o, square);
        Eval e(k, side);
        Indices channels = {Index(first, 1)};
        Value scales = e.At(scale, e.BroadcastTo(scale, channels)), biases = e.At(bias, e.BroadcastTo(bias, channels));
        Indices at = row;
        at[last] = channels[0];
        for (int64_t i = 0; i < side; ++i) {
          at[along] = o.Add(band, i);
          k.StoreResult(n.out(), at, o.Fma(square[i], scales, biases));
        }
      });
    });
  });
}

// One pass that evaluates what feeds it into a row of scratch and sums, one for the variance about the mean (no
// cancellation), one that stores. Rows of open size that may be too long for the stack are evaluated by each pass.
absl::Status LayerNorm(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &scale = n.in(1), &bias = n.in(2);
  if (n.out().IsEmpty()) return absl::OkStatus();
  int axis = static_cast<int>(n.attrs->IntOr("axis", -1));
  if (axis < 0) axis += x.rank();
  DType acc = Accumulator(x.dtype);
  Shape outer(x.dims.begin(), x.dims.begin() + axis), inner(x.dims.begin() + axis, x.dims.end());
  ShapeMap shapes;
  auto merge = [&](std::vector<int> groups) {  // of the dimensions before the rows'
    groups.push_back(static_cast<int>(inner.size()));
    bool whole = true;
    for (const Tensor* t : {&scale, &bias}) {
      whole &= !t->inlined && (t->dims == inner || t->Elements() == Extent(1));
      shapes[t] = {t->Elements()};
    }
    const bool merged = whole && f.MergeDimsOf(x, groups, &shapes) && f.MergeDims(n, groups, &shapes);
    if (merged) inner = {Product(inner)};
    if (!merged) shapes.clear();
    return merged;
  };
  if (axis > 1 || inner.size() > 1) {
    if (merge(axis > 0 ? std::vector<int>{axis} : std::vector<int>())) {
      if (axis > 0) outer = {Product(outer)};
    } else if (axis > 1 && inner.size() > 1) {  // what is folded in may have a factor for each row
      merge(std::vector<int>(axis, 1));
    }
  }
  Extent extent = Product(inner);
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  int64_t bytes = ir::ByteSize(acc);
  int64_t lanes = std::min(f.LanesFor(tensors, inner.back()), f.LanesForBytes(bytes, inner.back()));
  Extent padded = RoundUp(extent, lanes);
  int64_t room = (extent.is_static() ? padded.value() : Kernel::kMaxOpenRow + lanes) * bytes;
  const bool in_memory = !x.inlined && x.dtype == acc;
  const bool on_stack = !in_memory && room <= Kernel::kMaxStackBytes;
  constexpr int kShort = 8;
  Buffer rows;
  if (!in_memory && !on_stack) rows = f.Temporary(Product(outer) * padded * bytes);
  double epsilon = n.attrs->FloatOr("epsilon", 1e-5);
  auto emit = [&](bool keeps) {
    f.Parallel(
        Product(outer), Cycles(extent) / lanes * ((keeps ? 1 : 3) * cost + 8), [&](Kernel& k, Value begin, Value end) {
          Ops& o = k.o;
          k.shapes = shapes;
          Value scratch;
          if (keeps) scratch = in_memory ? k.Pointer(x) : on_stack ? k.Scratch(room) : k.Pointer(rows);
          mlir::Type element = o.ComputeType(acc), vector = o.ComputeType(acc, lanes);
          Value zero = o.ConstF(vector, 0);
          auto add = [&](Value a, Value b) { return o.AddF(a, b); };
          Value count = NumberLike(o, o.ConstF(element, 0), extent);
          // Where a vector of the row is kept. The last one, which shares elements with the one before, has a place of
          // its own: what two stores wrote could not be loaded before both have left for L1 (24 elements a row, Zen 4:
          // 30 ns, so 10).
          auto kept = [&](const VectorPoint& p) {
            return p.fresh && inner.size() == 1 && !in_memory ? o.Int(extent / lanes * Extent(lanes)) : p.linear;
          };
          o.For(begin, end, 1, [&](Value item) {
            Indices row = Delinearise(o, item, outer);
            Value line = scratch;
            if (keeps && !on_stack) line = o.At(scratch, o.Mul(item, in_memory ? extent : padded), element);
            auto evaluated = [&](const VectorPoint& p) {
              Eval e(k, lanes);
              Indices at = row;
              at.insert(at.end(), p.at.begin(), p.at.end());
              return e.At(x, at);
            };
            auto again = [&](const VectorPoint& p) {
              return keeps ? o.LoadElements(acc, line, kept(p), lanes) : evaluated(p);
            };
            Value sum = SumOfRow(o, inner, lanes, zero, cost <= kShort, [&](const VectorPoint& p) {
              Value v = evaluated(p);
              if (keeps && !in_memory) o.StoreElements(acc, v, line, kept(p));
              return v;
            });
            Value mean = o.DivF(o.ReduceLanes(sum, add), count);
            Value means = o.Broadcast(mean, lanes);
            Value squares =
                SumOfRow(o, keeps ? Shape{extent} : inner, lanes, zero, cost <= kShort, [&](const VectorPoint& p) {
                  Value d = o.SubF(again(p), means);
                  return o.MulF(d, d);
                });
            Value variance = o.DivF(o.ReduceLanes(squares, add), count);
            Value factor = o.DivF(o.ConstF(element, 1), o.Sqrt(o.AddF(variance, o.ConstF(element, epsilon))));
            Value factors = o.Broadcast(factor, lanes);
            VectorLoop(o, inner, lanes, {}, [&](const VectorPoint& p, const Values&) {
              Eval e(k, lanes);
              Value v = o.MulF(o.SubF(again(p), means), factors);
              v = o.Fma(v, e.At(scale, e.BroadcastTo(scale, p.at)), e.At(bias, e.BroadcastTo(bias, p.at)));
              Indices at = row;
              at.insert(at.end(), p.at.begin(), p.at.end());
              k.StoreResult(n.out(), at, v);
              return Values{};
            });
          });
        });
  };
  if (extent.is_static()) {
    std::vector<std::function<void()>> ways = {[&] { emit(true); }};
    for (int along = axis - 1; along >= 0 && inner.size() == 1 && axis + 1 == x.rank(); --along) {
      if (!x.inlined || !x.dims[along].is_static() || lanes == 1) continue;
      bool tail = &f.StoredTensor(n) != &n.out();
      int following = tail ? 1 : FunctionEmitter::FollowingDims(x, along);
      Extent length = Product(x.dims, along + 1 - following, along + 1);
      int64_t side = std::min({f.LanesFor(tensors, length), lanes, int64_t{16}});
      if (side < 8 || extent.value() * side * bytes > Kernel::kMaxStackBytes) continue;  // 4: gathering is as fast
      ways.push_back([&f, &n, along, following, side] { LayerNormAcrossRows(f, n, along, following, side); });
    }
    f.FirstRegular(ways);
  } else {
    const FunctionEmitter::Condition has_vectors = {inner.back(), lanes, INT64_MAX};
    const int64_t most = in_memory ? INT64_MAX : Kernel::kMaxOpenRow;
    f.Either({has_vectors, {extent, 0, most}}, [&] { emit(true); }, [] {});
    if (!in_memory) f.Either({has_vectors, {extent, most + 1, INT64_MAX}}, [&] { emit(false); }, [] {});
    f.Either({has_vectors}, [] {}, [&] { LayerNormInPasses(f, n, axis); });
  }
  return absl::OkStatus();
}

// Pointwise but for the parameters, which are indexed by the channel.
Value BatchNorm(Eval& e, const Node& n, int, const Indices& at) {
  Ops& o = e.o;
  Value x = e.At(n.in(0), at);
  Value p[4];
  for (int i = 0; i < 4; ++i) p[i] = e.At(n.in(i + 1), {at[1]});
  Value epsilon = o.ConstF(x.getType(), n.attrs->FloatOr("epsilon", 1e-5));
  Value factor = o.DivF(p[0], o.Sqrt(o.AddF(p[3], epsilon)));
  return o.Fma(o.SubF(x, p[2]), factor, p[1]);
}

// x / (bias + alpha / size * sum of squares over a window of channels) ^ beta.
Value Lrn(Eval& e, const Node& n, int, const Indices& at) {
  Ops& o = e.o;
  int64_t size = n.attrs->Int("size");
  const Extent& channels = n.in(0).dims[1];
  auto element = [&](Eval& ev, const Indices& where) {
    Value x = ev.At(n.in(0), where);
    mlir::Type type = x.getType();
    Value c = where[1].base;
    Value low = o.Max(o.Add(c, -((size - 1) / 2)), o.Int(0));
    Value high = o.Min(o.Add(c, size - 1 - (size - 1) / 2 + 1), o.Int(channels));
    Value sum = o.For(low, high, 1, {o.ConstF(type, 0)}, [&](Value i, const Values& sums) {
      Eval inner = ev.Child(ev.lanes());
      Indices from = where;
      from[1] = i;
      Value v = inner.At(n.in(0), from);
      return Values{o.Fma(v, v, sums[0])};
    })[0];
    double alpha = n.attrs->FloatOr("alpha", 1e-4) / static_cast<double>(size);
    Value base = o.Fma(sum, o.ConstF(type, alpha), o.ConstF(type, n.attrs->FloatOr("bias", 1.0)));
    double beta = n.attrs->FloatOr("beta", 0.75);
    if (beta == 0.75) {
      // x^(3/4) by two square roots.
      Value root = o.Sqrt(base);
      return o.DivF(x, o.MulF(root, o.Sqrt(root)));
    }
    return o.DivF(x, Pow(o, base, o.ConstF(type, beta)));
  };
  return at[1].uniform() ? element(e, at) : e.PerLane(at, element);
}

}  // namespace

void RegisterNormalisation(LoweringTable* table) {
  Lowering& layer_norm = (*table)["layer_norm"];
  layer_norm.cost = 20;
  layer_norm.epilogue = true;
  layer_norm.kernel = LayerNorm;
  layer_norm.arg_use_of = [](const Node&, int arg) { return arg == 0 ? ArgUse::kOnce : ArgUse::kMany; };
  Lowering& batch_norm = (*table)["batch_norm"];
  batch_norm.cost = 12;
  batch_norm.element = BatchNorm;
  batch_norm.arg_use_of = [](const Node&, int arg) { return arg == 0 ? ArgUse::kOnce : ArgUse::kMany; };
  Lowering& lrn = (*table)["lrn"];
  lrn.cost = 60;
  lrn.element = Lrn;
  lrn.arg_use = ArgUse::kMany;
}

}  // namespace inlay::native
