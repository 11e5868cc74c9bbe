// Pixels at places that data says, and what is between them: grid_sample. Pixels are rows of channels, so a place costs
// what finding it does, and its channels are read and written as vectors.
#include <cmath>
#include <functional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kSomeChannels = 64;  // of an image whose number of them is open

// A pixel that a place reads, along one axis or of all.
struct Tap {
  Value index;   // i64, inside x whatever the place is
  Value weight;  // null: 1
  Value inside;  // i1 (below, a mask): what is outside counts as 0; null: it is inside
};

// The formulas of OPS.md, in the type of the places.
class Places {
 public:
  explicit Places(const ir::Attrs& attrs)
      : is_nearest_(attrs.String("mode") == "nearest"),
        coordinate_(attrs.String("coordinate")),
        padding_(attrs.String("padding")) {}

  double PixelsAnAxis() const { return is_nearest_ ? 1 : 2; }

  // Those along an axis, of the place `g` as the grid has it.
  std::vector<Tap> TapsOf(Ops& o, Value g, const Extent& pixels) const {
    const Value count = NumberLike(o, g, pixels), last = o.SubF(count, One(o, g));
    Value at = Place(o, g, count, last);
    if (padding_ == "reflection") at = Reflected(o, at, count, last);
    if (padding_ != "zeros") at = Within(o, at, last);
    if (is_nearest_) return {TapAt(o, o.RoundEven(at), last, Value())};
    const Value low = o.Floor(at), part = o.SubF(at, low);
    return {TapAt(o, low, last, o.SubF(One(o, g), part)), TapAt(o, o.AddF(low, One(o, g)), last, part)};
  }

 private:
  static Value One(Ops& o, Value like) { return o.ConstF(like.getType(), 1); }
  static Value Half(Ops& o, Value x) { return o.MulF(x, o.ConstF(x.getType(), 0.5)); }

  Value Place(Ops& o, Value g, Value count, Value last) const {
    if (coordinate_ == "pixel") return g;
    const Value from_the_edge = o.AddF(g, One(o, g));
    if (coordinate_ == "align_corners") return o.MulF(from_the_edge, Half(o, last));
    return o.SubF(o.MulF(from_the_edge, Half(o, count)), Half(o, One(o, g)));
  }

  // Folded back at both borders, a rounding error from them at most. Not a number where there is one pixel alone and
  // its middle is the border.
  Value Reflected(Ops& o, Value at, Value count, Value last) const {
    const bool in_the_middle = coordinate_ == "align_corners";
    const Value low = in_the_middle ? o.ConstF(at.getType(), 0) : o.ConstF(at.getType(), -0.5);
    const Value span = in_the_middle ? last : count;
    const Value distance = o.AbsF(o.SubF(at, low)), turns = o.Floor(o.DivF(distance, span));
    const Value rest = o.SubF(distance, o.MulF(turns, span)), twice = o.Floor(Half(o, turns));
    const Value is_even = o.CompareF(Compare::kEq, o.AddF(twice, twice), turns);
    return o.AddF(o.Select(is_even, rest, o.SubF(span, rest)), low);
  }

  // In [0, last]; 0 for what is not a number.
  static Value Within(Ops& o, Value at, Value last) {
    const Value zero = o.ConstF(at.getType(), 0);
    at = o.Select(o.CompareF(Compare::kGt, at, zero), at, zero);
    return o.Select(o.CompareF(Compare::kLt, at, last), at, last);
  }

  // `place` is whole. Of one that was moved into x, too, a pixel of weight 0 may be beyond the last.
  static Tap TapAt(Ops& o, Value place, Value last, Value weight) {
    const Value zero = o.ConstF(place.getType(), 0);
    return {o.FloatToInt(Within(o, place, last), o.b.getI64Type()), weight,
            o.And(o.CompareF(Compare::kGe, place, zero), o.CompareF(Compare::kLe, place, last))};  // false for NaN
  }

  bool is_nearest_;
  std::string coordinate_, padding_;
};

// Every tap of an axis with every one of the others: `index` counts pixels from the first of all.
std::vector<Tap> Pixels(Ops& o, const std::vector<std::vector<Tap>>& axes, const Shape& extents, Value image) {
  std::vector<Tap> pixels = {{image, Value(), Value()}};
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    std::vector<Tap> more;
    for (const Tap& pixel : pixels) {
      const Value row = o.Mul(pixel.index, extents[axis]);
      for (const Tap& tap : axes[axis]) {
        more.push_back({o.Add(row, tap.index), pixel.weight ? o.MulF(pixel.weight, tap.weight) : tap.weight,
                        pixel.inside ? o.And(pixel.inside, tap.inside) : tap.inside});
      }
    }
    pixels = std::move(more);
  }
  return pixels;
}

// x where `mask` (an integer as wide) is all ones, 0 where it is 0, and no branch.
Value Masked(Ops& o, Value x, Value mask) {
  const Value bits = o.And(o.Bitcast(x, mask.getType()), o.Broadcast(mask, Ops::Lanes(x)));
  return o.Bitcast(bits, mlir::getElementTypeOrSelf(x.getType()));
}

class GridSample {
 public:
  GridSample(FunctionEmitter& f, const Node& n)
      : f_(f), x_(n.in(0)), grid_(n.in(1)), out_(n.out()), places_(*n.attrs), channels_(x_.dims.back()) {}

  void Emit() {
    if (out_.IsEmpty()) return;
    const Shape rows(out_.dims.begin(), out_.dims.end() - 2);
    const Extent columns = out_.dims[out_.rank() - 2];
    const double axes = x_.rank() - 2, pixels = std::pow(places_.PixelsAnAxis(), axes);
    f_.WithLanes(channels_, f_.LanesFor({&x_, &out_}, channels_), [&](int64_t lanes) {
      const double vectors = static_cast<double>(channels_.is_static() ? channels_.value() : kSomeChannels) / lanes;
      f_.ParallelEach(Product(rows), Cycles(columns) * (vectors * pixels + 15 * axes), [&](Kernel& k, Value item) {
        const Indices row = Delinearise(k.o, item, rows);
        k.o.For(k.o.Int(0), k.o.Int(columns), 1, [&](Value column) {
          Indices at = row;
          at.emplace_back(column);
          EmitPlace(k, at, lanes);
        });
      });
    });
  }

 private:
  void EmitPlace(Kernel& k, const Indices& at, int64_t lanes) {
    Ops& o = k.o;
    Eval e(k, 1);
    const Shape extents(x_.dims.begin() + 1, x_.dims.end() - 1);
    std::vector<std::vector<Tap>> taps;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      Indices place = at;
      place.push_back(e.Constant(static_cast<int64_t>(extents.size() - 1 - axis)));
      taps.push_back(places_.TapsOf(o, e.At(grid_, place), extents[axis]));
    }
    std::vector<Tap> pixels = Pixels(o, taps, extents, at[0].base);
    for (Tap& pixel : pixels) pixel.index = o.Mul(pixel.index, channels_);
    // Most places have all of their pixels.
    std::vector<Tap> all = pixels;
    Value inside = pixels[0].inside;
    for (Tap& pixel : all) {
      inside = o.And(inside, pixel.inside);
      pixel.inside = Value();
    }
    const mlir::Type mask = x_.dtype == ir::DType::kF64 ? o.b.getI64Type() : o.b.getI32Type();
    o.If(
        inside, [&] { EmitChannels(k, at, all, lanes); },
        [&] {
          for (Tap& pixel : pixels) pixel.inside = o.ExtendI(pixel.inside, mask, true);
          EmitChannels(k, at, pixels, lanes);
        });
  }

  // Of the place `at`; `inside` is a mask as wide as an element.
  void EmitChannels(Kernel& k, const Indices& at, const std::vector<Tap>& pixels, int64_t lanes) {
    Ops& o = k.o;
    VectorLoop(o, {channels_}, lanes, {}, [&](const VectorPoint& p, const Values&) {
      Value sum;
      for (const Tap& pixel : pixels) {
        Value v = o.LoadElements(x_.dtype, k.Pointer(x_), o.Add(pixel.index, p.at[0].base), lanes);
        if (pixel.inside) v = Masked(o, v, pixel.inside);
        if (pixel.weight) {
          const Value weight = o.Broadcast(pixel.weight, lanes);
          v = sum ? o.Fma(v, weight, sum) : o.MulF(v, weight);
        }
        sum = v;
      }
      Indices channel = at;
      channel.push_back(p.at[0]);
      k.StoreResult(out_, channel, sum);
      return Values();
    });
  }

  FunctionEmitter& f_;
  const Tensor &x_, &grid_, &out_;
  const Places places_;
  const Extent channels_;
};

}  // namespace

void RegisterGridSample(LoweringTable* table) {
  Lowering& lowering = (*table)["grid_sample"];
  lowering.cost = 20;
  lowering.epilogue = true;
  lowering.kernel = [](FunctionEmitter& f, const Node& n) {
    GridSample(f, n).Emit();
    return absl::OkStatus();
  };
  lowering.arg_use_of = [](const Node&, int arg) { return arg == 0 ? ArgUse::kMemory : ArgUse::kMany; };
}

}  // namespace inlay::native
