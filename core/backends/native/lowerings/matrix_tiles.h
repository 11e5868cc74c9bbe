// Products of words by the tile registers of AMX: 16 rows by 64 bytes each, a product of two of them in 16 cycles. A
// register tile of gemm.h is 32 rows by two vectors, four accumulators; less than 16 rows are dot products.
//
// A process must ask Linux once before it uses the registers, and may be refused. So an artifact asks when it is
// loaded, and its kernels have both ways.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_

#include <functional>
#include <optional>
#include <vector>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"

namespace inlay::native {

inline constexpr int64_t kTileRows = 16, kTileWords = 16;

// The plan for them, of elements that are words; none where they would not pay, or scratch would not hold it.
std::optional<GemmPlan> PlanTiles(const Core& core, ColumnSource source, int64_t batch, int64_t m, int64_t n,
                                  int64_t k);

// P as registers hold it. The last register of a tile ends where the tile does, and computes some of the one before
// once more.
struct TileRows {
  mlir::Type word;
  // Where row `row` of a tile begins; those behind it in its register are row_stride words apart.
  std::function<mlir::Value(KernelBuilder&, mlir::Value batch, mlir::Value tile, int64_t row)> at;
  int64_t row_stride = 0;
  // k: a run of so many words, a multiple of kTileWords or zero behind its end, for each iteration of the loops around.
  std::vector<InnerLoop> loops;
  int64_t run = 0;
};

// What a partition's kernels share.
class MatrixTiles {
 public:
  // Emits what asks for the registers. Once a partition function. `rows`: of P in each register, 16 or fewer.
  explicit MatrixTiles(FunctionEmitter& f, int64_t rows = kTileRows);

  // The tiles of a product whose epilogue is not inline. `product`: the intrinsic. `multiply_add`: of what is left.
  TileEmitter Tile(Kernel& k, const GemmPlan& plan, const TileRows& p, const char* product,
                   const MultiplyAdd& multiply_add) const;
  // P's rows are a multiple of kTileWords apart, and zero beyond k.
  TileEmitter Tile(Kernel& k, const GemmPlan& plan, const RowOperand& p, const char* product,
                   const MultiplyAdd& multiply_add) const;
  // Around all that a task computes.
  void Begin(Kernel& k) const;
  void End(Kernel& k) const;

 private:
  mlir::Value Allowed(Kernel& k) const;  // i1

  const int64_t rows_;
  Buffer allowed_, shape_;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRIX_TILES_H_
