#include "core/backend/testing/tiny_object.h"

#include <elf.h>

#include <cstring>

namespace inlay::backend::testing {
namespace {

template <typename T>
void Append(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string CodeOf(const CopyFunction& function) {
  std::string code("\x48\x8b\xbe", 3);  // mov rdi, [rsi + 8 * num_inputs]
  Append(static_cast<uint32_t>(8 * function.num_inputs), &code);
  code.append("\x48\x8b\x36", 3);  // mov rsi, [rsi]
  code.append("\xb9", 1);          // mov ecx, bytes
  Append(static_cast<uint32_t>(function.bytes), &code);
  code.append("\xf3\xa4\x31\xc0\xc3", 5);  // rep movsb; xor eax, eax; ret
  code.resize((code.size() + 15) / 16 * 16, '\x90');
  return code;
}

// The file, section by section. Offsets need no alignment beyond 16 for what is in here.
class ElfFile {
 public:
  ElfFile() : bytes_(sizeof(Elf64_Ehdr), '\0') { AddSection("", SHT_NULL, 0, "", 0, 0, 0); }

  int AddSection(const std::string& name, uint32_t type, uint64_t flags, const std::string& data, uint32_t link,
                 uint32_t info, uint64_t entry_size) {
    bytes_.resize((bytes_.size() + 15) / 16 * 16);
    Elf64_Shdr header = {};
    header.sh_name = static_cast<uint32_t>(names_.size());
    header.sh_type = type;
    header.sh_flags = flags;
    header.sh_offset = type == SHT_NULL ? 0 : bytes_.size();
    header.sh_size = data.size();
    header.sh_link = link;
    header.sh_info = info;
    header.sh_addralign = type == SHT_NULL ? 0 : 16;
    header.sh_entsize = entry_size;
    names_.append(name.c_str(), name.size() + 1);
    bytes_ += data;
    headers_.push_back(header);
    return static_cast<int>(headers_.size()) - 1;
  }

  std::string Finish() {
    AddSection(".shstrtab", SHT_STRTAB, 0, names_ + std::string(".shstrtab", 10), 0, 0, 0);
    bytes_.resize((bytes_.size() + 15) / 16 * 16);
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_shoff = bytes_.size();
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(headers_.size());
    header.e_shstrndx = static_cast<uint16_t>(headers_.size() - 1);
    std::memcpy(&bytes_[0], &header, sizeof(header));
    for (const Elf64_Shdr& section : headers_) Append(section, &bytes_);
    return bytes_;
  }

 private:
  std::string bytes_;
  std::string names_;
  std::vector<Elf64_Shdr> headers_;
};

}  // namespace

std::string MakeCopyObject(const std::vector<CopyFunction>& functions, int64_t padding) {
  std::string text, names(1, '\0'), symbols(sizeof(Elf64_Sym), '\0');
  constexpr int kText = 1;  // the first section after the null one
  for (const CopyFunction& function : functions) {
    const std::string code = CodeOf(function);
    Elf64_Sym symbol = {};
    symbol.st_name = static_cast<uint32_t>(names.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = kText;
    symbol.st_value = text.size();
    symbol.st_size = code.size();
    Append(symbol, &symbols);
    names.append(function.symbol.c_str(), function.symbol.size() + 1);
    text += code;
  }
  ElfFile file;
  file.AddSection(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, text, 0, 0, 0);
  if (padding > 0) file.AddSection(".rodata", SHT_PROGBITS, SHF_ALLOC, std::string(padding, 'p'), 0, 0, 0);
  const int strings = file.AddSection(".strtab", SHT_STRTAB, 0, names, 0, 0, 0);
  file.AddSection(".symtab", SHT_SYMTAB, 0, symbols, strings, 1, sizeof(Elf64_Sym));
  file.AddSection(".note.GNU-stack", SHT_PROGBITS, 0, "", 0, 0, 0);
  return file.Finish();
}

}  // namespace inlay::backend::testing
