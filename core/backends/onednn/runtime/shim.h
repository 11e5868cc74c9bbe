/* What the objects of this backend call. The component "onednn" of a StaticLibrary's manifest; the signatures are those
 * of core/runtime/kernel_abi.h plus the partition's description, which lies in the object. */
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_SHIM_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_SHIM_H_

#include "core/runtime/kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chooses layouts, creates the primitives, packs the constant inputs. The description is not kept. */
int32_t inlay_onednn_init(const InlayCallContext* ctx, void* const* args, void** state, const char* description,
                          int64_t size);
int32_t inlay_onednn_run(const InlayCallContext* ctx, void* const* args);
void inlay_onednn_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_SHIM_H_ */
