// Variants: a configuration may give a backend several codegen targets (one with Winograd, one without), which then
// compete like backends of their own. The first is the backend itself; each further one is a Backend that does what the
// first does under the name "native#2", by which CompilationConfig::CodegenTarget finds its attributes.
#ifndef INLAY_CORE_BACKEND_VARIANT_H_
#define INLAY_CORE_BACKEND_VARIANT_H_

#include "core/backend/backend.h"

namespace inlay::backend {

// `variant` from 1, which is `backend` itself, to 64. The same object for the same arguments; it lives for ever. A
// variant is no fallback: what nobody else takes, and what results are compared with, is the first one's.
const Backend* Variant(const Backend* backend, int variant);

}  // namespace inlay::backend

#endif  // INLAY_CORE_BACKEND_VARIANT_H_
