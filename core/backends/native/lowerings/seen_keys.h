// How many keys rows of scores see. Behind the last key that a mask lets through, as behind a static cache's filled
// part or above a causal mask's diagonal, all weights are zero: what multiplies them need not be computed, nor read.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SEEN_KEYS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SEEN_KEYS_H_

#include <optional>

#include "core/backends/native/lowerings/score_rows.h"

namespace inlay::native {

class SeenKeys {
 public:
  // nullopt: nothing masks these scores, or not so that what it leaves out can be told without them; weights of 0 do
  // not stay 0; or there are too few keys for it to matter. `s`: with its lanes.
  static std::optional<SeenKeys> Of(const ScoreRows& s);

  // At least as many as any of the rows [first, first + rows) of those at `batch` sees: all keys, or whole vectors of
  // them. All where a row sees none, whose weights are not zero then.
  mlir::Value Emit(Kernel& k, const ScoreRows& s, const Indices& batch, mlir::Value first, mlir::Value rows) const;

 private:
  bool by_row_ = true;  // else all rows see the same
};

// The same of whole heads, found by a kernel of its own for others that share heads.
class SeenOfHeads {
 public:
  SeenOfHeads() = default;  // all keys, always
  SeenOfHeads(FunctionEmitter& f, const SeenKeys& keys, const ScoreRows& s, const Shape& batch, const Extent& rows);
  // Null: all.
  mlir::Value Of(Kernel& k, mlir::Value head) const;

 private:
  std::optional<Buffer> seen_;  // int64_t
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_SEEN_KEYS_H_
