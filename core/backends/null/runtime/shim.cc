#include "core/backends/null/runtime/shim.h"

#include <cstring>

extern "C" int32_t inlay_null_init(const InlayCallContext* ctx, void* const*, void** state, const char* description,
                                   int64_t size) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (description[i] < '0' || description[i] > '9' || bytes > int64_t{1} << 50) {
      ctx->set_error(ctx->owner, INLAY_E_INTERNAL, "null: a damaged description");
      return INLAY_E_INTERNAL;
    }
    bytes = bytes * 10 + (description[i] - '0');
  }
  auto* copied = static_cast<int64_t*>(ctx->alloc(ctx->owner, sizeof(int64_t)));  // lives as long as the state
  if (copied == nullptr) {
    ctx->set_error(ctx->owner, INLAY_E_NO_MEMORY, "null: out of memory");
    return INLAY_E_NO_MEMORY;
  }
  *copied = bytes;
  *state = copied;
  return INLAY_OK;
}

extern "C" int32_t inlay_null_run(const InlayCallContext* ctx, void* const* args) {
  std::memcpy(args[1], args[0], *static_cast<const int64_t*>(ctx->state));
  return INLAY_OK;
}

extern "C" void inlay_null_destroy(void*) {}
