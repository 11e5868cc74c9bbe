#include "core/backend/external_compilers.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay::backend {

ExternalCompilers::ExternalCompilers() {
  for (const char* name : {"gcc", "clang", "cc"}) {
    for (const char* directory : {"/usr/local/bin/", "/usr/bin/"}) {
      const std::string path = absl::StrCat(directory, name);
      if (access(path.c_str(), X_OK) == 0 && paths_.emplace(name, path).second) break;
    }
  }
}

ExternalCompilers& ExternalCompilers::Global() {
  static auto* compilers = new ExternalCompilers;
  return *compilers;
}

absl::Status ExternalCompilers::Set(const std::vector<std::string>& entries) {
  std::map<std::string, std::string> paths;
  for (const std::string& entry : entries) {
    if (entry == "none" && entries.size() == 1) break;
    const size_t equals = entry.find('=');
    const std::string path = entry.substr(equals == entry.npos ? 0 : equals + 1);
    const std::string name = equals == entry.npos ? path.substr(path.rfind('/') + 1) : entry.substr(0, equals);
    if (!absl::StartsWith(path, "/") || name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("compilers: '", entry, "' is neither /path/of/a/compiler nor name=/path/of/a/compiler"));
    }
    if (access(path.c_str(), X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat("compilers: there is no program ", path));
    }
    paths[name] = path;
  }
  paths_ = std::move(paths);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExternalCompilers::Find(absl::string_view name) const {
  auto found = paths_.find(std::string(name));
  if (found != paths_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, path] : paths_) names.push_back(known);
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a compiler that this server allows; it allows: ",
                                                 names.empty() ? "none" : absl::StrJoin(names, ", "),
                                                 " (its configuration, compilers)"));
}

}  // namespace inlay::backend
