#include "core/backends/onednn/runtime/shim.h"

#include <exception>
#include <new>
#include <string>

#include "core/backends/onednn/runtime/program_builder.h"

namespace {

using inlay::onednn::Program;

// No exception leaves the shim: its callers are generated code.
template <typename Body>
int32_t Guarded(const InlayCallContext* ctx, const Body& body) {
  auto fail = [ctx](int32_t code, const char* message) {
    ctx->set_error(ctx->owner, code, message);
    return code;
  };
  try {
    body();
    return INLAY_OK;
  } catch (const dnnl::error& e) {
    const bool memory = e.status == dnnl_out_of_memory;
    try {
      return fail(memory ? INLAY_E_NO_MEMORY : INLAY_E_LIBRARY, (std::string("onednn: ") + e.what()).c_str());
    } catch (const std::bad_alloc&) {
      return fail(INLAY_E_NO_MEMORY, "onednn: out of memory");
    }
  } catch (const std::bad_alloc&) {
    return fail(INLAY_E_NO_MEMORY, "onednn: out of memory");
  } catch (const std::exception& e) {
    return fail(INLAY_E_INTERNAL, e.what());
  }
}

}  // namespace

extern "C" int32_t inlay_onednn_init(const InlayCallContext* ctx, void* const* args, void** state,
                                     const char* description, int64_t size) {
  return Guarded(ctx, [&] {
    auto read = inlay::onednn::ReadAndCheck(description, size);
    *state = inlay::onednn::ProgramBuilder(read, *ctx, args).Build().release();
  });
}

extern "C" int32_t inlay_onednn_run(const InlayCallContext* ctx, void* const* args) {
  return Guarded(ctx, [&] { static_cast<Program*>(ctx->state)->Run(*ctx, args); });
}

extern "C" void inlay_onednn_destroy(void* state) { delete static_cast<Program*>(state); }
