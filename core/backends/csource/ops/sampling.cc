// grid_sample: pixels at places that data says. What a place reads does not depend on the channel, so compilers find it
// once for all of its channels.
#include <string>
#include <vector>

#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/op.h"

namespace inlay::csource {
namespace {

using ir::DType;

class GridSample {
 public:
  GridSample(KernelEmitter& e, const Node& node)
      : e_(e),
        x_(node.in(0)),
        grid_(node.in(1)),
        dtype_(ComputeDType(x_.dtype)),
        is_nearest_(node.attrs().String("mode") == "nearest"),
        coordinate_(node.attrs().String("coordinate")),
        padding_(node.attrs().String("padding")) {}

  Expr At(const Index& at) {
    const int axes = x_.rank() - 2;
    std::vector<std::vector<Tap>> taps;
    for (int axis = 0; axis < axes; ++axis) {
      Index place(at.begin(), at.end() - 1);
      place.push_back(axes - 1 - axis);
      taps.push_back(TapsOf(e_.Value(grid_, place), x_.shape[axis + 1]));
    }
    Index from = {at[0]};
    Expr sum;
    Add(taps, at.back(), Tap(), &from, &sum);
    return sum;
  }

 private:
  struct Tap {
    Expr index, weight, inside;  // no text: 1, and it is
  };

  // As OPS.md defines them.
  std::vector<Tap> TapsOf(const Expr& g, int64_t pixels) {
    const Expr last = Of(static_cast<double>(pixels - 1));
    Expr at = g;
    if (coordinate_ == "half_pixel") at = (g + Of(1)) * Of(0.5 * static_cast<double>(pixels)) - Of(0.5);
    if (coordinate_ == "align_corners") at = (g + Of(1)) * Of(0.5 * static_cast<double>(pixels - 1));
    if (padding_ == "reflection") at = Reflected(Let(at), pixels);
    if (padding_ != "zeros") {
      at = Let(at);
      at = Let(Select(at > Of(0), at, Of(0)));
      at = Select(at < last, at, last);
    }
    at = Let(at);
    if (is_nearest_) return {TapAt(Math("rint", at), last, Expr())};
    const Expr low = Math("floor", at), part = Let(at - low);
    return {TapAt(low, last, Let(Of(1) - part)), TapAt(Let(low + Of(1)), last, part)};
  }

  Expr Reflected(const Expr& at, int64_t pixels) {
    const bool in_the_middle = coordinate_ == "align_corners";
    if (in_the_middle && pixels == 1) return Of(0);
    const Expr low = Of(in_the_middle ? 0 : -0.5), span = Of(static_cast<double>(in_the_middle ? pixels - 1 : pixels));
    const Expr distance = Math("fabs", at - low), turns = Math("floor", distance / span);
    const Expr rest = Let(distance - turns * span), twice = Math("floor", turns * Of(0.5));
    return Select(twice + twice == turns, rest, span - rest) + low;
  }

  // `place` is whole. Of one that was moved into x, too, a pixel of weight 0 may be beyond the last.
  Tap TapAt(const Expr& place, const Expr& last, const Expr& weight) {
    const Expr inside = e_.Let("int", place >= Of(0) && last >= place);
    return {e_.LetIndex(CastTo(kIndexType, Select(inside, place, Of(0)))), weight, inside};
  }

  void Add(const std::vector<std::vector<Tap>>& taps, const Expr& channel, const Tap& so_far, Index* from, Expr* sum) {
    const size_t axis = from->size() - 1;
    if (axis == taps.size()) {
      from->push_back(channel);
      Expr x = e_.Value(x_, *from);
      from->pop_back();
      if (!so_far.inside.text.empty()) x = Select(so_far.inside, x, Of(0));
      if (!so_far.weight.text.empty()) x = x * so_far.weight;
      *sum = Let(sum->text.empty() ? x : *sum + x);
      return;
    }
    for (const Tap& tap : taps[axis]) {
      Tap both = tap;
      if (!so_far.weight.text.empty()) both.weight = Let(so_far.weight * tap.weight);
      if (!so_far.inside.text.empty()) both.inside = e_.Let("int", so_far.inside && tap.inside);
      from->push_back(tap.index);
      Add(taps, channel, both, from, sum);
      from->pop_back();
    }
  }

  Expr Of(double value) const { return Number(dtype_, value); }
  Expr Let(const Expr& value) { return e_.Let(StorageType(dtype_), value); }
  Expr Math(const std::string& function, const Expr& x) { return Let(CallMath(function, dtype_, {x})); }

  KernelEmitter& e_;
  const Tensor &x_, &grid_;
  const DType dtype_;
  const bool is_nearest_;
  const std::string coordinate_, padding_;
};

}  // namespace

void AddSampling(OpTable* ops) {
  Op& op = (*ops)["grid_sample"];
  op.cost = 40;
  op.element = [](KernelEmitter& e, const Node& node, int, const Index& at) { return GridSample(e, node).At(at); };
  op.use = [](const Node&, int arg) { return arg == 0 ? Use::kMemory : Use::kMany; };
}

}  // namespace inlay::csource
