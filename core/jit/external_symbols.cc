#include "core/jit/external_symbols.h"

#include <dlfcn.h>

#include <map>

#include "core/runtime/symbol_registry.h"

// libgcc's and core/runtime's helpers, by address; their C types do not matter here.
extern "C" {
#define INLAY_EXTERNAL(name)
#define INLAY_HELPER(name) void name();
#include "core/artifact/allowed_externals.inc"
#undef INLAY_EXTERNAL
#undef INLAY_HELPER
}

namespace inlay::jit {
namespace {

std::map<std::string, void*>* BuildTable() {
  auto* table = new std::map<std::string, void*>;
  // Both are in the process already. dlsym and not &expf: it resolves what the C library chooses for this CPU.
  void* libraries[] = {dlopen("libm.so.6", RTLD_LAZY), dlopen("libc.so.6", RTLD_LAZY)};
  auto add = [&](const char* name) {
    for (void* library : libraries) {
      void* address = library != nullptr ? dlsym(library, name) : nullptr;
      if (address != nullptr) {
        (*table)[name] = address;
        return;
      }
    }
  };
#define INLAY_EXTERNAL(name) add(#name);
#define INLAY_HELPER(name) (*table)[#name] = reinterpret_cast<void*>(&name);
#include "core/artifact/allowed_externals.inc"
#undef INLAY_EXTERNAL
#undef INLAY_HELPER
  return table;
}

}  // namespace

void* FindExternalSymbol(const std::string& name) {
  static const std::map<std::string, void*>* const table = BuildTable();
  const auto it = table->find(name);
  return it != table->end() ? it->second : runtime::FindRuntimeSymbol(name);
}

}  // namespace inlay::jit
