// Writes conv_transpose as convolutions of stride 1, one for elements that see the same number of taps, whose results
// take turns along the spatial axes. By definition a transposed convolution is one over an input with stride - 1 zeros
// between its elements: of the products of that, one in stride (a plane: in its square) is with something else.
//
//   %1 = conv_transpose(%0: f32[1, 8, 5], @w: f32[8, 3, 4], strides=[2], pads=[1, 1])            f32[1, 3, 10]
// becomes (one of every other tap each: [3 channels, 2 phases], which see 2 taps)
//   %w = reshape(transpose(slice(reshape(@w, [1, 8, 3, 2, 2]), backwards along the taps), ..), [6, 8, 2])
//   %y = conv(%0, %w, pads=[1, 1])                                                              f32[1, 6, 6]
//   %1 = slice(reshape(transpose(reshape(%y, [1, 3, 2, 6]), [0, 1, 3, 2]), [1, 3, 12]), [1:11])
//
// Element o = stride * q + r - pad of an axis is the sum over j of x[q - j] * w[stride * j + r]. All phases r can be
// the channels of one convolution, whose taps are made up to a multiple of the stride by zeros ("joined"); or those
// with equally many taps and equal q are, and nothing is multiplied in vain ("apart").
#include <algorithm>

#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Dim;
using ir::Operand;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

constexpr double kMaxInVain = 1.05;  // times as many products as needed, for fewer convolutions

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t CeilDiv(int64_t a, int64_t b) { return -FloorDiv(-a, b); }

// Phases that one convolution computes: weights first_tap + [0, phases) + stride * [0, taps).
struct Group {
  int64_t first_tap, phases, taps;
  int64_t pad_begin, pad_end;  // of the convolution; negative: it does not see all of x
};

struct Axis {
  int64_t stride = 1;
  int64_t dilation = 1;                // of the convolution
  int64_t spread = 1;                  // elements that each tap becomes, where its zeros are written out instead
  int64_t window = 1;                  // taps, with those zeros
  int64_t pad_begin = 0, pad_end = 0;  // pad_end: less the output's padding
  std::vector<Group> groups;
  int64_t growth = 0;  // positions of a phase, less the extent of x
  int64_t crop = 0;    // elements before the first one wanted

  int64_t max_taps() const { return CeilDiv(window, stride); }

  void Join() {
    const int64_t first = FloorDiv(pad_begin, stride);
    const int64_t reach = (max_taps() - 1) * dilation;
    growth = FloorDiv((window - 1) * dilation - pad_end, stride) - first;
    crop = pad_begin - first * stride;
    groups = {{0, stride, max_taps(), reach - first, growth + first}};
  }

  void Part() {
    const int64_t last = CeilDiv(window - pad_begin - pad_end, stride) - 1;
    growth = last;
    crop = 0;
    groups.clear();
    int64_t shift_before = 0;
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t shift = FloorDiv(phase + pad_begin, stride), tap = phase + pad_begin - shift * stride;
      const int64_t taps = std::max<int64_t>(CeilDiv(window - tap, stride), 1);
      if (!groups.empty() && shift == shift_before && taps == groups.back().taps) {
        ++groups.back().phases;
      } else {
        groups.push_back({tap, 1, taps, taps - 1 - shift, last + shift});
      }
      shift_before = shift;
    }
  }

  // Products computed, over those needed.
  double InVain(const Dim& extent) const {
    double computed = 0;
    for (const Group& g : groups) computed += static_cast<double>(g.phases * g.taps);
    const double border =
        extent.is_static() && extent.value() > 0 ? 1 + std::max<double>(0, growth) / extent.value() : 1;
    return computed * border / static_cast<double>(window);
  }
};

class ConvTransposeExpander : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("conv_transpose")) return absl::nullopt;
    args_ = binding->args;
    const ir::TensorType x = args_[0].tensor_type(), out = binding->var->type.tensor();
    const ir::TensorType w = args_[1].tensor_type();
    if (!w.is_static() || w.NumElements() == 0) return absl::nullopt;
    groups_ = binding->attrs.Int("groups");
    axes_ = AxesOf(binding->attrs, x, w);
    // What sees nothing of x, or has no elements, stays: conv has no word for it.
    for (size_t i = 0; i < axes_.size(); ++i) {
      const Dim& extent = x.dims[i + 2];
      if (out.dims[i + 2] == Dim(0)) return absl::nullopt;
      for (const Group& g : axes_[i].groups) {
        const int64_t unseen = std::max<int64_t>(-g.pad_begin, 0) + std::max<int64_t>(-g.pad_end, 0);
        if (unseen > 0 && (!extent.is_static() || unseen >= extent.value())) return absl::nullopt;
      }
    }
    INLAY_ASSIGN_OR_RETURN(args_[1], SplitWeights(args_[1], w));
    INLAY_ASSIGN_OR_RETURN(Operand phases, Phases({}));
    INLAY_ASSIGN_OR_RETURN(Operand y, TakeTurns(phases, out));
    return {y};
  }

 private:
  static std::vector<Axis> AxesOf(const ir::Attrs& attrs, const ir::TensorType& x, const ir::TensorType& w) {
    const size_t n = w.dims.size() - 2;
    const Ints &strides = attrs.Ints("strides"), &dilations = attrs.Ints("dilations");
    const Ints &pads = attrs.Ints("pads"), &extra = attrs.Ints("output_padding");
    std::vector<Axis> axes;
    for (size_t i = 0; i < n; ++i) {
      const int64_t taps = w.dims[i + 2].value();
      const bool is_one = x.dims[i + 2] == Dim(1);
      Axis axis;
      axis.dilation = strides[i] > 1 || is_one ? 1 : dilations[i];
      axis.spread = axis.dilation == 1 ? dilations[i] : 1;
      axis.window = (taps - 1) * axis.spread + 1;
      // Of a single element no stride is seen: by the longest, each tap is a phase.
      axis.stride = is_one ? std::max(axis.window, strides[i]) : strides[i];
      axis.pad_begin = pads[i];
      axis.pad_end = pads[n + i] - extra[i];
      axis.Join();
      axes.push_back(axis);
    }
    for (;;) {
      double all = 1, most = 1;
      size_t worst = n;
      for (size_t i = 0; i < n; ++i) {
        const double in_vain = axes[i].InVain(x.dims[i + 2]);
        all *= in_vain;
        if (axes[i].stride == 1) continue;
        Axis apart = axes[i];
        apart.Part();
        const double gain = in_vain / apart.InVain(x.dims[i + 2]);
        if (gain > most) {
          most = gain;
          worst = i;
        }
      }
      if (all <= kMaxInVain || worst == n) return axes;
      axes[worst].Part();
    }
  }

  size_t num_axes() const { return axes_.size(); }

  // [C, M/groups, taps..] as [groups, C/groups, M/groups, taps of a phase, phases, ..].
  absl::StatusOr<Operand> SplitWeights(Operand w, const ir::TensorType& type) {
    Dims dims = {type.dims[0], type.dims[1]};
    Dims split = {groups_, type.dims[0].value() / groups_, type.dims[1]};
    Ints pads(2 * type.dims.size(), 0);
    bool padded = false;
    for (size_t i = 0; i < num_axes(); ++i) {
      const Axis& axis = axes_[i];
      int64_t taps = type.dims[i + 2].value();
      if (axis.spread > 1) {
        INLAY_ASSIGN_OR_RETURN(w, Spread(w, static_cast<int>(i) + 2, axis.spread));
        taps *= axis.spread;
      }
      const int64_t whole = axis.max_taps() * axis.stride;
      pads[type.dims.size() + i + 2] = whole - taps;
      padded |= whole != taps;
      split.push_back(axis.max_taps());
      split.push_back(axis.stride);
    }
    if (padded) {
      INLAY_ASSIGN_OR_RETURN(w, Call("pad", {w}, {{"pads", pads}}));
    }
    return Reshape(w, split);
  }

  // Zeros behind each element of an axis.
  absl::StatusOr<Operand> Spread(const Operand& w, int axis, int64_t spread) {
    Dims dims = w.tensor_type().dims;
    Dims merged = dims;
    merged[axis] = dims[axis].value() * spread;
    dims.insert(dims.begin() + axis + 1, 1);
    Ints pads(2 * dims.size(), 0);
    pads[dims.size() + axis + 1] = spread - 1;
    INLAY_ASSIGN_OR_RETURN(Operand wide, Reshape(w, dims));
    INLAY_ASSIGN_OR_RETURN(wide, Call("pad", {wide}, {{"pads", pads}}));
    return Reshape(wide, merged);
  }

  // [N, M, phases.., positions..]; the phases of the first axes are those `chosen`, of the others all.
  absl::StatusOr<Operand> Phases(std::vector<const Group*> chosen) {
    const size_t axis = chosen.size();
    if (axis == num_axes()) return Convolve(chosen);
    std::vector<Operand> pieces;
    for (const Group& group : axes_[axis].groups) {
      chosen.push_back(&group);
      INLAY_ASSIGN_OR_RETURN(Operand piece, Phases(chosen));
      pieces.push_back(piece);
      chosen.pop_back();
    }
    if (pieces.size() == 1) return pieces[0];
    return Call("concat", std::move(pieces), {{"axis", static_cast<int64_t>(axis) + 2}});
  }

  absl::StatusOr<Operand> Convolve(const std::vector<const Group*>& chosen) {
    const Dims& split = args_[1].tensor_type().dims;
    const int64_t m = split[2].value() * groups_;
    Ints begins(3, 0), ends = {groups_, split[1].value(), split[2].value()}, steps(3, 1);
    Ints perm = {0, 2}, dilations, pads(2 * num_axes(), 0), crop(2 * (num_axes() + 2), 0);
    Dims shape = {0, split[1]};
    int64_t phases = 1;
    for (size_t i = 0; i < num_axes(); ++i) {
      const Group& g = *chosen[i];
      // The taps backwards.
      begins.insert(begins.end(), {g.taps - 1, g.first_tap});
      ends.insert(ends.end(), {INT64_MIN, g.first_tap + g.phases});
      steps.insert(steps.end(), {-1, 1});
      perm.push_back(4 + 2 * static_cast<int64_t>(i));
      shape.push_back(g.taps);
      phases *= g.phases;
      dilations.push_back(axes_[i].dilation);
      pads[i] = std::max<int64_t>(g.pad_begin, 0);
      pads[num_axes() + i] = std::max<int64_t>(g.pad_end, 0);
      crop[i + 2] = std::min<int64_t>(g.pad_begin, 0);
      crop[num_axes() + 2 + i + 2] = std::min<int64_t>(g.pad_end, 0);
    }
    perm.push_back(1);
    for (size_t i = 0; i < num_axes(); ++i) perm.push_back(3 + 2 * static_cast<int64_t>(i));
    shape[0] = m * phases;
    INLAY_ASSIGN_OR_RETURN(Operand w,
                           Call("slice", {args_[1]}, {{"begins", begins}, {"ends", ends}, {"steps", steps}}));
    INLAY_ASSIGN_OR_RETURN(w, Call("transpose", {w}, {{"perm", perm}}));
    INLAY_ASSIGN_OR_RETURN(w, Reshape(w, shape));
    Operand x = args_[0];
    if (std::any_of(crop.begin(), crop.end(), [](int64_t n) { return n != 0; })) {
      INLAY_ASSIGN_OR_RETURN(x, Call("pad", {x}, {{"pads", crop}}));
    }
    std::vector<Operand> args = {x, w};
    if (args_.size() > 2) {
      INLAY_ASSIGN_OR_RETURN(Operand bias, Reshape(args_[2], {m, 1}));
      INLAY_ASSIGN_OR_RETURN(bias, Call("expand", {bias}, {{"shape", Ints{m, phases}}}));
      INLAY_ASSIGN_OR_RETURN(bias, Reshape(bias, {m * phases}));
      args.push_back(bias);
    }
    INLAY_ASSIGN_OR_RETURN(
        Operand y, Call("conv", std::move(args), {{"dilations", dilations}, {"pads", pads}, {"groups", groups_}}));
    Dims dims = {y.tensor_type().dims[0], m};
    for (const Group* g : chosen) dims.push_back(g->phases);
    for (size_t i = 0; i < num_axes(); ++i) dims.push_back(y.tensor_type().dims[i + 2]);
    return Reshape(y, dims);
  }

  // Axis by axis, element q of phase r to stride * q + r.
  absl::StatusOr<Operand> TakeTurns(const Operand& phases, const ir::TensorType& out) {
    const Dims dims = phases.tensor_type().dims;
    const int n = static_cast<int>(num_axes());
    Ints perm = {0, 1}, begins(n + 2, 0), ends(n + 2, INT64_MAX);
    Dims merged = {dims[0], dims[1]};
    std::vector<std::string> names(n + 2);
    bool open = false;
    for (int i = 0; i < n; ++i) {
      perm.insert(perm.end(), {2 + n + i, 2 + i});
      INLAY_ASSIGN_OR_RETURN(Dim extent, ir::MulDims(dims[2 + n + i], axes_[i].stride));
      merged.push_back(extent);
      begins[i + 2] = axes_[i].crop;
      const Dim& wanted = out.dims[i + 2];
      if (wanted.is_static()) ends[i + 2] = axes_[i].crop + wanted.value();
      if (!wanted.is_static()) names[i + 2] = wanted.symbol();
      open |= !wanted.is_static();
    }
    INLAY_ASSIGN_OR_RETURN(Operand y, Call("transpose", {phases}, {{"perm", perm}}));
    INLAY_ASSIGN_OR_RETURN(y, Reshape(y, merged));
    if (merged == out.dims) return y;
    ir::Attrs attrs({{"begins", begins}, {"ends", ends}});
    if (open) attrs.Set("dims", names);
    return Call("slice", {y}, std::move(attrs));
  }

  // Of the call that is visited: x, w as SplitWeights makes it, perhaps a bias.
  std::vector<Operand> args_;
  int64_t groups_ = 1;
  std::vector<Axis> axes_;
};

class ExpandConvTransposePass : public FunctionPass {
 public:
  absl::string_view name() const override { return "expand_conv_transpose"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return ConvTransposeExpander().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> ExpandConvTranspose() { return std::make_unique<ExpandConvTransposePass>(); }

}  // namespace inlay::passes
