/* What the objects of this backend call: the component "libxsmm" of a manifest; core/runtime/kernel_abi.h plus the
 * partition's description (core/backends/common/gemm_description.h). */
#ifndef INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_SHIM_H_
#define INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_SHIM_H_

#include "core/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Generates the kernels, packs constant weights. The description is not kept. */
int32_t inlay_libxsmm_init(const InlayCallContext* ctx, void* const* args, void** state, const char* description,
                           int64_t size);
int32_t inlay_libxsmm_run(const InlayCallContext* ctx, void* const* args);
void inlay_libxsmm_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_SHIM_H_ */
