/* What the objects of this backend call: the component "openblas" of a manifest; core/runtime/kernel_abi.h plus the
 * partition's description (core/backends/common/gemm_description.h). */
#ifndef INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_SHIM_H_
#define INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_SHIM_H_

#include "core/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the description, which is not kept. */
int32_t inlay_openblas_init(const InlayCallContext* ctx, void* const* args, void** state, const char* description,
                            int64_t size);
int32_t inlay_openblas_run(const InlayCallContext* ctx, void* const* args);
void inlay_openblas_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_BACKENDS_OPENBLAS_RUNTIME_SHIM_H_ */
