// Products of few rows by a matrix that nobody packed: a token's query by its keys, its weights by the values. Every
// element of the matrix meets these rows alone, so what counts is that it is read once, in the order in which it lies
// in memory.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_FEW_ROWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_FEW_ROWS_H_

#include <functional>
#include <optional>

#include "core/backends/native/extent.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/packing.h"

namespace inlay::native {

// C[rows, columns] = P[rows, k] * Q[k, columns].
struct FewRows {
  // Which of Q's axes is contiguous in memory.
  enum class Order {
    kColumns,  // along k: a sum is a dot product, those of neighbouring columns are a vector
    kRows,     // along the columns: rows of Q are added, each times an element of P; sums are in scratch meanwhile
  };
  Order order = Order::kRows;
  int64_t rows = 1;
  Extent columns, k;  // kColumns: k is static; kRows: the columns are
  int64_t lanes = 8;
  int64_t vectors = 8;        // kRows: whose sums a row of Q is added to at a time
  int64_t block = 16;         // kRows: rows of Q that all columns meet before the next ones
  int64_t element_bytes = 4;  // of Q

  // Of columns, that a task has: tasks begin at multiples of it.
  int64_t unit() const { return order == Order::kRows ? vectors * lanes : kColumnsOfTask; }
  int64_t scratch_bytes(int64_t accumulator_bytes) const;
  // Where a product of the columns [first, stop) may end so that it has those of the first `some`; null: all.
  mlir::Value Until(Ops& o, mlir::Value first, mlir::Value stop, mlir::Value some) const;
  // Of one matrix; at least one.
  Extent tasks() const { return Extent::Max(CeilDiv(columns, unit()), 1); }
  double task_cycles() const;

  static constexpr int64_t kColumnsOfTask = 64;
};

// Where that is sooner than tiles.
std::optional<FewRows> PlanFewRows(const Core& core, const GemmTypes& types, const Extent& rows,
                                   const Extent& p_k_stride, const Matrices& q);

// A scalar, or a vector of columns [column, column + lanes) that all exist.
using StoreSums = std::function<void(mlir::Value row, mlir::Value column, mlir::Value sums)>;

// Columns [begin, end): begin a multiple of unit(), end too, or all columns. P's rows are `p.j_stride` apart.
// `scratch`: plan.scratch_bytes(). `k`: unless null, of kRows, how many rows of Q count.
void EmitFewRows(Ops& o, const FewRows& plan, const GemmTypes& types, const StridedMatrix& p, const StridedMatrix& q,
                 mlir::Value begin, mlir::Value end, mlir::Value scratch, const StoreSums& store,
                 mlir::Value k = nullptr);

// Tasks [begin, end) of as many matrices as there are: columns [first, stop) of each that they have a part of.
void ForMatrices(Ops& o, const FewRows& plan, mlir::Value begin, mlir::Value end,
                 const std::function<void(mlir::Value matrix, mlir::Value first, mlir::Value stop)>& body);

// A matmul, with open extents or without.
void EmitFewRowsMatmul(FunctionEmitter& f, const Node& matmul, const FewRows& plan, const GemmTypes& types,
                       const Matrices& a, const Matrices& b, const ProductShape& shape);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_FEW_ROWS_H_
