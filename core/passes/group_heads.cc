// A product by matrices of which several in a row are one and the same (grouped-query attention: heads of q that share
// keys and values) reads that one for all of them, where exporters repeat it in memory. The axis of heads is two then,
// which what follows keeps until something asks for one.
//
//   %1 = reshape(%k: f32[1, 4, 77, 64], shape=[1, 4, 1, 77, 64])       %1 = reshape(%k, shape=[1, 4, 1, 77, 64])
//   %2 = expand(%1, shape=[1, 4, 3, 77, 64])                           %2 = reshape(%q, shape=[1, 4, 3, 5, 64])
//   %3 = reshape(%2, shape=[1, 12, 77, 64])                  becomes
//   %4 = matmul(%q: f32[1, 12, 5, 64], %3, transpose_b=true)           %3 = matmul(%2, %1, transpose_b=true)
//   %5 = add(%4, %mask: f32[1, 1, 5, 77])                              %4 = add(%3, reshape(%mask, ..))
//   %6 = softmax(%5, axis=3)                                           %5 = softmax(%4, axis=4)
//                                                                      %6 = reshape(%5, shape=[1, 12, 5, 77])
//
// Of a row each, as when a token is generated, they are the rows of one product: %2 is f32[1, 4, 3, 64] and %1 is %k.
#include "absl/container/flat_hash_map.h"
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Dim;
using ir::Operand;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

// An axis that stands for two, the inner one behind the outer one or (as_rows) in the place of the next axis, whose
// extent is 1.
struct Pair {
  int axis = 0;
  int64_t outer = 1, inner = 1;
  bool as_rows = false;

  bool operator==(const Pair& p) const {
    return axis == p.axis && outer == p.outer && inner == p.inner && as_rows == p.as_rows;
  }
  // `dims`, broadcast to `rank` axes perhaps, with the two apart; nullopt where they can't be.
  absl::optional<Dims> Apart(Dims dims, int rank) const {
    const int at = axis - (rank - static_cast<int>(dims.size()));
    if (at < 0) return dims;
    const bool is_one = dims[at] == Dim(1);
    if (!is_one && dims[at] != Dim(outer * inner)) return absl::nullopt;
    const Dim within = is_one ? 1 : inner;
    if (!is_one) dims[at] = outer;
    if (as_rows) {
      dims[at + 1] = within;
    } else {
      dims.insert(dims.begin() + at + 1, within);
    }
    return dims;
  }
};

// A value whose axis is a pair, and what it was before the two were merged.
struct Merged {
  Operand apart;
  Pair pair;
};

class Grouper : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall || binding->args.empty() || !binding->var->type.is_tensor()) {
      return absl::nullopt;
    }
    const std::string& op = binding->callee;
    if (op == "matmul") return VisitMatmul(*binding);
    if (merged_.empty()) return absl::nullopt;
    if (op == "softmax") return VisitSoftmax(*binding);
    if (op == "transpose") return VisitTranspose(*binding);
    if (IsPointwise(*binding) && op != "batch_norm" && op != "expand") return VisitPointwise(*binding);
    return absl::nullopt;
  }

 private:
  // Of a repeated matrix, perhaps scaled by a number, cast or transposed since: before it was repeated, one of the
  // pair's extents 1.
  absl::StatusOr<absl::optional<Merged>> Unrepeated(const Operand& operand) {
    const Binding* def = Def(operand);
    if (def != nullptr && (def->IsCall("transpose") || def->IsCall("cast") || DefScaling(operand) != nullptr)) {
      INLAY_ASSIGN_OR_RETURN(absl::optional<Merged> before, Unrepeated(def->args[0]));
      if (!before.has_value()) return before;
      if (def->IsCall("transpose")) return Transposed(*before, def->attrs.Ints("perm"));
      std::vector<Operand> args = def->args;
      args[0] = before->apart;
      INLAY_ASSIGN_OR_RETURN(before->apart, Call(def->callee, std::move(args), def->attrs));
      return before;
    }
    const Binding* merge = DefCall(operand, "reshape");
    const Binding* expand = merge == nullptr ? nullptr : DefCall(merge->args[0], "expand");
    if (expand == nullptr) return absl::optional<Merged>();
    const Dims &from = expand->args[0].tensor_type().dims, &wide = expand->var->type.tensor().dims,
               &to = operand.tensor_type().dims;
    if (from.size() != wide.size() || wide.size() != to.size() + 1) return absl::optional<Merged>();
    for (int axis = 0; axis < static_cast<int>(to.size()) - 2; ++axis) {
      if (!wide[axis].is_static() || !wide[axis + 1].is_static()) continue;
      const Pair pair{axis, wide[axis].value(), wide[axis + 1].value()};
      if (pair.Apart(to, static_cast<int>(to.size())) != wide) continue;
      Dims once = wide;
      once[from[axis] != wide[axis] ? axis : axis + 1] = 1;
      if (from == once && from != wide) return absl::optional<Merged>({expand->args[0], pair});
    }
    return absl::optional<Merged>();
  }

  const Merged* FindMerged(const Operand& operand) const {
    const auto it = operand.var == nullptr ? merged_.end() : merged_.find(operand.var.get());
    return it == merged_.end() ? nullptr : &it->second;
  }

  absl::StatusOr<absl::optional<Merged>> Transposed(const Merged& value, const Ints& perm) {
    Ints apart;
    Pair pair = value.pair;
    for (size_t i = 0; i < perm.size(); ++i) {
      const int64_t axis = perm[i];
      apart.push_back(axis > value.pair.axis ? axis + 1 : axis);
      if (axis != value.pair.axis) continue;
      pair.axis = static_cast<int>(i);
      apart.push_back(axis + 1);
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("transpose", {value.apart}, {{"perm", apart}}));
    return absl::optional<Merged>({out, pair});
  }

  // nullopt where `pair` can't be.
  Replacement Apart(const Operand& operand, const Pair& pair, int rank) {
    if (const Merged* merged = FindMerged(operand); merged != nullptr && merged->pair == pair) return {merged->apart};
    const absl::optional<Dims> dims = pair.Apart(operand.tensor_type().dims, rank);
    if (!dims.has_value()) return absl::nullopt;
    if (*dims == operand.tensor_type().dims) return {operand};
    INLAY_ASSIGN_OR_RETURN(Operand apart, Reshape(operand, *dims));
    return {apart};
  }

  // In place of `binding`, whose result `apart` is but for the pair.
  Replacement Merge(const Binding& binding, const Operand& apart, const Pair& pair) {
    INLAY_ASSIGN_OR_RETURN(Operand out, Reshape(apart, binding.var->type.tensor().dims));
    merged_.insert_or_assign(out.var.get(), Merged{apart, pair});
    return {out};
  }

  Replacement VisitMatmul(const Binding& binding) {
    const Operand &a = binding.args[0], &b = binding.args[1];
    const int rank = binding.var->type.tensor().rank();
    if (a.tensor_type().rank() != rank || b.tensor_type().rank() != rank || rank < 3) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(absl::optional<Merged> matrices, Unrepeated(b));
    if (matrices.has_value()) {
      INLAY_RETURN_IF_ERROR(MakeRows(binding, &*matrices));
    } else {
      const Merged* rows = FindMerged(a);
      if (rows == nullptr || rows->pair.as_rows) return absl::nullopt;
      INLAY_ASSIGN_OR_RETURN(const absl::optional<Operand> apart, Apart(b, rows->pair, rank));
      if (!apart.has_value()) return absl::nullopt;
      matrices = Merged{*apart, rows->pair};
    }
    const Pair& pair = matrices->pair;
    if (pair.axis >= rank - 2 || a.tensor_type().dims[pair.axis] == Dim(1)) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(const absl::optional<Operand> rows, Apart(a, pair, rank));
    if (!rows.has_value()) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(Operand product, Call("matmul", {*rows, matrices->apart}, binding.attrs));
    return Merge(binding, product, pair);
  }

  // Single rows (a token's) of the heads that share a matrix are rows of one product by it, for which it stays as it
  // was.
  absl::Status MakeRows(const Binding& matmul, Merged* matrices) {
    Pair& pair = matrices->pair;
    Dims dims = matrices->apart.tensor_type().dims;
    const Dims& rows = matmul.args[0].tensor_type().dims;
    if (matmul.attrs.Bool("transpose_a") || pair.axis + 3 != static_cast<int>(rows.size()) ||
        rows[pair.axis + 1] != Dim(1) || dims[pair.axis] != Dim(pair.outer)) {
      return absl::OkStatus();
    }
    dims.erase(dims.begin() + pair.axis + 1);
    INLAY_ASSIGN_OR_RETURN(matrices->apart, Reshape(matrices->apart, dims));
    pair.as_rows = true;
    return absl::OkStatus();
  }

  Replacement VisitSoftmax(const Binding& binding) {
    const Merged* x = FindMerged(binding.args[0]);
    const int64_t last = binding.var->type.tensor().rank() - 1;
    if (x == nullptr || binding.attrs.Int("axis") != last || x->pair.axis >= last - 1) return absl::nullopt;
    const Pair pair = x->pair;
    const int64_t axis = x->apart.tensor_type().rank() - 1;
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("softmax", {x->apart}, {{"axis", axis}}));
    return Merge(binding, out, pair);
  }

  Replacement VisitTranspose(const Binding& binding) {
    const Merged* x = FindMerged(binding.args[0]);
    if (x == nullptr || x->pair.as_rows) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(const absl::optional<Merged> out, Transposed(*x, binding.attrs.Ints("perm")));
    return Merge(binding, out->apart, out->pair);
  }

  Replacement VisitPointwise(const Binding& binding) {
    const Dims& dims = binding.var->type.tensor().dims;
    const int rank = static_cast<int>(dims.size());
    const Merged* value = nullptr;
    for (const Operand& arg : binding.args) {
      if (value == nullptr && arg.type().is_tensor() && arg.tensor_type().dims == dims) value = FindMerged(arg);
    }
    if (value == nullptr) return absl::nullopt;
    const Pair pair = value->pair;
    std::vector<Operand> args;
    for (const Operand& arg : binding.args) {
      INLAY_ASSIGN_OR_RETURN(const absl::optional<Operand> apart, Apart(arg, pair, rank));
      if (!apart.has_value()) return absl::nullopt;
      args.push_back(*apart);
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(binding.callee, std::move(args), binding.attrs));
    return Merge(binding, out, pair);
  }

  absl::flat_hash_map<const ir::Var*, Merged> merged_;
};

class GroupHeadsPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "group_heads"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Grouper().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> GroupHeads() { return std::make_unique<GroupHeadsPass>(); }

}  // namespace inlay::passes
