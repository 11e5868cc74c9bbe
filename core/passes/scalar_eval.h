// The value of one element of an elementwise operator, as OPS.md defines it. What fold_constants computes with.
#ifndef INLAY_CORE_PASSES_SCALAR_EVAL_H_
#define INLAY_CORE_PASSES_SCALAR_EVAL_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/ir/ir_module.h"

namespace inlay::passes {

// One element: a float as a double (exact), an integer or bool as an int64.
struct Scalar {
  ir::DType dtype = ir::DType::kF32;
  double f = 0;
  int64_t i = 0;

  bool is_float() const { return ir::IsFloat(dtype); }
};

Scalar Load(ir::DType dtype, absl::string_view data, int64_t index);
// Rounds (f16 and bf16 through f32, as backends compute), wraps.
void Append(const Scalar& value, std::string* data);

// nullopt: not an operator that is evaluated here. The result has the dtype that inference gives.
absl::optional<Scalar> EvalUnary(absl::string_view op, const Scalar& x);
absl::optional<Scalar> EvalBinary(absl::string_view op, const Scalar& a, const Scalar& b);
Scalar EvalCast(const Scalar& x, ir::DType dtype);

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_SCALAR_EVAL_H_
