#include "core/backends/openblas/runtime/shim.h"

#include "core/backends/common/runtime/gemm_program.h"
#include "core/backends/openblas/runtime/engine.h"

extern "C" int32_t inlay_openblas_init(const InlayCallContext* ctx, void* const* args, void** state,
                                       const char* description, int64_t size) {
  return inlay::backends::InitGemm("openblas", ctx, args, state, description, size, inlay::openblas::MakeEngine);
}

extern "C" int32_t inlay_openblas_run(const InlayCallContext* ctx, void* const* args) {
  return inlay::backends::RunGemm(ctx, args);
}

extern "C" void inlay_openblas_destroy(void* state) { inlay::backends::DestroyGemm(state); }
