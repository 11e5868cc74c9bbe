// Offers the shim to partitions that are loaded by the JIT.
#include "core/backends/null/runtime/shim.h"
#include "core/runtime/symbol_registry.h"

INLAY_REGISTER_RUNTIME_SYMBOLS(null, {{"inlay_null_init", reinterpret_cast<void*>(&inlay_null_init)},
                                      {"inlay_null_run", reinterpret_cast<void*>(&inlay_null_run)},
                                      {"inlay_null_destroy", reinterpret_cast<void*>(&inlay_null_destroy)}});
