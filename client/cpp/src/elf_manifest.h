// The manifest inside an exported library, read without loading it.
#ifndef INLAY_CLIENT_CPP_SRC_ELF_MANIFEST_H_
#define INLAY_CLIENT_CPP_SRC_ELF_MANIFEST_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay {

// The section .inlay.manifest (core/artifact/FORMAT.md) of a shared library for this architecture, in `file`.
// FAILED_PRECONDITION, without the file's name: no such file, or cut off (to map that would end in SIGBUS).
absl::StatusOr<absl::string_view> FindManifest(absl::string_view file);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_ELF_MANIFEST_H_
