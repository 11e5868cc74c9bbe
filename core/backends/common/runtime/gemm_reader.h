// Reads a GemmDescription out of an object's bytes and checks that every element it speaks of lies inside its input, so
// that what follows may trust it. Throws std::runtime_error or nlohmann's exceptions.
#ifndef INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_READER_H_
#define INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_READER_H_

#include "core/backends/common/gemm_description.h"

namespace inlay::backends {

GemmDescription ReadGemm(const char* bytes, int64_t size);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_READER_H_
