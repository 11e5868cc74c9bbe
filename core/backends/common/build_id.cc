#include "core/backends/common/build_id.h"

#include <link.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/digest.h"

namespace inlay::backends {

// Of the contents, not of the GNU build-id note: PyPI's libraries have none, and a note says nothing about a file that
// was patched. 50 MB take about 40 ms, once.
absl::StatusOr<std::string> FileBuildId(const std::string& path) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, std::string>;
  std::lock_guard<std::mutex> lock(*mutex);
  auto [found, is_new] = known->emplace(path, "");
  if (!is_new) return found->second;
  std::ifstream file(path, std::ios::binary);
  Hasher hasher;
  std::vector<char> buffer(1 << 20);
  bool any = false;
  while (file.read(buffer.data(), buffer.size()), file.gcount() > 0) {
    any = true;
    hasher.Update(absl::string_view(buffer.data(), file.gcount()));
  }
  if (!any || file.bad()) {
    known->erase(found);
    return absl::NotFoundError(absl::StrCat("can't read '", path, "'"));
  }
  found->second = hasher.Finish().hex().substr(0, 16);
  return found->second;
}

std::string ExecutableBuildId() {
  auto id = FileBuildId("/proc/self/exe");
  return id.ok() ? *id : "unknown";
}

absl::StatusOr<std::string> LibraryBuildId(absl::string_view name_prefix) {
  struct Search {
    absl::string_view prefix;
    std::string path;
  } search{name_prefix, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        absl::string_view path(info->dlpi_name);
        const absl::string_view file = path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1);
        if (absl::StartsWith(file, s->prefix)) s->path = std::string(path);
        return s->path.empty() ? 0 : 1;
      },
      &search);
  if (search.path.empty()) {
    return absl::NotFoundError(absl::StrCat("no library '", name_prefix, "' is loaded in this process"));
  }
  return FileBuildId(search.path);
}

}  // namespace inlay::backends
