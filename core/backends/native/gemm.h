// Emits the tiled contraction of a GemmPlan as MLIR (scf, arith, LLVM) at a builder's insertion point.
//
// The caller owns the function around it (the body of a parallel_for task), the meaning of the operands' pointers and
// the epilogue, which turns accumulators into stores; this file owns loops, register tiles and blocking. Emission is
// single-threaded as its builder is; nothing is kept.
#ifndef INLAY_CORE_BACKENDS_NATIVE_GEMM_H_
#define INLAY_CORE_BACKENDS_NATIVE_GEMM_H_

#include <functional>
#include <utility>

#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/kernel_builder.h"
#include "core/backends/native/microkernel.h"

namespace inlay::native {

// Offset, in elements, of a batch element's matrix; absent: one matrix for all.
using BatchOffset = std::function<mlir::Value(KernelBuilder&, mlir::Value batch)>;

// Row r of tile i lies at i * tile_stride + r * row_stride, its elements k_stride apart; of a plain matrix row i at
// i * row_stride.
struct RowOperand {
  mlir::Value pointer;
  mlir::Type element;  // as stored; f16 and bf16 are widened as they are read
  int64_t row_stride = 0;
  int64_t k_stride = 1;
  int64_t tile_stride = 0;    // 0: a plain matrix
  std::vector<int64_t> rows;  // unless empty: where the rows of a tile lie, in place of i * row_stride
  // Instead of tile_stride: where tile i begins.
  std::function<mlir::Value(KernelBuilder&, mlir::Value tile)> tile_offset;
  // Instead of all these: where row r of tile i lies.
  std::function<mlir::Value(KernelBuilder&, mlir::Value tile, int64_t r)> row_offset;
  // Instead of one loop on k: k_stride is the outermost's, these are within it. plan.kc is a multiple of their product.
  std::vector<InnerLoop> inner;
  // Unless empty: sets which of their iterations a tile computes.
  std::function<void(KernelBuilder&, mlir::Value tile, std::vector<InnerLoop>* inner)> bound_inner;
  BatchOffset batch_offset;
};

// One block of Q's panel to be packed: rows [k_begin, k_end) of panel `panel` as [k][vectors * lanes] of accumulator
// type at `to`. `columns`: how many of them exist; the others may be left as they are.
struct PackRequest {
  mlir::Value batch, panel, k_begin, k_end, to;
  int64_t vectors, columns;
};

struct ColumnOperand {
  // kPacked: the packed matrix. Else Q[k, j] lies at k * k_stride + j * column_stride, whose columns are contiguous for
  // kDirect.
  mlir::Value pointer;
  mlir::Type element;
  int64_t k_stride = 0, column_stride = 1;
  BatchOffset batch_offset;
  std::function<void(KernelBuilder&, const PackRequest&)> pack;  // kOnTheFly, unless empty: of what has no such strides
};

// Called with an accumulator: a scalar, or a vector of columns [column, column + lanes) of one row, all of which exist.
// It is emitted at most three times; every element of C is passed to exactly one of them.
using Epilogue = std::function<void(KernelBuilder&, mlir::Value batch, mlir::Value row, mlir::Value column,
                                    mlir::Value accumulator)>;

// Emitted before a tile is computed, for a vector of columns of C at (row, column): prefetches what the epilogue will
// read and write. No prefetcher of the processor's follows a tile's rows.
using Ahead = std::function<void(KernelBuilder&, mlir::Value batch, mlir::Value row, mlir::Value column)>;

// A register tile whose P has no strides that RowOperand could say: += P * Q for rows [k_begin, k_end) of Q, at q.
struct TileRequest {
  int64_t rows, vectors;
  mlir::Value batch, tile, q, k_begin, k_end;
  mlir::Value prefetch, prefetch_step;  // as RegisterTile's
  int64_t q_stride, q_columns;          // of Q's rows; and how many of their columns may be read
  mlir::Value slab;                     // where k is one block: rows * vectors accumulators' room
};
// The sums; none where they are in the slab.
using TileEmitter = std::function<std::vector<mlir::Value>(KernelBuilder&, const TileRequest&,
                                                           const std::vector<mlir::Value>& accumulators)>;

struct GemmKernel {
  GemmPlan plan;
  mlir::Type accumulator;  // element type
  MultiplyAdd multiply_add;
  RowOperand p;
  TileEmitter tile;  // unless null: instead of p
  // Emitted in front of the first task of a row block that a call computes: what makes its rows of P, where p has them.
  // For plans of one batch element, without rows_fastest.
  std::function<void(KernelBuilder&, mlir::Value row_block)> prepare;
  ColumnOperand q;
  // Unless empty: of the steps [begin, end) of k those, [first, second), outside of which a panel's columns are zeros,
  // and are not computed. Of columns that `q.pack` packs.
  using Steps = std::pair<mlir::Value, mlir::Value>;
  std::function<Steps(KernelBuilder&, mlir::Value panel, mlir::Value begin, mlir::Value end)> steps;
  Epilogue epilogue;
  Ahead ahead;  // unless empty; transposed where the epilogue is
  // Apply the epilogue to the accumulators in registers, code for each of them, rather than in a loop over a tile that
  // lies in L1. For short epilogues.
  bool inline_epilogue = false;
  // The epilogue is called for C transposed: (batch, row = j, column = i), vectors along i.
  bool transpose_output = false;
};

// Computes tasks [begin, end) of the plan. `scratch`: plan.scratch_bytes(), 64-byte aligned, of this worker alone.
void EmitGemmTasks(KernelBuilder& kb, const GemmKernel& kernel, mlir::Value begin, mlir::Value end,
                   mlir::Value scratch);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_GEMM_H_
