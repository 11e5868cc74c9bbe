#include "core/artifact/elf_object.h"

#include <elf.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

#ifndef SHF_X86_64_LARGE
#define SHF_X86_64_LARGE 0x10000000
#endif

namespace inlay::artifact {
namespace {

template <typename T>
absl::string_view AsBytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

uint32_t Intern(std::string* table, const std::string& text) {
  const auto offset = static_cast<uint32_t>(table->size());
  table->append(text);
  table->push_back('\0');
  return offset;
}

// A file that is written from front to back, with the gaps that alignment needs.
class Output {
 public:
  explicit Output(WritableFile* file) : file_(file) {}
  absl::Status Append(absl::string_view data) {
    at_ += data.size();
    return file_->Append(data);
  }
  absl::Status PadTo(uint64_t offset) { return Append(std::string(offset - at_, '\0')); }
  uint64_t at() const { return at_; }

 private:
  WritableFile* file_;
  uint64_t at_ = 0;
};

}  // namespace

int ElfObject::AddSection(std::string name, uint64_t size, Writer writer, SectionOptions options) {
  sections_.push_back({std::move(name), size, std::move(writer), options, {}});
  return static_cast<int>(sections_.size()) - 1;
}

int ElfObject::AddSection(std::string name, std::string data, SectionOptions options) {
  const uint64_t size = data.size();
  return AddSection(std::move(name), size, [data = std::move(data)](const Sink& sink) { return sink(data); }, options);
}

int ElfObject::AddSymbol(std::string name, int section, uint64_t size, uint64_t offset) {
  symbols_.push_back({std::move(name), section, size, offset});
  return static_cast<int>(symbols_.size()) - 1;
}

int ElfObject::AddUndefined(std::string name) { return AddSymbol(std::move(name), -1, 0); }

void ElfObject::AddPointer(int section, uint64_t offset, int symbol) {
  const uint32_t type = machine_ == Machine::kX86_64 ? R_X86_64_64 : R_AARCH64_ABS64;
  sections_[section].relocations.push_back({offset, symbol, type, 0});
}

void ElfObject::AddDistance(int section, uint64_t offset, int symbol, int64_t addend) {
  sections_[section].relocations.push_back({offset, symbol, R_X86_64_PC32, addend});
}

absl::Status ElfObject::WriteTo(const std::string& path) const {
  const bool x86 = machine_ == Machine::kX86_64;
  std::string names(1, '\0'), strings(1, '\0');
  std::vector<Elf64_Shdr> headers(1, Elf64_Shdr{});
  std::vector<Writer> writers(1);
  uint64_t at = sizeof(Elf64_Ehdr);
  auto add = [&](const std::string& name, uint32_t type, uint64_t flags, uint64_t size, uint64_t align, Writer writer) {
    at = (at + align - 1) / align * align;
    Elf64_Shdr header = {};
    header.sh_name = Intern(&names, name);
    header.sh_type = type;
    header.sh_flags = flags;
    header.sh_offset = at;
    header.sh_size = size;
    header.sh_addralign = align;
    headers.push_back(header);
    writers.push_back(std::move(writer));
    at += size;
  };
  auto bytes = [](std::string data) { return [data = std::move(data)](const Sink& sink) { return sink(data); }; };

  for (const Section& section : sections_) {
    uint64_t flags = SHF_ALLOC;
    if (section.options.writable) flags |= SHF_WRITE;
    if (section.options.executable) flags |= SHF_EXECINSTR;
    if (section.options.large && x86) flags |= SHF_X86_64_LARGE;
    add(section.name, SHT_PROGBITS, flags, section.size, section.options.align, section.writer);
  }
  std::string symbols(sizeof(Elf64_Sym), '\0');
  for (const Symbol& symbol : symbols_) {
    Elf64_Sym entry = {};
    entry.st_name = Intern(&strings, symbol.name);
    const bool code = symbol.section >= 0 && sections_[symbol.section].options.executable;
    entry.st_info = ELF64_ST_INFO(STB_GLOBAL, symbol.section < 0 ? STT_NOTYPE : code ? STT_FUNC : STT_OBJECT);
    entry.st_other = symbol.section < 0 ? STV_DEFAULT : STV_HIDDEN;
    entry.st_shndx = symbol.section < 0 ? SHN_UNDEF : static_cast<uint16_t>(symbol.section + 1);
    entry.st_value = symbol.offset;
    entry.st_size = symbol.size;
    symbols.append(AsBytes(entry).data(), sizeof(entry));
  }
  const auto symtab = static_cast<uint32_t>(headers.size());
  add(".symtab", SHT_SYMTAB, 0, symbols.size(), 8, bytes(symbols));
  headers.back().sh_link = symtab + 1;
  headers.back().sh_info = 1;  // no local symbols but the first
  headers.back().sh_entsize = sizeof(Elf64_Sym);
  add(".strtab", SHT_STRTAB, 0, strings.size(), 1, bytes(strings));
  for (size_t s = 0; s < sections_.size(); ++s) {
    if (sections_[s].relocations.empty()) continue;
    std::string relocations;
    for (const Relocation& relocation : sections_[s].relocations) {
      Elf64_Rela entry = {};
      entry.r_offset = relocation.offset;
      entry.r_info = ELF64_R_INFO(static_cast<uint64_t>(relocation.symbol) + 1, relocation.type);
      entry.r_addend = relocation.addend;
      relocations.append(AsBytes(entry).data(), sizeof(entry));
    }
    add(".rela" + sections_[s].name, SHT_RELA, SHF_INFO_LINK, relocations.size(), 8, bytes(relocations));
    headers.back().sh_link = symtab;
    headers.back().sh_info = static_cast<uint32_t>(s) + 1;
    headers.back().sh_entsize = sizeof(Elf64_Rela);
  }
  add(".note.GNU-stack", SHT_PROGBITS, 0, 0, 1, bytes(""));
  Intern(&names, ".shstrtab");  // the table names itself, so its own name must be in it before it is measured
  const std::string all_names = names;
  add("", SHT_STRTAB, 0, all_names.size(), 1, bytes(all_names));
  headers.back().sh_name = static_cast<uint32_t>(all_names.size() - sizeof(".shstrtab"));

  Elf64_Ehdr elf = {};
  elf.e_ident[EI_MAG0] = ELFMAG0;
  elf.e_ident[EI_MAG1] = ELFMAG1;
  elf.e_ident[EI_MAG2] = ELFMAG2;
  elf.e_ident[EI_MAG3] = ELFMAG3;
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_ident[EI_VERSION] = EV_CURRENT;
  elf.e_type = ET_REL;
  elf.e_machine = x86 ? EM_X86_64 : EM_AARCH64;
  elf.e_version = EV_CURRENT;
  elf.e_shoff = (at + 7) / 8 * 8;
  elf.e_ehsize = sizeof(Elf64_Ehdr);
  elf.e_shentsize = sizeof(Elf64_Shdr);
  elf.e_shnum = static_cast<uint16_t>(headers.size());
  elf.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);

  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, FileSystem::Default()->Create(path, 0600));
  Output out(file.get());
  INLAY_RETURN_IF_ERROR(out.Append(AsBytes(elf)));
  for (size_t i = 1; i < headers.size(); ++i) {
    INLAY_RETURN_IF_ERROR(out.PadTo(headers[i].sh_offset));
    INLAY_RETURN_IF_ERROR(writers[i]([&](absl::string_view data) { return out.Append(data); }));
    if (out.at() != headers[i].sh_offset + headers[i].sh_size) {
      return absl::InternalError(absl::StrCat("a section of ", path, " got ", out.at() - headers[i].sh_offset,
                                              " bytes instead of ", headers[i].sh_size));
    }
  }
  INLAY_RETURN_IF_ERROR(out.PadTo(elf.e_shoff));
  for (const Elf64_Shdr& header : headers) INLAY_RETURN_IF_ERROR(out.Append(AsBytes(header)));
  return file->Close();
}

}  // namespace inlay::artifact
