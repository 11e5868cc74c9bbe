// Licence texts of files and packages that this machine was set up with.
#ifndef INLAY_CORE_ARTIFACT_LICENSES_H_
#define INLAY_CORE_ARTIFACT_LICENSES_H_

#include <string>

#include "absl/status/statusor.h"

namespace inlay::artifact {

// Of an installed Debian package, by name.
absl::StatusOr<std::string> PackageLicense(const std::string& package);

// Of a file, by the Debian package or the Python wheel that installed it. NOT_FOUND: neither.
absl::StatusOr<std::string> FileLicense(const std::string& path);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_LICENSES_H_
