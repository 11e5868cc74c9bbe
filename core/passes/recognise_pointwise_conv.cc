// A linear layer over an image's channels, for which these are moved to the end and back, is a convolution of one
// pixel. Such are the products that mix attention's heads, whose images are the scores (CaiT).
//
//   %1 = transpose(%0: f32[1, 6, 576, 576], perm=[0, 2, 1, 3])
//   %2 = matmul(%1, @w: f32[6, 8], transpose_a=true)
//   %3 = add(%2, @b: f32[8])                            becomes    %1 = reshape(transpose(@w), shape=[8, 6, 1, 1])
//   %4 = transpose(%3, perm=[0, 3, 1, 2])                          %2 = conv(%0, %1, @b)
//
// Also with all of the first transpose in its perm, [0, 2, 3, 1]; canonicalise leaves the last step of it to matmul.
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;
using ir::TensorType;
using Ints = std::vector<int64_t>;

class Recogniser : public Rewriter {
 public:
  Recogniser() : Rewriter(/*counts_uses=*/true) {}

 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("transpose")) return absl::nullopt;
    const TensorType& out = binding->var->type.tensor();
    const int rank = out.rank();
    if (rank < 4 || rank > 5 || !ir::IsFloat(out.dtype)) return absl::nullopt;
    Ints to_last(rank), to_first(rank);
    for (int i = 1; i < rank; ++i) {
      to_last[i] = i + 1 < rank ? i + 1 : 1;
      to_first[i] = i > 1 ? i - 1 : rank - 1;
    }
    if (binding->attrs.Ints("perm") != to_first) return absl::nullopt;
    absl::optional<Operand> bias;
    const Binding* matmul = Product(binding->args[0], &bias);
    if (matmul == nullptr) return absl::nullopt;
    const Binding* channels_last = DefCall(matmul->args[0], "transpose");
    if (matmul->attrs.Bool("transpose_a")) std::swap(to_last[rank - 2], to_last[rank - 1]);
    if (channels_last == nullptr || channels_last->attrs.Ints("perm") != to_last) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(Operand conv, Convolution(channels_last->args[0], *matmul, bias));
    return {conv};
  }

 private:
  // The product with weights, and what is added to it for each channel; nullptr where `value` is none.
  const Binding* Product(const Operand& value, absl::optional<Operand>* bias) const {
    if (!HasOneUse(value)) return nullptr;
    if (const Binding* add = DefCall(value, "add")) {
      for (int i = 0; i < 2; ++i) {
        if (!IsPerChannel(add->args[i], value.tensor_type().dims.back())) continue;
        *bias = add->args[i];
        absl::optional<Operand> none;
        const Binding* matmul = DefCall(add->args[1 - i], "matmul");
        return matmul == nullptr ? nullptr : Product(add->args[1 - i], &none);
      }
      return nullptr;
    }
    const Binding* matmul = DefCall(value, "matmul");
    const bool is_linear =
        matmul != nullptr && matmul->args[1].constant != nullptr && matmul->args[1].tensor_type().rank() == 2;
    return is_linear ? matmul : nullptr;
  }

  static bool IsPerChannel(const Operand& operand, const ir::Dim& channels) {
    if (operand.constant == nullptr) return false;
    const std::vector<ir::Dim>& dims = operand.tensor_type().dims;
    for (size_t i = 0; i + 1 < dims.size(); ++i) {
      if (dims[i] != ir::Dim(1)) return false;
    }
    return !dims.empty() && dims.back() == channels;
  }

  absl::StatusOr<Operand> Convolution(const Operand& x, const Binding& matmul, const absl::optional<Operand>& bias) {
    Operand w = matmul.args[1];
    if (!matmul.attrs.Bool("transpose_b")) {
      INLAY_ASSIGN_OR_RETURN(w, Call("transpose", {w}, {{"perm", Ints{1, 0}}}));
    }
    Ints shape(x.tensor_type().rank(), 1);
    for (int i = 0; i < 2; ++i) shape[i] = w.tensor_type().dims[i].value();
    INLAY_ASSIGN_OR_RETURN(w, Call("reshape", {w}, {{"shape", shape}}));
    std::vector<Operand> args = {x, w};
    if (bias.has_value()) {
      INLAY_ASSIGN_OR_RETURN(Operand b, Call("reshape", {*bias}, {{"shape", Ints{shape[0]}}}));
      args.push_back(b);
    }
    return Call("conv", std::move(args));
  }
};

class RecognisePointwiseConvPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "recognise_pointwise_conv"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Recogniser().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> RecognisePointwiseConv() { return std::make_unique<RecognisePointwiseConvPass>(); }

}  // namespace inlay::passes
