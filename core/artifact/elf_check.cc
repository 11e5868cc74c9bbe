#include "core/artifact/elf_check.h"

#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Object/ELF.h"
#include "llvm/Object/ELFTypes.h"

namespace inlay::artifact {
namespace {

using Elf = llvm::object::ELF64LE;
using ElfFile = llvm::object::ELFFile<Elf>;
namespace E = llvm::ELF;

absl::Status Bad(absl::string_view what) { return absl::FailedPreconditionError(what); }

absl::Status FromLlvm(llvm::Error error) {
  return Bad(absl::StrCat("damaged ELF file: ", llvm::toString(std::move(error))));
}

#define INLAY_LLVM_ASSIGN(lhs, ...) INLAY_LLVM_ASSIGN_IMPL_(INLAY_CONCAT_(expected_, __LINE__), lhs, (__VA_ARGS__))
#define INLAY_LLVM_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = expr;                              \
  if (!tmp) return FromLlvm(tmp.takeError());   \
  lhs = *tmp

bool IsTlsRelocation(unsigned machine, uint32_t type) {
  if (machine == E::EM_X86_64) {
    return (type >= E::R_X86_64_DTPMOD64 && type <= E::R_X86_64_TPOFF32) ||
           (type >= E::R_X86_64_GOTPC32_TLSDESC && type <= E::R_X86_64_TLSDESC);
  }
  if (machine == E::EM_RISCV) {
    return (type >= E::R_RISCV_TLS_DTPMOD32 && type <= E::R_RISCV_TLSDESC) || type == E::R_RISCV_TLS_GOT_HI20 ||
           type == E::R_RISCV_TLS_GD_HI20 || (type >= E::R_RISCV_TPREL_HI20 && type <= E::R_RISCV_TPREL_ADD);
  }
  return type >= E::R_AARCH64_TLSGD_ADR_PREL21 && type <= E::R_AARCH64_TLSLD_LDST128_DTPREL_LO12_NC;
}

bool IsAbsoluteRelocation(unsigned machine, uint32_t type) {
  if (machine == E::EM_RISCV) return type == E::R_RISCV_32 || type == E::R_RISCV_HI20;
  if (machine != E::EM_X86_64) return type == E::R_AARCH64_ABS32 || type == E::R_AARCH64_ABS16;
  return type == E::R_X86_64_32 || type == E::R_X86_64_32S || type == E::R_X86_64_16 || type == E::R_X86_64_8;
}

class Reader {
 public:
  Reader(const ElfFile& file, unsigned machine) : file_(file), machine_(machine) {}

  absl::StatusOr<ObjectSymbols> Read() {
    INLAY_LLVM_ASSIGN(auto sections, file_.sections());
    if (sections.empty()) return Bad("damaged ELF file: no sections");
    for (const Elf::Shdr& section : sections) INLAY_RETURN_IF_ERROR(CheckSection(section));
    for (const Elf::Shdr& section : sections) {
      if (section.sh_type == E::SHT_RELA || section.sh_type == E::SHT_REL) {
        INLAY_RETURN_IF_ERROR(CheckRelocations(section, sections));
      }
      if (section.sh_type == E::SHT_SYMTAB) INLAY_RETURN_IF_ERROR(ReadSymbols(section, sections.size()));
    }
    return std::move(result_);
  }

 private:
  absl::Status CheckSection(const Elf::Shdr& section) {
    INLAY_LLVM_ASSIGN(llvm::StringRef name, file_.getSectionName(section));
    const std::string where = name.str();
    if (section.sh_type != E::SHT_NOBITS && section.sh_type != E::SHT_NULL) {
      INLAY_LLVM_ASSIGN(auto contents, file_.getSectionContents(section));  // lies within the file
      (void)contents;
    }
    if (!(section.sh_flags & E::SHF_ALLOC)) return absl::OkStatus();
    if (section.sh_flags & E::SHF_TLS) return Bad(absl::StrCat("thread-local storage (section ", where, ")"));
    if (section.sh_size > (uint64_t{1} << 40)) return Bad(absl::StrCat("section ", where, " is impossibly big"));
    const bool constructors = section.sh_type == E::SHT_INIT_ARRAY || section.sh_type == E::SHT_FINI_ARRAY ||
                              section.sh_type == E::SHT_PREINIT_ARRAY || absl::StartsWith(where, ".ctors") ||
                              absl::StartsWith(where, ".dtors");
    if (constructors && section.sh_size > 0) return Bad(absl::StrCat("static constructors (section ", where, ")"));
    if ((section.sh_flags & E::SHF_WRITE) && (section.sh_flags & E::SHF_EXECINSTR)) {
      return Bad(absl::StrCat("section ", where, " is both writable and executable"));
    }
    result_.loaded_bytes += section.sh_size;
    return absl::OkStatus();
  }

  absl::Status CheckRelocations(const Elf::Shdr& section, Elf::ShdrRange sections) {
    // Debug information may hold anything; nobody loads it.
    if (section.sh_info >= sections.size()) return Bad("damaged ELF file: relocations of a missing section");
    const Elf::Shdr& target = sections[section.sh_info];
    if (!(target.sh_flags & E::SHF_ALLOC)) return absl::OkStatus();
    if (section.sh_type == E::SHT_REL) return Bad("relocations without addends");
    INLAY_LLVM_ASSIGN(auto relocations, file_.relas(section));
    for (const Elf::Rela& relocation : relocations) {
      const uint32_t type = relocation.getType(false);
      if (IsTlsRelocation(machine_, type)) return Bad("thread-local storage (relocation)");
      if (IsAbsoluteRelocation(machine_, type)) {
        return Bad("not position independent: a relocation needs an address below 4 GiB");
      }
      if (relocation.r_offset >= target.sh_size) return Bad("damaged ELF file: a relocation outside its section");
    }
    return absl::OkStatus();
  }

  absl::Status ReadSymbols(const Elf::Shdr& table, size_t num_sections) {
    INLAY_LLVM_ASSIGN(auto symbols, file_.symbols(&table));
    INLAY_LLVM_ASSIGN(llvm::StringRef strings, file_.getStringTableForSymtab(table));
    for (size_t i = 1; i < symbols.size(); ++i) {
      const Elf::Sym& symbol = symbols[i];
      INLAY_LLVM_ASSIGN(llvm::StringRef name, symbol.getName(strings));
      if (symbol.getType() == E::STT_TLS) return Bad(absl::StrCat("thread-local storage (symbol ", name.str(), ")"));
      if (symbol.getType() == E::STT_GNU_IFUNC) return Bad(absl::StrCat("indirect function ", name.str()));
      if (symbol.st_shndx < E::SHN_LORESERVE && symbol.st_shndx >= num_sections) {
        return Bad(absl::StrCat("damaged ELF file: symbol ", name.str(), " lies in a missing section"));
      }
      if (symbol.getBinding() == E::STB_LOCAL) continue;
      if (symbol.st_shndx == E::SHN_UNDEF) {
        result_.undefined.push_back(name.str());
      } else {
        (symbol.getBinding() == E::STB_GLOBAL ? result_.strong : result_.weak).push_back(name.str());
      }
    }
    return absl::OkStatus();
  }

  const ElfFile& file_;
  const unsigned machine_;
  ObjectSymbols result_;
};

}  // namespace

absl::StatusOr<ObjectSymbols> ReadObject(absl::string_view data, absl::string_view architecture) {
  unsigned machine;
  if (architecture == "x86_64") {
    machine = E::EM_X86_64;
  } else if (architecture == "aarch64") {
    machine = E::EM_AARCH64;
  } else if (architecture == "riscv64") {
    machine = E::EM_RISCV;
  } else {
    return Bad(absl::StrCat("unknown architecture '", architecture, "'"));
  }
  if (data.size() < sizeof(Elf::Ehdr) || std::memcmp(data.data(), E::ElfMagic, 4) != 0) return Bad("not an ELF file");
  // LLVM wants its tables aligned as in a mapped file.
  std::unique_ptr<uint64_t[]> copy;
  if (reinterpret_cast<uintptr_t>(data.data()) % 8 != 0) {
    copy = std::make_unique<uint64_t[]>((data.size() + 7) / 8);
    std::memcpy(copy.get(), data.data(), data.size());
    data = absl::string_view(reinterpret_cast<const char*>(copy.get()), data.size());
  }
  if (data[E::EI_CLASS] != E::ELFCLASS64 || data[E::EI_DATA] != E::ELFDATA2LSB) return Bad("not a 64-bit object");
  INLAY_LLVM_ASSIGN(ElfFile file, ElfFile::create(llvm::StringRef(data.data(), data.size())));
  const Elf::Ehdr& header = file.getHeader();
  if (header.e_machine != machine) {
    return Bad(absl::StrCat("of another architecture (ELF machine ", static_cast<unsigned>(header.e_machine), ") than ",
                            architecture));
  }
  if (header.e_type != E::ET_REL) return Bad("not a relocatable object");
  if (header.e_shentsize != sizeof(Elf::Shdr)) return Bad("damaged ELF file: section headers of a wrong size");
  return Reader(file, machine).Read();
}

}  // namespace inlay::artifact
