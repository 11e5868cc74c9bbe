// Rows that data gives to one of several matrices, in the order of these.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ROW_GROUPS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ROW_GROUPS_H_

#include "core/backends/native/function_emitter.h"

namespace inlay::native {

class RowGroups {
 public:
  // Emits a kernel that sorts rows [0, m) by which of `groups` each is in (`which`, an index as OPS.md has them), and
  // lists them in blocks of one group and at most `rows_of_block` rows.
  RowGroups(FunctionEmitter& f, const Tensor& which, int64_t groups, int64_t rows_of_block);

  // No more blocks than that; 1 at least.
  const Extent& most_blocks() const { return most_blocks_; }
  mlir::Value Count(Kernel& k) const;

  struct Block {
    mlir::Value group, first, rows;  // places [first, first + rows) in the new order
  };
  Block At(Kernel& k, mlir::Value i) const;
  // Which row has that place.
  mlir::Value Row(Kernel& k, mlir::Value place) const;

  // Emits a kernel that writes the rows of `x` [m, columns] in the new order, as accumulators have them, `stride`
  // elements apart.
  Buffer Sorted(FunctionEmitter& f, const Tensor& x, int64_t stride) const;

 private:
  Extent most_blocks_;
  Buffer blocks_;  // how many, then each one's group, first place and rows; i64
  Buffer rows_;    // by place; i64
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ROW_GROUPS_H_
