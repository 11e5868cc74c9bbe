// What is packed, when, and where: agreed between codegen (which asks for the workspace) and the shim. Pure functions.
#ifndef INLAY_CORE_BACKENDS_LIBXSMM_PLAN_H_
#define INLAY_CORE_BACKENDS_LIBXSMM_PLAN_H_

#include "core/backends/common/gemm_description.h"

namespace inlay::libxsmm {

// B in blocks of nb columns, each [K][nb], the last one narrower: as many elements as before, so the batch's strides
// stay. By _init where it is constant; at each call where it is transposed, which the kernels can't read.
inline bool PacksB(const backends::GemmDescription& d) { return d.b_constant || d.b_transposed(); }
inline bool PacksBAtRun(const backends::GemmDescription& d) { return d.b_transposed() && !d.b_constant; }
// A transposed A is turned row-major at each call.
inline bool PacksAAtRun(const backends::GemmDescription& d) { return d.a_transposed(); }

// A's copy, then B's.
inline int64_t WorkspaceBytesOfA(const backends::GemmDescription& d) {
  return PacksAAtRun(d) ? (d.input_elements[d.a.input] * 4 + 63) / 64 * 64 : 0;
}
inline int64_t WorkspaceBytes(const backends::GemmDescription& d) {
  return WorkspaceBytesOfA(d) + (PacksBAtRun(d) ? d.input_elements[d.b.input] * 4 : 0);
}

}  // namespace inlay::libxsmm

#endif  // INLAY_CORE_BACKENDS_LIBXSMM_PLAN_H_
