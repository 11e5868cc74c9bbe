// ExternalCompilers: the compilers that code generators of this process may start, by the names that a configuration
// may use for them. Whoever runs the server decides which there are (`compilers` of proto/server_config.proto), never a
// client: a configuration names one of them, and a name that is not in the list is an error that says which are.
//
// Set once, before anything asks; without it, gcc, clang and cc are looked for in /usr/local/bin and /usr/bin.
// Threads: any, after Set.
#ifndef INLAY_CORE_BACKEND_EXTERNAL_COMPILERS_H_
#define INLAY_CORE_BACKEND_EXTERNAL_COMPILERS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay::backend {

class ExternalCompilers {
 public:
  static ExternalCompilers& Global();

  // Each entry is "/usr/bin/gcc" (called by its file's name) or "name=/path"; a single "none" allows no compiler.
  // INVALID_ARGUMENT: a path that is not absolute; NOT_FOUND: no program there.
  absl::Status Set(const std::vector<std::string>& entries);
  // Absolute path. INVALID_ARGUMENT, with the names that there are.
  absl::StatusOr<std::string> Find(absl::string_view name) const;
  const std::map<std::string, std::string>& paths() const { return paths_; }  // by name

 private:
  ExternalCompilers();
  std::map<std::string, std::string> paths_;
};

}  // namespace inlay::backend

#endif  // INLAY_CORE_BACKEND_EXTERNAL_COMPILERS_H_
