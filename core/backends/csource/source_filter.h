// What C a client may have compiled on a server.
//
// Compiling runs nothing, but C can make a compiler read files (#include, an assembler's .incbin) and answer with what
// is in them, as an error message or inside of the object. So a kernel's source may include a few headers of the
// standard library, and has neither assembler nor attributes nor any other name that is reserved for the
// implementation, nor ways to put such a name together. README.md, "Security", has the reasons one by one.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_SOURCE_FILTER_H_
#define INLAY_CORE_BACKENDS_CSOURCE_SOURCE_FILTER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace inlay::csource {

// INVALID_ARGUMENT names the line and what may not stand there.
absl::Status CheckKernelSource(absl::string_view source);

// Whether code may use this name: not `asm`, and of the reserved ones (__x, _X) only those that say something about
// numbers and vectors.
bool IsAllowedName(absl::string_view name);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_SOURCE_FILTER_H_
