// What the schemas share: dtype classes, axes, broadcasting, lists that get completed. Private to core/ir/ops.
#ifndef INLAY_CORE_IR_OPS_COMMON_H_
#define INLAY_CORE_IR_OPS_COMMON_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"
#include "core/ir/op_registry.h"

namespace inlay::ir::ops {

// The letters of OPS.md.
enum class DTypes { kF, kI, kB, kN, kA, kNB };

bool Contains(DTypes set, DType dtype);
absl::Status CheckDType(const InferContext& ctx, int arg, DTypes set);
// Arguments first..last (last < 0: to the end) have the dtype of `first`.
absl::Status CheckSameDType(const InferContext& ctx, int first = 0, int last = -1);
absl::Status CheckRank(const InferContext& ctx, int arg, int rank);
// The argument's dims are those; a symbol fits only itself.
absl::Status CheckDims(const InferContext& ctx, int arg, const std::vector<Dim>& dims, absl::string_view meaning);

// INVALID_ARGUMENT naming the symbol where the extent of `axis` is open.
absl::StatusOr<int64_t> StaticExtent(const TensorType& type, int axis, absl::string_view what);

// NumPy's rule.
absl::StatusOr<std::vector<Dim>> Broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b);

// The extents that an attribute (ints) lists, with those that 'dims' (strings, may be absent) names in place of -1:
// "Symbolic extents" in OPS.md. Makes both canonical. A -1 that nothing names is *rest (null: refused), 1 in the
// result.
absl::StatusOr<std::vector<Dim>> ShapeAttr(const InferContext& ctx, int* rest, const std::string& attr = "shape");

// The same of one extent: an attribute (int), or -1 where 'dims' names it.
absl::StatusOr<Dim> ExtentAttr(const InferContext& ctx, const std::string& attr);

// The attribute's axis (of a tensor of that rank) made non-negative, also in the attribute.
absl::StatusOr<int> CanonicalAxis(const InferContext& ctx, absl::string_view name, int rank);
// Same of a list: distinct, sorted; empty or absent = all.
absl::StatusOr<std::vector<int64_t>> CanonicalAxes(const InferContext& ctx, absl::string_view name, int rank);
// A list that is absent or empty becomes `fill` times n; elements lie in [min, max].
absl::StatusOr<std::vector<int64_t>> CompleteInts(const InferContext& ctx, const std::string& name, int n, int64_t fill,
                                                  int64_t min, int64_t max = INT64_MAX);

// Attribute specs.
AttrSpec Required(std::string name, AttrKind kind);
AttrSpec RequiredChoice(std::string name, std::vector<std::string> choices);
AttrSpec WithDefault(std::string name, AttrKind kind, AttrValue value);
AttrSpec Choice(std::string name, std::string value, std::vector<std::string> choices);
AttrSpec MayBeAbsent(std::string name, AttrKind kind);

using InferFn = std::function<absl::StatusOr<Type>(const InferContext&)>;
OpSchema Schema(std::string name, int min_args, int max_args, std::vector<AttrSpec> attrs, OpPattern pattern,
                InferFn infer);

}  // namespace inlay::ir::ops

#endif  // INLAY_CORE_IR_OPS_COMMON_H_
