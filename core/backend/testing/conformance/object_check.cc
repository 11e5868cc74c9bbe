#include "core/backend/testing/conformance/object_check.h"

#include <elf.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace inlay::backend::testing {
namespace {

absl::Status Fail(const std::string& why) { return absl::FailedPreconditionError(why); }

// Objects here come from the backend under test, so offsets are trusted.
template <typename T>
std::vector<T> Table(const std::string& bytes, uint64_t offset, uint64_t size) {
  std::vector<T> table(size / sizeof(T));
  std::memcpy(table.data(), bytes.data() + offset, table.size() * sizeof(T));
  return table;
}

absl::Status CheckRelocations(const std::vector<Elf64_Rela>& relocations) {
  for (const Elf64_Rela& relocation : relocations) {
    switch (ELF64_R_TYPE(relocation.r_info)) {
      case R_X86_64_32:
      case R_X86_64_32S:
      case R_X86_64_16:
      case R_X86_64_8:
        return Fail("a relocation that needs a fixed address");
      case R_X86_64_TLSGD:
      case R_X86_64_TLSLD:
      case R_X86_64_GOTTPOFF:
      case R_X86_64_TPOFF32:
        return Fail("a thread-local relocation");
      default:
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::set<std::string>> CheckObject(const std::string& bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr) || bytes.compare(0, SELFMAG, ELFMAG) != 0) return Fail("not an ELF file");
  const auto header = Table<Elf64_Ehdr>(bytes, 0, sizeof(Elf64_Ehdr))[0];
  if (header.e_type != ET_REL) return Fail("not relocatable");
  if (header.e_machine != EM_X86_64) return Fail(absl::StrCat("machine ", header.e_machine));
  const auto sections = Table<Elf64_Shdr>(bytes, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  std::set<std::string> defined;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_flags & SHF_TLS) return Fail("a thread-local section");
    if (section.sh_type == SHT_INIT_ARRAY && section.sh_size > 0) return Fail("static constructors");
    if ((section.sh_flags & SHF_WRITE) && (section.sh_flags & SHF_EXECINSTR)) return Fail("writable code");
    if (section.sh_type == SHT_RELA && (sections[section.sh_info].sh_flags & SHF_ALLOC)) {
      absl::Status status = CheckRelocations(Table<Elf64_Rela>(bytes, section.sh_offset, section.sh_size));
      if (!status.ok()) return status;
    }
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[section.sh_link].sh_offset;
    for (const Elf64_Sym& symbol : Table<Elf64_Sym>(bytes, section.sh_offset, section.sh_size)) {
      if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && symbol.st_shndx != SHN_UNDEF) {
        defined.insert(names + symbol.st_name);
      }
    }
  }
  return defined;
}

}  // namespace inlay::backend::testing
