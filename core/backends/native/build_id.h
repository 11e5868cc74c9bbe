// The GNU build ids of the running executable and of the libraries it has loaded: a hash over their contents that the
// linker writes, so that any change of code changes it.
#ifndef INLAY_CORE_BACKENDS_NATIVE_BUILD_ID_H_
#define INLAY_CORE_BACKENDS_NATIVE_BUILD_ID_H_

#include <string>

namespace inlay::native {

// Hex; of the executable for an empty name, else of the first loaded library whose file name begins with `prefix`.
// "" where it has none.
std::string BuildId(const std::string& prefix);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_BUILD_ID_H_
