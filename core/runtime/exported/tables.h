// What the linker puts into an exported library beside the code (core/artifact/linker.cc, imports.cc): the
// manifest, the parameters, the addresses of the primitive functions, the slots of what other libraries have.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_
#define INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_

#include <cstdint>

#include "core/runtime/executor.h"

extern "C" {

struct InlayLibraryTable {
  const char* manifest;  // JSON
  uint64_t manifest_bytes;
  const char* params;  // null: beside the library
  uint64_t params_bytes;
  uint64_t num_functions;
  // Then num_functions FunctionPointers, in the plan's order.
};

extern const InlayLibraryTable inlay_library_table __attribute__((visibility("hidden")));

// Of the functions of all `required_libraries` of the manifest, in order; written before compiled code runs.
extern void* inlay_library_imports[] __attribute__((visibility("hidden")));
}

#endif  // INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_
