// A GemmEngine of OpenBLAS's gemm and gemv.
#ifndef INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_ENGINE_H_
#define INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_ENGINE_H_

#include <memory>

#include "core/backends/common/runtime/gemm_program.h"

namespace inlay::openblas {

// args: those of `_init`; nothing is kept of them. Throws std::bad_alloc.
std::unique_ptr<backends::GemmEngine> MakeEngine(const backends::GemmDescription& description,
                                                 const InlayCallContext& ctx, void* const* args);

}  // namespace inlay::openblas

#endif  // INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_ENGINE_H_
