// Takes zeros that are put around an image into the padding of the convolution or average pooling that reads it.
//
//   %1 = pad(%0, pads=[0, 0, 1, 1, 0, 0, 1, 1])
//   %2 = conv(%1, @w, pads=[0, 0, 0, 0])           becomes      %2 = conv(%0, @w, pads=[1, 1, 1, 1])
//
// MobileNetV2 as TensorFlow pads it has one before every depthwise convolution.
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using Ints = std::vector<int64_t>;

class PadFolder : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    const bool conv = binding->IsCall("conv");
    if (!conv && !binding->IsCall("avg_pool")) return absl::nullopt;
    const Binding* pad = DefCall(binding->args[0], "pad");
    if (pad == nullptr || pad->attrs.String("mode") != "constant" || pad->attrs.Float("value") != 0) {
      return absl::nullopt;
    }
    const Ints& around = pad->attrs.Ints("pads");
    const int rank = static_cast<int>(around.size()) / 2, spatial = rank - 2;
    Ints pads = binding->attrs.Ints("pads");
    const bool had_pads = pads != Ints(pads.size(), 0);
    for (int i = 0; i < 2 * rank; ++i) {
      const int axis = i % rank;
      if (around[i] < 0 || (axis < 2 && around[i] != 0)) return absl::nullopt;
      if (axis >= 2) pads[(i < rank ? 0 : spatial) + axis - 2] += around[i];
    }
    ir::Attrs attrs = binding->attrs;
    attrs.Set("pads", pads);
    if (!conv) {
      // The zeros counted as elements; in ceil_mode the last window may reach beyond them.
      if (attrs.Bool("ceil_mode") || (had_pads && !attrs.Bool("count_include_pad"))) return absl::nullopt;
      attrs.Set("count_include_pad", true);
    }
    std::vector<ir::Operand> args = binding->args;
    args[0] = ir::Operand(pad->args[0]);
    // Pooling refuses windows that hold padding only; then the pad stays.
    absl::StatusOr<ir::Operand> out = Call(binding->callee, std::move(args), std::move(attrs));
    if (!out.ok() || out->type() != binding->var->type) return absl::nullopt;
    return {*out};
  }
};

class FoldPadsPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "fold_pads"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return PadFolder().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> FoldPads() { return std::make_unique<FoldPadsPass>(); }

}  // namespace inlay::passes
