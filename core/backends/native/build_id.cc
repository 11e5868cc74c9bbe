#include "core/backends/native/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

namespace inlay::native {
namespace {

struct Search {
  const std::string* prefix;
  std::string id;
};

std::string NoteOf(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof(*note);
      const char* description = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        return absl::BytesToHexString(absl::string_view(description, note->n_descsz));
      }
      at = description + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return "";
}

int Visit(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  absl::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (size_t slash = name.rfind('/'); slash != absl::string_view::npos) name.remove_prefix(slash + 1);
  bool wanted = search->prefix->empty() ? name.empty() : absl::StartsWith(name, *search->prefix);
  if (!wanted) return 0;
  search->id = NoteOf(*info);
  return 1;
}

}  // namespace

std::string BuildId(const std::string& prefix) {
  Search search{&prefix, ""};
  dl_iterate_phdr(Visit, &search);
  return search.id;
}

}  // namespace inlay::native
