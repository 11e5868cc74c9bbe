// What the linker puts into an exported library beside the code (core/artifact/link_tables.cc writes it as an object
// file): the manifest, the parameters, and the addresses of the primitive functions.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_
#define INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_

#include <cstdint>

#include "core/runtime/graph/graph_executor.h"

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
}

#endif  // INLAY_CORE_RUNTIME_EXPORTED_TABLES_H_
