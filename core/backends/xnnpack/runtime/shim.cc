#include "core/backends/xnnpack/runtime/shim.h"

#include <exception>
#include <new>

#include "core/backends/xnnpack/runtime/program_builder.h"

namespace {

using inlay::xnnpack::Program;

// No exception leaves the shim: its callers are generated code.
template <typename Body>
int32_t Guarded(const InlayCallContext* ctx, const Body& body) {
  int32_t code = INLAY_E_INTERNAL;
  try {
    body();
    return INLAY_OK;
  } catch (const std::bad_alloc&) {
    code = INLAY_E_NO_MEMORY;
    ctx->set_error(ctx->owner, code, "xnnpack: out of memory");
  } catch (const inlay::xnnpack::LibraryError& e) {
    code = INLAY_E_LIBRARY;
    ctx->set_error(ctx->owner, code, e.what());
  } catch (const std::exception& e) {
    ctx->set_error(ctx->owner, code, e.what());
  }
  return code;
}

}  // namespace

extern "C" int32_t inlay_xnnpack_init(const InlayCallContext* ctx, void* const* args, void** state,
                                      const char* description, int64_t size) {
  return Guarded(ctx, [&] {
    auto read = inlay::xnnpack::ReadAndCheck(description, size);
    *state = inlay::xnnpack::ProgramBuilder(read, *ctx, args).Build().release();
  });
}

extern "C" int32_t inlay_xnnpack_run(const InlayCallContext* ctx, void* const* args) {
  return Guarded(ctx, [&] { static_cast<Program*>(ctx->state)->Run(*ctx, args); });
}

extern "C" void inlay_xnnpack_destroy(void* state) { delete static_cast<Program*>(state); }
