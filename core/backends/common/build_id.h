// What a backend's version is made of: the identity of the code in this process. Any thread; each file is read once a
// process.
#ifndef INLAY_CORE_BACKENDS_COMMON_BUILD_ID_H_
#define INLAY_CORE_BACKENDS_COMMON_BUILD_ID_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay::backends {

// 16 hex digits that change with the contents of this process's executable.
std::string ExecutableBuildId();

// The same of a shared library that this process has loaded, by a prefix of its file's name ("libdnnl.so"). NOT_FOUND
// where there is none.
absl::StatusOr<std::string> LibraryBuildId(absl::string_view name_prefix);

// The same of any file.
absl::StatusOr<std::string> FileBuildId(const std::string& path);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_BUILD_ID_H_
