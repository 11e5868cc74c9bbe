// Whether an object file is what every StaticLibrary promises. Independent of the loader's own checks.
#ifndef INLAY_CORE_BACKEND_TESTING_CONFORMANCE_OBJECT_CHECK_H_
#define INLAY_CORE_BACKEND_TESTING_CONFORMANCE_OBJECT_CHECK_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace inlay::backend::testing {

// The global symbols that a relocatable ELF file of x86-64 defines. FAILED_PRECONDITION: another kind of file,
// thread-local storage, constructors, or relocations that need a fixed address.
absl::StatusOr<std::set<std::string>> CheckObject(const std::string& bytes);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_CONFORMANCE_OBJECT_CHECK_H_
