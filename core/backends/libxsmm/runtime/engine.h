// A GemmEngine of libxsmm's generated kernels.
#ifndef INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_ENGINE_H_
#define INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_ENGINE_H_

#include <memory>

#include "core/backends/common/runtime/gemm_program.h"

namespace inlay::libxsmm {

// args: those of `_init`. Throws std::bad_alloc, and std::runtime_error where libxsmm generates no code for this CPU.
std::unique_ptr<backends::GemmEngine> MakeEngine(const backends::GemmDescription& description,
                                                 const InlayCallContext& ctx, void* const* args);

}  // namespace inlay::libxsmm

#endif  // INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_ENGINE_H_
