/* What the objects of this backend call: the component "null" of a manifest; core/runtime/kernel_abi.h plus the
 * partition's description. */
#ifndef INLAY_CORE_BACKENDS_NULL_RUNTIME_SHIM_H_
#define INLAY_CORE_BACKENDS_NULL_RUNTIME_SHIM_H_

#include "core/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The description is the number of bytes to copy, in decimal. */
int32_t inlay_null_init(const InlayCallContext* ctx, void* const* args, void** state, const char* description,
                        int64_t size);
int32_t inlay_null_run(const InlayCallContext* ctx, void* const* args);
void inlay_null_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_BACKENDS_NULL_RUNTIME_SHIM_H_ */
