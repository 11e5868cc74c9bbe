// Reads a Description out of an object's bytes and checks that it makes sense, so that what follows may trust its
// indices, sizes and order. Throws std::runtime_error (the shim turns it into an error code).
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_DESCRIPTION_READER_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_DESCRIPTION_READER_H_

#include "core/backends/xnnpack/description.h"

namespace inlay::xnnpack {

struct ReadDescription {
  Description description;
  const char* literals = nullptr;  // inside `bytes`
};

ReadDescription ReadAndCheck(const char* bytes, int64_t size);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_DESCRIPTION_READER_H_
