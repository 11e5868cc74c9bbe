#include "core/backends/libxsmm/runtime/shim.h"

#include "core/backends/common/runtime/gemm_program.h"
#include "core/backends/libxsmm/runtime/engine.h"

extern "C" int32_t inlay_libxsmm_init(const InlayCallContext* ctx, void* const* args, void** state,
                                      const char* description, int64_t size) {
  return inlay::backends::InitGemm("libxsmm", ctx, args, state, description, size, inlay::libxsmm::MakeEngine);
}

extern "C" int32_t inlay_libxsmm_run(const InlayCallContext* ctx, void* const* args) {
  return inlay::backends::RunGemm(ctx, args);
}

extern "C" void inlay_libxsmm_destroy(void* state) { inlay::backends::DestroyGemm(state); }
