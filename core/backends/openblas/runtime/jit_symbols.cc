// Offers the shim to partitions that are loaded by the JIT.
#include "core/backends/openblas/runtime/shim.h"
#include "core/runtime/symbol_registry.h"

INLAY_REGISTER_RUNTIME_SYMBOLS(openblas,
                               {{"inlay_openblas_init", reinterpret_cast<void*>(&inlay_openblas_init)},
                                {"inlay_openblas_run", reinterpret_cast<void*>(&inlay_openblas_run)},
                                {"inlay_openblas_destroy", reinterpret_cast<void*>(&inlay_openblas_destroy)}});
