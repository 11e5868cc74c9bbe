// A product of a vector and a matrix that an index says, as exporters write a mixture of experts, reads the matrix
// where it lies; the gather would copy one for each vector, of which many have the same.
//
//   %1 = gather(%w: f32[8, 1024, 256], %which: i64[128], axis=0)       %1 = reshape(%x, shape=[128, 256])
//   %2 = matmul(%1, %x: f32[128, 256, 1])                     becomes  %2 = gather_matmul(%1, %w, %which,
//                                                                                         transpose_b=true)
//   (also matmul(%x: f32[128, 1, 256], %1),                            %3 = reshape(%2, shape=[128, 1024, 1])
//   also with cast(%1) in place of %1)
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

// Of a matrix; a smaller one is copied sooner than rows are sorted.
constexpr int64_t kLeastElements = 1024;

class Recogniser : public Rewriter {
 public:
  Recogniser() : Rewriter(/*counts_uses=*/true) {}

 protected:
  Replacement Visit(Binding* binding) override {
    if (!binding->IsCall("matmul") || !ir::IsFloat(binding->var->type.tensor().dtype)) return absl::nullopt;
    for (int side : {0, 1}) {
      INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> product, Gathered(*binding, side));
      if (product.has_value()) return product;
    }
    return absl::nullopt;
  }

 private:
  // Where argument `side` is gathered matrices.
  Replacement Gathered(const Binding& product, int side) {
    const Operand &matrices = product.args[side], &vectors = product.args[1 - side];
    // Weights of 16 bits may be widened first: that is done once, when the model is loaded.
    const Binding* cast = DefCall(matrices, "cast");
    const Operand& gathered = cast != nullptr ? cast->args[0] : matrices;
    const Binding* gather = DefCall(gathered, "gather");
    if (gather == nullptr || gather->attrs.Int("axis") != 0) return absl::nullopt;
    if (!HasOneUse(matrices) || !HasOneUse(gathered)) return absl::nullopt;
    if (cast != nullptr && !gather->args[0].is_weight()) return absl::nullopt;
    const ir::TensorType& table = gather->args[0].tensor_type();
    if (table.rank() != 3 || !table.is_static() || table.dims[0] == Dim(0)) return absl::nullopt;
    if (table.NumElements() / table.dims[0].value() < kLeastElements) return absl::nullopt;
    std::vector<Dim> batch = gather->args[1].tensor_type().dims, dims = vectors.tensor_type().dims;
    const bool transposed[] = {product.attrs.Bool("transpose_a"), product.attrs.Bool("transpose_b")};
    if (dims.size() != batch.size() + 2) return absl::nullopt;
    // The extent that is not summed over.
    const size_t free = dims.size() - ((side == 1) != transposed[1 - side] ? 2 : 1);
    if (dims[free] != Dim(1) || !std::equal(batch.begin(), batch.end(), dims.begin())) return absl::nullopt;
    Dim rows = 1;
    for (const Dim& dim : batch) {
      INLAY_ASSIGN_OR_RETURN(rows, ir::MulDims(rows, dim));
    }
    const bool in_columns = side == 0 ? !transposed[0] : transposed[1];  // which are summed over
    INLAY_ASSIGN_OR_RETURN(Operand x, Reshape(vectors, {rows, table.dims[in_columns ? 2 : 1]}));
    INLAY_ASSIGN_OR_RETURN(Operand which, Reshape(gather->args[1], {rows}));
    Operand all = gather->args[0];
    if (cast != nullptr) {
      INLAY_ASSIGN_OR_RETURN(all, Call("cast", {all}, cast->attrs));
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("gather_matmul", {x, all, which}, {{"transpose_b", in_columns}}));
    INLAY_ASSIGN_OR_RETURN(out, Reshape(out, product.var->type.tensor().dims));
    return {out};
  }
};

class RecogniseGatherMatmulPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "recognise_gather_matmul"; }
  int min_opt_level() const override { return 1; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Recogniser().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> RecogniseGatherMatmul() { return std::make_unique<RecogniseGatherMatmulPass>(); }

}  // namespace inlay::passes
