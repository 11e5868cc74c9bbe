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
    for (const ir::Dim& dim : out.dims) {
      if (dim == ir::Dim(0)) return absl::nullopt;  // conv has no word for an image without pixels
    }
    Ints to_last(rank), to_first(rank);
    for (int i = 1; i < rank; ++i) {
      to_last[i] = i + 1 < rank ? i + 1 : 1;
      to_first[i] = i > 1 ? i - 1 : rank - 1;
    }
    if (binding->attrs.Ints("perm") != to_first) return absl::nullopt;
    Operand value = binding->args[0];
    const absl::optional<Operand> bias = TakeBias(&value);
    const Binding* matmul = Product(value);
    if (matmul == nullptr) return absl::nullopt;
    const Binding* channels_last = DefCall(matmul->args[0], "transpose");
    if (matmul->attrs.Bool("transpose_a")) std::swap(to_last[rank - 2], to_last[rank - 1]);
    if (channels_last == nullptr || channels_last->attrs.Ints("perm") != to_last) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(Operand conv, Convolution(channels_last->args[0], *matmul, bias));
    return {conv};
  }

 private:
  // What is added to a value for each of its channels, and the value before that. Broadcasting must not make it larger.
  absl::optional<Operand> TakeBias(Operand* value) const {
    const Binding* add = HasOneUse(*value) ? DefCall(*value, "add") : nullptr;
    for (int i = 0; add != nullptr && i < 2; ++i) {
      const Operand &term = add->args[i], &rest = add->args[1 - i];
      if (rest.type() != value->type() || !IsPerChannel(term, value->tensor_type().dims.back())) continue;
      *value = rest;
      return term;
    }
    return absl::nullopt;
  }

  // With weights; nullptr where `value` is none.
  const Binding* Product(const Operand& value) const {
    const Binding* matmul = HasOneUse(value) ? DefCall(value, "matmul") : nullptr;
    if (matmul == nullptr || matmul->args[1].constant == nullptr) return nullptr;
    const TensorType& w = matmul->args[1].tensor_type();
    return w.rank() == 2 && w.NumElements() > 0 ? matmul : nullptr;
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
