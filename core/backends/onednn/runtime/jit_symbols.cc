// Offers the shim to partitions that are loaded by the JIT.
#include "core/backends/onednn/runtime/shim.h"
#include "core/runtime/symbol_registry.h"

INLAY_REGISTER_RUNTIME_SYMBOLS(onednn, {{"inlay_onednn_init", reinterpret_cast<void*>(&inlay_onednn_init)},
                                        {"inlay_onednn_run", reinterpret_cast<void*>(&inlay_onednn_run)},
                                        {"inlay_onednn_destroy", reinterpret_cast<void*>(&inlay_onednn_destroy)}});
