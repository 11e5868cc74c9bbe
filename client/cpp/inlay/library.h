// Exported libraries on this machine.
#ifndef INLAY_LIBRARY_H_
#define INLAY_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inlay/module.h"

namespace inlay {

// The manifest of an exported library (core/artifact/FORMAT.md), as JSON; nothing of it is loaded. NOT_FOUND,
// FAILED_PRECONDITION: no shared library, cut off, or not one of inlay's.
absl::StatusOr<std::string> ReadManifest(const std::string& path);

// Loads an exported library into this process: a runnable module of kind "library". Its manifest is checked before any
// of its code is mapped. It is not unloaded again, as with tvm_ffi.load_module. NOT_FOUND,
// FAILED_PRECONDITION (another CPU, a library that it needs is missing), INVALID_ARGUMENT. `num_threads`: of its pool;
// 0: what it was compiled for.
absl::StatusOr<Module> LoadLibrary(const std::string& path, int num_threads = 0);

}  // namespace inlay

#endif  // INLAY_LIBRARY_H_
