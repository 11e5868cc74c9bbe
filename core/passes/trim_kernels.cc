// Cuts off a convolution's kernel the taps that meet nothing but padding, whatever the window: an image that came from
// few pixels has 3x3 kernels of which one tap is ever used, and so have dilated kernels on images smaller than they.
//
//   %1 = conv(%0: f32[1, 512, 1, 1], @w: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])     becomes
//   %1 = slice(@w, begins=[0, 0, 1, 1], ends=[512, 512, 2, 2])    %2 = conv(%0, %1, pads=[0, 0, 0, 0])
#include <algorithm>

#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Dim;
using ir::Operand;
using Ints = std::vector<int64_t>;

class Trimmer : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("conv")) return absl::nullopt;
    const std::vector<Dim>& in = binding->args[0].tensor_type().dims;
    const std::vector<Dim>& weights = binding->args[1].tensor_type().dims;
    const std::vector<Dim>& out = binding->var->type.tensor().dims;
    for (const std::vector<Dim>* dims : {&in, &weights, &out}) {
      if (std::any_of(dims->begin(), dims->end(), [](const Dim& d) { return !d.is_static(); })) return absl::nullopt;
    }
    const Ints &strides = binding->attrs.Ints("strides"), &dilations = binding->attrs.Ints("dilations");
    Ints pads = binding->attrs.Ints("pads");
    const size_t spatial = strides.size();
    Ints begins(weights.size(), 0), ends;
    for (const Dim& dim : weights) ends.push_back(dim.value());
    bool cuts = false;
    for (size_t i = 0; i < spatial; ++i) {
      int64_t &begin = begins[i + 2], &end = ends[i + 2], &before = pads[i], &after = pads[i + spatial];
      const int64_t last_window = (out[i + 2].value() - 1) * strides[i], d = dilations[i];
      const int64_t low = before;  // taps are counted from where the first window begins
      auto is_before = [&](int64_t tap) { return last_window - low + tap * d < 0; };
      auto is_behind = [&](int64_t tap) { return tap * d - low >= in[i + 2].value(); };
      for (; begin + 1 < end && before >= d && is_before(begin); before -= d) ++begin;
      for (; begin + 1 < end && after >= d && is_behind(end - 1); after -= d) --end;
      cuts |= end - begin < weights[i + 2].value();
    }
    if (!cuts) return absl::nullopt;
    std::vector<Operand> args = binding->args;
    INLAY_ASSIGN_OR_RETURN(
        args[1], Call("slice", {args[1]}, {{"begins", begins}, {"ends", ends}, {"steps", Ints(begins.size(), 1)}}));
    ir::Attrs attrs = binding->attrs;
    attrs.Set("pads", pads);
    INLAY_ASSIGN_OR_RETURN(Operand trimmed, Call("conv", std::move(args), std::move(attrs)));
    return {trimmed};
  }
};

class TrimKernelsPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "trim_kernels"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Trimmer().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> TrimKernels() { return std::make_unique<TrimKernelsPass>(); }

}  // namespace inlay::passes
