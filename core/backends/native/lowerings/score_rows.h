// The softmax between attention's two products: on a block of score rows that lies in a near cache, in place.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SCORE_ROWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SCORE_ROWS_H_

#include "core/backends/native/function_emitter.h"

namespace inlay::native {

struct ScoreRows {
  // The first product, what it is made before softmax, softmax's result, what that is made before the second product.
  const Tensor *raw = nullptr, *scores = nullptr, *weights = nullptr, *result = nullptr;
  ir::DType accumulator = ir::DType::kF32;  // of the block's elements
  Shape rows;                               // the axes between `batch` and the keys, whose elements are rows
  Extent extent = 0;                        // keys
  // From row to row, in elements: whole vectors, of which those beyond `extent` are anything. Where it is open, a
  // vector more than these.
  Extent stride = 0;
  // Of the vectors: LanesOf(), or 1. At least `lanes` keys.
  int64_t lanes = 1;
  // Unless 0: rows end as bf16, so many of them, zero beyond `extent`.
  int64_t brains = 0;
};

int64_t LanesOf(FunctionEmitter& f, const ScoreRows& s);

// block[r][:] of the first product becomes that of `result`, r in [0, rows); row r stands for row first + r of those at
// `batch`. `seen`: unless null, as SeenKeys gives it; what is behind so many keys is neither read nor written.
void EmitScoreRows(Kernel& k, const ScoreRows& s, mlir::Value block, const Indices& batch, mlir::Value first,
                   mlir::Value rows, mlir::Value seen = nullptr);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SCORE_ROWS_H_
