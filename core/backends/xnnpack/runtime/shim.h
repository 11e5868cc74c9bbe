/* What the objects of this backend call. The component "xnnpack" of a StaticLibrary's manifest; the signatures are
 * those of core/runtime/kernel_abi.h plus the partition's description, which lies in the object. */
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_SHIM_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_SHIM_H_

#include "core/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates the operators, which packs the constant inputs. The description is not kept. */
int32_t inlay_xnnpack_init(const InlayCallContext* ctx, void* const* args, void** state, const char* description,
                           int64_t size);
int32_t inlay_xnnpack_run(const InlayCallContext* ctx, void* const* args);
void inlay_xnnpack_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_SHIM_H_ */
