// Writes batch_norm as a multiplication and an addition by values that follow from its parameters alone. No backend
// sees batch_norm; fold_scale_bias then takes both into the convolution or matmul before them, and
// lift_transform_params takes the computation of the two values out of main.
//
//   %1 = batch_norm(%0, @scale, @bias, @mean, @var, epsilon=1e-05)
// becomes
//   %s = mul(@scale, rsqrt(add(@var, 1e-05)))
//   %t = sub(@bias, mul(@mean, %s))
//   %1 = add(mul(%0, reshape(%s, [C, 1, 1])), reshape(%t, [C, 1, 1]))
//
// In f16 and bf16 the two values are computed in f32: var + epsilon would lose epsilon.
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::DType;
using ir::Operand;

class BatchNormExpander : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("batch_norm")) return absl::nullopt;
    const ir::TensorType x = binding->args[0].tensor_type();
    if (!x.dims[1].is_static()) {
      return absl::InvalidArgumentError("the number of channels, '" + x.dims[1].symbol() +
                                        "', is symbolic; fix its value");
    }
    const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    Operand params[4] = {binding->args[1], binding->args[2], binding->args[3], binding->args[4]};
    for (Operand& param : params) {
      if (x.dtype == wide) continue;
      INLAY_ASSIGN_OR_RETURN(param, Call("cast", {param}, {{"dtype", wide}}));
    }
    const double epsilon = binding->attrs.Float("epsilon");
    INLAY_ASSIGN_OR_RETURN(Operand variance, Call("add", {params[3], ir::MakeScalar(wide, epsilon)}));
    INLAY_ASSIGN_OR_RETURN(Operand inverse, Call("rsqrt", {variance}));
    INLAY_ASSIGN_OR_RETURN(Operand scale, Call("mul", {params[0], inverse}));
    INLAY_ASSIGN_OR_RETURN(Operand moved, Call("mul", {params[2], scale}));
    INLAY_ASSIGN_OR_RETURN(Operand bias, Call("sub", {params[1], moved}));
    INLAY_ASSIGN_OR_RETURN(scale, PerChannel(scale, x));
    INLAY_ASSIGN_OR_RETURN(bias, PerChannel(bias, x));
    INLAY_ASSIGN_OR_RETURN(Operand scaled, Call("mul", {binding->args[0], scale}));
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("add", {scaled, bias}));
    return {out};
  }

 private:
  // [C] -> [C,1,...], which broadcasts against [N,C,...], in x's dtype.
  absl::StatusOr<Operand> PerChannel(Operand value, const ir::TensorType& x) {
    if (value.tensor_type().dtype != x.dtype) {
      INLAY_ASSIGN_OR_RETURN(value, Call("cast", {value}, {{"dtype", x.dtype}}));
    }
    std::vector<int64_t> shape(x.rank() - 1, 1);
    shape[0] = x.dims[1].value();
    if (shape.size() == 1) return value;
    return Call("reshape", {value}, {{"shape", shape}});
  }
};

class ExpandBatchNormPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "expand_batch_norm"; }
  int min_opt_level() const override { return 0; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return BatchNormExpander().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> ExpandBatchNorm() { return std::make_unique<ExpandBatchNormPass>(); }

}  // namespace inlay::passes
