// Products by few columns: a column fills no vector, so rows and columns are read along k, and each sum is a dot
// product.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DOT_PRODUCTS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DOT_PRODUCTS_H_

#include <optional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"

namespace inlay::native {

// A product that can be computed so: of one matrix by one b.
struct DotProducts {
  int64_t n = 0, k = 0;
  int64_t rows = 4;  // whose sums are in registers at a time
  int64_t lanes = 8;

  double group_cycles() const;  // of so many rows
};

// Where that is clearly faster than `other`, which is planned for about as many rows as a has, and both operands' k
// are, or can be packed to be, side by side.
std::optional<DotProducts> PlanDotProducts(const GemmPlan& other, const GemmTypes& types, const Matrices& a,
                                           const Matrices& b, bool constant);

void EmitDotProducts(FunctionEmitter& f, const Node& matmul, const DotProducts& dots, const GemmTypes& types,
                     const Matrices& a, const Matrices& b, const ProductShape& shape);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DOT_PRODUCTS_H_
