// Products of words by the tile registers of AMX: 16 rows by 64 bytes each, a product of two of them in 16 cycles. A
// register tile of gemm.h is 32 rows by two vectors, four accumulators; less than 16 rows are dot products.
//
// A process must ask Linux once before it uses the registers, and may be refused. So an artifact asks when it is
// loaded, and its kernels have both ways.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_

#include <optional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"

namespace inlay::native {

inline constexpr int64_t kTileRows = 16, kTileWords = 16;

// The plan for them, of elements that are words; none where they would not pay, or scratch would not hold it.
std::optional<GemmPlan> PlanTiles(const Core& core, ColumnSource source, int64_t batch, int64_t m, int64_t n,
                                  int64_t k);

// What a partition's kernels share.
class MatrixTiles {
 public:
  // Emits what asks for the registers. Once a partition function.
  explicit MatrixTiles(FunctionEmitter& f);

  // The tiles of a product whose epilogue is not inline. P's rows are a multiple of kTileWords apart, and zero beyond
  // k. `product`: the intrinsic. `multiply_add`: of what is left.
  TileEmitter Tile(Kernel& k, const GemmPlan& plan, const RowOperand& p, const char* product,
                   const MultiplyAdd& multiply_add) const;
  // Around all that a task computes.
  void Begin(Kernel& k) const;
  void End(Kernel& k) const;

 private:
  mlir::Value Allowed(Kernel& k) const;  // i1

  Buffer allowed_, shape_;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_
