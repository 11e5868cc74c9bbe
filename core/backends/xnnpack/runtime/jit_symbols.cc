// Offers the shim to partitions that are loaded by the JIT.
#include "core/backends/xnnpack/runtime/loaded_library.h"
#include "core/backends/xnnpack/runtime/shim.h"
#include "core/runtime/symbol_registry.h"

namespace inlay::xnnpack {
namespace {

// Code from a shared cache may reach a machine without XNNPACK.
int32_t Init(const InlayCallContext* ctx, void* const* args, void** state, const char* description, int64_t size) {
  if (const std::string& missing = LoadLibrary(); !missing.empty()) {
    ctx->set_error(ctx->owner, INLAY_E_LIBRARY, missing.c_str());
    return INLAY_E_LIBRARY;
  }
  return inlay_xnnpack_init(ctx, args, state, description, size);
}

INLAY_REGISTER_RUNTIME_SYMBOLS(xnnpack, {{"inlay_xnnpack_init", reinterpret_cast<void*>(&Init)},
                                         {"inlay_xnnpack_run", reinterpret_cast<void*>(&inlay_xnnpack_run)},
                                         {"inlay_xnnpack_destroy", reinterpret_cast<void*>(&inlay_xnnpack_destroy)}});

}  // namespace
}  // namespace inlay::xnnpack
