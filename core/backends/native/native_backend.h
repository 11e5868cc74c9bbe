// What both halves of the native backend share: its name, the targets it serves, the work of a partition. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_
#define INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_

#include "absl/status/status.h"
#include "core/ir/ir_module.h"
#include "core/target/target.h"

namespace inlay::native {

inline constexpr char kBackendName[] = "native";

// UNIMPLEMENTED, saying what it can serve; INVALID_ARGUMENT for an attribute of the codegen target `native` that there
// is not, or a value that it can't have.
absl::Status CheckNativeTarget(const target::Target& target, const target::Target& codegen_target);

// Of the codegen target: "0": no convolution by Winograd; "1" (default): where it is estimated to be faster.
inline constexpr char kWinogradAttr[] = "winograd";
// Of a partition function, an int: its convolutions by Winograd's tile of so many results along an axis (2 to 7), where
// their kernel has one, or directly (0), rather than by the estimate. The codegen target's 0 goes before.
inline constexpr char kFunctionWinograd[] = "winograd";

// Of a partition function, an int: pointwise convolutions in one kernel with the depthwise ones that read them wherever
// that can be, by so many bands of rows, or never (0), rather than by the estimate.
inline constexpr char kFunctionDepthwiseBlock[] = "depthwise_block";

// Floating-point (and integer) operations of one call, a multiply-add counted as two; shapes must be static.
double FlopsOf(const ir::Binding& call);
double CountFlops(const ir::Function& function);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_
