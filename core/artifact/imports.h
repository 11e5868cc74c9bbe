// The functions that an artifact calls in shared libraries which it does not carry (oneDNN, libgomp, ...), and the code
// through which it calls them.
//
// The artifact does not name these libraries to the dynamic linker, whose message for a missing one says neither what
// wants it nor where it is to be had: each function is a jump through a slot, which core/runtime/dependencies fills
// when the model is loaded. So an artifact can always be opened and asked what it needs. A jump costs what one through
// the dynamic linker's own table does.
#ifndef INLAY_CORE_ARTIFACT_IMPORTS_H_
#define INLAY_CORE_ARTIFACT_IMPORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay::artifact {

struct ImportRequest {
  std::vector<std::string> users;          // archives whose undefined symbols are to be found in `libraries`
  std::vector<std::string> carried;        // archives and shared libraries that the artifact is linked with anyway
  std::vector<std::string> library_paths;  // in the order of the manifest; "": not on this machine
};

// What each library has to provide, sorted. What none of those on this machine has is the last missing one's.
// FAILED_PRECONDITION: a file that can't be read, or data of a library's where a function is wanted.
absl::StatusOr<std::vector<std::vector<std::string>>> FindImports(const ImportRequest& request);

// Writes an object with a hidden function for each name, and `inlay_library_imports`: their slots, in the same order.
absl::Status WriteImports(const std::vector<std::vector<std::string>>& imports, const std::string& path);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_IMPORTS_H_
