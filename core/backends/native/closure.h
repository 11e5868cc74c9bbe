// The closure of a kernel, as <symbol>_run fills it and the kernel reads it: {args, workspace, state, iteration,
// threads, open workspace}, eight bytes each.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CLOSURE_H_
#define INLAY_CORE_BACKENDS_NATIVE_CLOSURE_H_

#include "core/backends/native/ops.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace inlay::native {

inline constexpr int64_t kArgsOffset = 0, kWorkspaceOffset = 8, kStateOffset = 16, kIterationOffset = 24,
                         kThreadsOffset = 32, kOpenWorkspaceOffset = 40, kClosureBytes = 48;

inline mlir::LLVM::LLVMPointerType PointerType(mlir::OpBuilder& b) {
  return mlir::LLVM::LLVMPointerType::get(b.getContext());
}

// Of a closure, or of an InlayCallContext.
inline mlir::Value Field(Ops& o, mlir::Value structure, int64_t byte_offset, mlir::Type type) {
  return o.b.create<mlir::LLVM::LoadOp>(o.loc, type, o.At(structure, byte_offset, o.b.getI8Type()), 4);
}

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CLOSURE_H_
