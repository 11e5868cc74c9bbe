// What the lowerings that use the contraction kernels share: types, scratch, the choice of epilogue.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_GEMM_SUPPORT_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_GEMM_SUPPORT_H_

#include <functional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm_plan.h"

namespace inlay::native {

// f16 and bf16 accumulate in f32; everything else in its own type.
struct GemmTypes {
  GemmTypes(FunctionEmitter&, ir::DType stored)
      : dtype(stored),
        accumulator_dtype(stored == ir::DType::kF16 || stored == ir::DType::kBF16 ? ir::DType::kF32 : stored),
        packed_dtype(accumulator_dtype),
        accumulator_bytes(ir::ByteSize(accumulator_dtype)) {}
  mlir::Type Stored(Ops& o) const {
    return o.StoredType(dtype == ir::DType::kF16 && !o.cpu().f16c ? ir::DType::kI16 : dtype);
  }
  mlir::Type Accumulator(Ops& o) const { return o.StoredType(accumulator_dtype); }
  // Constant right operands stay as narrow as they are when they are packed, if the CPU can widen them as it reads
  // them.
  void KeepNarrow(const CpuFeatures& cpu) {
    if (dtype != ir::DType::kF16 || cpu.f16c) packed_dtype = dtype;
  }
  // Of constant right operands once they are packed.
  mlir::Type Packed(Ops& o) const { return o.StoredType(packed_dtype); }
  int64_t packed_bytes() const { return ir::ByteSize(packed_dtype); }

  ir::DType dtype, accumulator_dtype, packed_dtype;
  int64_t accumulator_bytes;
};

inline constexpr int64_t kNoScratch = -1;

// Tasks [0, tasks) with scratch of each worker's own: on its stack, or, where that would be too much, one after another
// with scratch in the workspace.
inline void EmitTasks(
    FunctionEmitter& f, const Extent& tasks, double cost, int64_t scratch_bytes,
    const std::function<void(Kernel&, mlir::Value begin, mlir::Value end, mlir::Value scratch)>& body) {
  if (scratch_bytes == kNoScratch) {
    f.Parallel(tasks, cost, [&](Kernel& k, mlir::Value begin, mlir::Value end) { body(k, begin, end, nullptr); });
    return;
  }
  if (scratch_bytes <= Kernel::kMaxStackBytes) {
    f.Parallel(tasks, cost,
               [&](Kernel& k, mlir::Value begin, mlir::Value end) { body(k, begin, end, k.Scratch(scratch_bytes)); });
    return;
  }
  Buffer scratch = f.Temporary(scratch_bytes);
  f.Parallel(1, cost,
             [&](Kernel& k, mlir::Value, mlir::Value) { body(k, k.o.Int(0), k.o.Int(tasks), k.Pointer(scratch)); });
}

absl::Status EmitMatmul(FunctionEmitter& f, const Node& node);
absl::Status EmitNbitsMatmul(FunctionEmitter& f, const Node& node);
absl::Status EmitOpenMatmul(FunctionEmitter& f, const Node& node);  // an operand has open dimensions
absl::Status EmitGatherMatmul(FunctionEmitter& f, const Node& node);
absl::Status EmitOpenConvolution(FunctionEmitter& f, const Node& node);  // the images' size is open
bool EmitOpenChannels(FunctionEmitter& f, const Node& node);   // the same; false: no small groups, or rows are long
bool EmitOpenDepthwise(FunctionEmitter& f, const Node& node);  // the same; false: it is not depthwise
bool EmitOpenWinograd(FunctionEmitter& f, const Node& node);   // the same; false: the direct way is as fast
bool EmitOpenPixelRows(FunctionEmitter& f, const Node& node);  // the same; false: panels of pixels are as fast

// Whether the tail is so short that code for every accumulator of a tile is no burden.
inline bool InlineEpilogue(FunctionEmitter& f, const Node& node) {
  int cost = 0;
  f.Expression(f.StoredTensor(node), node.outputs[0], nullptr, &cost);
  return cost <= 4 && ir::ByteSize(f.StoredTensor(node).dtype) >= 4;
}

// Whether a product's tiles ask for what they will store, and read besides, before they are computed: L2 does not hold
// it, and its rows lie pages apart, which no prefetcher follows, or are read as well (`kernels.md`, "Results ahead").
inline bool AsksForResults(const Core& core, int64_t bytes, int64_t row_bytes, bool reads) {
  constexpr int64_t kPageBytes = 4096;
  return bytes > core.l2_bytes && (reads || row_bytes >= kPageBytes);
}

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_GEMM_SUPPORT_H_
