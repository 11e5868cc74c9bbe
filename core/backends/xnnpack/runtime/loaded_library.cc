#include "core/backends/xnnpack/runtime/loaded_library.h"

#include <dlfcn.h>

#include "xnnpack.h"

namespace {
xnn_status NotLoaded() { return xnn_status_uninitialized; }
}  // namespace

// A jump leaves all arguments where they are, so one line fits every signature. Hidden, so that an exported library
// that is loaded into this process finds its own XNNPACK.
#define INLAY_XNNPACK_FUNCTION(name)                                                                                \
  extern "C" {                                                                                                      \
  __attribute__((visibility("hidden"), used)) void* inlay_loaded_##name = reinterpret_cast<void*>(NotLoaded);       \
  }                                                                                                                 \
  asm(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name ": jmp *inlay_loaded_" #name \
      "(%rip)\n.size " #name ", . - " #name "\n");
#include "core/backends/xnnpack/runtime/xnnpack_functions.inc"
#undef INLAY_XNNPACK_FUNCTION

namespace inlay::xnnpack {
namespace {

struct Function {
  const char* name;
  void** address;
};
constexpr Function kFunctions[] = {
#define INLAY_XNNPACK_FUNCTION(name) {#name, &inlay_loaded_##name},
#include "core/backends/xnnpack/runtime/xnnpack_functions.inc"
};

std::string Unusable(const char* why) {
  return std::string("XNNPACK can't be used here: ") + (why == nullptr ? "unknown error" : why) + "; it comes with " +
         kPackage;
}

}  // namespace

std::string LoadLibraryFrom(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unusable(dlerror());
  for (const Function& function : kFunctions) {
    if (dlsym(library, function.name) != nullptr) continue;
    const std::string error = Unusable(dlerror());
    dlclose(library);
    return error;
  }
  for (const Function& function : kFunctions) *function.address = dlsym(library, function.name);
  return "";
}

const std::string& LoadLibrary() {
  static const auto* const result = new std::string(LoadLibraryFrom(kSoname));
  return *result;
}

}  // namespace inlay::xnnpack
