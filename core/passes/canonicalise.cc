// One form for what has many. Attributes are canonical already (inference makes axes non-negative and lists complete).
//
//   %1 = identity(%0)                                 %0
//   %1 = cast(%0: f32, dtype=f32)                     %0
//   %1 = reshape(%0), same type                       %0
//     (also slice, pad, expand, tile, transpose, concat)
//   %2 = reshape(reshape(%0))                         %1 = reshape(%0)
//   %2 = transpose(transpose(%0))                     %1 = transpose(%0), one permutation
//   %1 = transpose(%0) of extents of 1                %1 = reshape(%0)
//   %1 = reduce_max(%0) over extents of 1             %1 = reshape(%0)
//   %1 = tile(%0), along rows                         %1 = reshape(tile(reshape(%0))), row by row
//   %2 = matmul(%0, transpose(%1)) of the last two    %2 = matmul(%0, %1, transpose_b=true)
//     (also mul(transpose(%1), a number), gather_matmul)
//   %1 = (%a, %b); %2 = %1.0                          %a
#include <algorithm>

#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;
using Ints = std::vector<int64_t>;

bool IsIdentityPermutation(const Ints& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Whether the axes that have an extent other than 1 keep their order.
bool MovesOnlyUnitAxes(const Ints& perm, const std::vector<ir::Dim>& dims) {
  int64_t last = -1;
  for (int64_t p : perm) {
    if (dims[p] == ir::Dim(1)) continue;
    if (p < last) return false;
    last = p;
  }
  return true;
}

class Canonicaliser : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind == Binding::Kind::kTupleGetItem) return VisitGetItem(*binding);
    if (binding->kind != Binding::Kind::kCall) return absl::nullopt;
    const std::string& op = binding->callee;
    if (op == "identity") return {binding->args[0]};
    if (op == "matmul") return VisitMatmul(binding);
    if (op == "gather_matmul") return VisitGatherMatmul(binding);
    if (op == "reshape") return VisitReshape(binding);
    if (op == "transpose") return VisitTranspose(binding);
    if (op == "cast" || op == "expand") return SameTypeIsNoOp(*binding);
    if (op == "tile") return VisitTile(*binding);
    if (op == "slice") return VisitSlice(*binding);
    if (op == "pad") return VisitPad(*binding);
    if (op == "concat" && binding->args.size() == 1) return {binding->args[0]};
    if (op == "reduce_sum" || op == "reduce_mean" || op == "reduce_prod" || op == "reduce_max" || op == "reduce_min") {
      return VisitReduce(*binding);
    }
    return absl::nullopt;
  }

 private:
  static Replacement SameTypeIsNoOp(const Binding& binding) {
    if (binding.args[0].type() == binding.var->type) return {binding.args[0]};
    return absl::nullopt;
  }

  // A row that follows itself is several of an axis of their own: whose element each is, no element asks then.
  Replacement VisitTile(const Binding& binding) {
    constexpr int64_t kMinRow = 8;
    constexpr size_t kMaxRank = 6;
    const ir::TensorType& x = binding.args[0].tensor_type();
    Ints repeats = binding.attrs.Ints("repeats");
    if (x == binding.var->type.tensor()) return {binding.args[0]};
    if (!x.is_static() || repeats.empty() || repeats.size() > kMaxRank) return absl::nullopt;
    Ints shape = x.Shape();
    if (repeats.back() < 2 || shape.back() < kMinRow) return absl::nullopt;
    shape.insert(shape.end() - 1, 1);
    repeats.push_back(1);
    INLAY_ASSIGN_OR_RETURN(Operand rows, Call("reshape", {binding.args[0]}, {{"shape", shape}}));
    INLAY_ASSIGN_OR_RETURN(Operand tiled, Call("tile", {rows}, {{"repeats", repeats}}));
    return Reshape(tiled, binding.var->type.tensor());
  }

  Replacement VisitGetItem(const Binding& binding) {
    const Binding* def = Def(binding.args[0]);
    if (def != nullptr && def->kind == Binding::Kind::kTuple) return {def->args[binding.index]};
    if (def != nullptr && def->IsCall("split") && def->attrs.Ints("sizes").size() == 1) return {def->args[0]};
    return absl::nullopt;
  }

  Replacement Reshape(const Operand& x, const ir::TensorType& type) {
    if (x.tensor_type() == type) return {x};
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("reshape", {x}, {{"shape", type.Shape()}}));
    return {out};
  }

  Replacement VisitReshape(Binding* binding) {
    if (binding->args[0].type() == binding->var->type) return {binding->args[0]};
    const Binding* inner = DefCall(binding->args[0], "reshape");
    if (inner == nullptr) return absl::nullopt;
    // With a symbol and -1, the shape must mean the same of the inner argument.
    ir::Attrs attrs = binding->attrs;
    absl::StatusOr<Operand> out = Call("reshape", {inner->args[0]}, attrs);
    if (!out.ok() || out->type() != binding->var->type) return absl::nullopt;
    if (out->type() == inner->args[0].type()) return {inner->args[0]};
    return {*out};
  }

  Replacement VisitTranspose(Binding* binding) {
    Ints perm = binding->attrs.Ints("perm");
    if (const Binding* inner = DefCall(binding->args[0], "transpose")) {
      const Ints& inner_perm = inner->attrs.Ints("perm");
      for (int64_t& p : perm) p = inner_perm[p];
      binding->args[0] = Operand(inner->args[0]);
      binding->attrs.Set("perm", perm);
    }
    if (IsIdentityPermutation(perm)) return {binding->args[0]};
    const ir::TensorType& type = binding->var->type.tensor();
    if (type.is_static() && MovesOnlyUnitAxes(perm, binding->args[0].tensor_type().dims)) {
      return Reshape(binding->args[0], type);
    }
    return absl::nullopt;
  }

  Replacement VisitSlice(const Binding& binding) {
    if (binding.args[0].type() != binding.var->type) return absl::nullopt;
    // All of a static axis with a step of 1, or a reversal: the type does not tell.
    const Ints& steps = binding.attrs.Ints("steps");
    if (std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s < 0; })) return absl::nullopt;
    return {binding.args[0]};
  }

  Replacement VisitPad(const Binding& binding) {
    const Ints& pads = binding.attrs.Ints("pads");
    if (std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; })) return absl::nullopt;
    return {binding.args[0]};
  }

  Replacement VisitReduce(const Binding& binding) {
    const ir::TensorType& x = binding.args[0].tensor_type();
    for (int64_t axis : binding.attrs.Ints("axes")) {
      if (x.dims[axis] != ir::Dim(1)) return absl::nullopt;
    }
    if (x == binding.var->type.tensor()) return {binding.args[0]};
    if (!binding.var->type.tensor().is_static()) return absl::nullopt;
    return Reshape(binding.args[0], binding.var->type.tensor());
  }

  // Takes a transposition of an argument's last two axes into the matmul's flag. Of another permutation that puts the
  // argument's last axis next to last (as exporters make of K in attention, 0231), the swap is taken, and a permutation
  // that keeps the last axis in its place stays: cheaper, and the same as that of Q and V.
  // Also where it is scaled by a literal number since.
  absl::Status AbsorbTranspose(Binding* binding, int i, const char* flag) {
    const Binding* scaled = DefScaling(binding->args[i]);
    if (scaled != nullptr && !scaled->args[1].is_literal()) scaled = nullptr;
    const Binding* def = DefCall(scaled == nullptr ? binding->args[i] : scaled->args[0], "transpose");
    if (def == nullptr) return absl::OkStatus();
    Ints perm = def->attrs.Ints("perm");
    const size_t rank = perm.size();
    if (rank < 2 || perm[rank - 2] != static_cast<int64_t>(rank) - 1) return absl::OkStatus();
    std::swap(perm[rank - 2], perm[rank - 1]);
    Operand argument = def->args[0];
    if (!IsIdentityPermutation(perm)) {
      INLAY_ASSIGN_OR_RETURN(argument, Call("transpose", {argument}, {{"perm", perm}}));
    }
    if (scaled != nullptr) {
      INLAY_ASSIGN_OR_RETURN(argument, Call(scaled->callee, {argument, scaled->args[1]}, scaled->attrs));
    }
    binding->args[i] = argument;
    binding->attrs.Set(flag, !binding->attrs.Bool(flag));
    return absl::OkStatus();
  }

  Replacement VisitMatmul(Binding* binding) {
    if (binding->args[0].tensor_type().rank() < 2 || binding->args[1].tensor_type().rank() < 2) return absl::nullopt;
    INLAY_RETURN_IF_ERROR(AbsorbTranspose(binding, 0, "transpose_a"));
    INLAY_RETURN_IF_ERROR(AbsorbTranspose(binding, 1, "transpose_b"));
    return absl::nullopt;
  }

  Replacement VisitGatherMatmul(Binding* binding) {
    INLAY_RETURN_IF_ERROR(AbsorbTranspose(binding, 1, "transpose_b"));
    return absl::nullopt;
  }
};

class CanonicalisePass : public FunctionPass {
 public:
  absl::string_view name() const override { return "canonicalise"; }
  int min_opt_level() const override { return 0; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Canonicaliser().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> Canonicalise() { return std::make_unique<CanonicalisePass>(); }

}  // namespace inlay::passes
