#include "client/cpp/src/elf_manifest.h"

#include <elf.h>

#include <cstring>

#include "client/cpp/src/errors.h"

namespace inlay {
namespace {

constexpr absl::string_view kSection = ".inlay.manifest";

// A struct at an offset of the file; false: it lies outside.
template <typename T>
bool Read(absl::string_view file, uint64_t offset, T* value) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return false;
  std::memcpy(value, file.data() + offset, sizeof(T));
  return true;
}

bool Inside(absl::string_view file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

}  // namespace

absl::StatusOr<absl::string_view> FindManifest(absl::string_view file) {
  Elf64_Ehdr header;
  if (!Read(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
    return LoadError("is not a shared library");
  }
  const absl::Status cut_off = LoadError("is cut off or damaged; export it again");
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!Read(file, header.e_phoff + uint64_t{header.e_phentsize} * i, &segment)) return cut_off;
    if (segment.p_type == PT_LOAD && !Inside(file, segment.p_offset, segment.p_filesz)) return cut_off;
  }
  Elf64_Shdr names;
  auto section = [&](int i, Elf64_Shdr* out) {
    return Read(file, header.e_shoff + uint64_t{header.e_shentsize} * i, out);
  };
  if (header.e_shnum == 0 || !Inside(file, header.e_shoff, uint64_t{header.e_shentsize} * header.e_shnum) ||
      !section(header.e_shstrndx, &names) || !Inside(file, names.sh_offset, names.sh_size)) {
    return cut_off;
  }
  const absl::string_view text = file.substr(names.sh_offset, names.sh_size);
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr found;
    if (!section(i, &found)) return cut_off;
    if (found.sh_name >= text.size()) continue;
    const absl::string_view name = text.substr(found.sh_name);
    if (name.substr(0, name.find('\0')) != kSection) continue;
    if (!Inside(file, found.sh_offset, found.sh_size)) return cut_off;
    return file.substr(found.sh_offset, found.sh_size);
  }
  return LoadError("is a shared library, but not one that inlay exported");
}

}  // namespace inlay
