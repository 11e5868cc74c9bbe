#include "core/backends/null/runtime/shim.h"

#include <algorithm>
#include <cstring>

namespace {
struct State {
  int64_t bytes, block;
};
}  // namespace

extern "C" int32_t inlay_null_init(const InlayCallContext* ctx, void* const*, void** state, const char* description,
                                   int64_t size) {
  int64_t numbers[2] = {0, 0};  // "bytes block"
  int which = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (description[i] == ' ' && which == 0) {
      which = 1;
      continue;
    }
    if (description[i] < '0' || description[i] > '9' || numbers[which] > int64_t{1} << 50) {
      ctx->set_error(ctx->owner, INLAY_E_INTERNAL, "null: a damaged description");
      return INLAY_E_INTERNAL;
    }
    numbers[which] = numbers[which] * 10 + (description[i] - '0');
  }
  auto* made = static_cast<State*>(ctx->alloc(ctx->owner, sizeof(State)));  // lives as long as the state
  if (made == nullptr) {
    ctx->set_error(ctx->owner, INLAY_E_NO_MEMORY, "null: out of memory");
    return INLAY_E_NO_MEMORY;
  }
  *made = {numbers[0], numbers[1] > 0 ? numbers[1] : numbers[0]};
  *state = made;
  return INLAY_OK;
}

extern "C" int32_t inlay_null_run(const InlayCallContext* ctx, void* const* args) {
  const auto* state = static_cast<const State*>(ctx->state);
  for (int64_t at = 0; at < state->bytes; at += state->block) {
    std::memcpy(static_cast<char*>(args[1]) + at, static_cast<const char*>(args[0]) + at,
                std::min(state->block, state->bytes - at));
  }
  return INLAY_OK;
}

extern "C" void inlay_null_destroy(void*) {}
