// Offers the shim to partitions that are loaded by the JIT.
#include "core/backends/libxsmm/runtime/shim.h"
#include "core/runtime/symbol_registry.h"

INLAY_REGISTER_RUNTIME_SYMBOLS(libxsmm, {{"inlay_libxsmm_init", reinterpret_cast<void*>(&inlay_libxsmm_init)},
                                         {"inlay_libxsmm_run", reinterpret_cast<void*>(&inlay_libxsmm_run)},
                                         {"inlay_libxsmm_destroy", reinterpret_cast<void*>(&inlay_libxsmm_destroy)}});
