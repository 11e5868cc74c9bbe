#include "core/artifact/imports.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/artifact/elf_object.h"
#include "core/base/status_macros.h"
#include "llvm/Object/Archive.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

namespace inlay::artifact {
namespace {

namespace object = llvm::object;

absl::Status Unreadable(const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(path, " can't be read: ", why));
}

absl::Status Unreadable(const std::string& path, llvm::Error error) {
  return Unreadable(path, llvm::toString(std::move(error)));
}

absl::StatusOr<std::unique_ptr<llvm::MemoryBuffer>> Open(const std::string& path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer) return Unreadable(path, buffer.getError().message());
  return std::move(*buffer);
}

// What an archive's members want from elsewhere, weak wishes left out.
absl::Status AddUndefined(const std::string& path, std::set<std::string>* undefined) {
  INLAY_ASSIGN_OR_RETURN(auto buffer, Open(path));
  auto archive = object::Archive::create(buffer->getMemBufferRef());
  if (!archive) return Unreadable(path, archive.takeError());
  llvm::Error error = llvm::Error::success();
  for (const object::Archive::Child& child : (*archive)->children(error)) {
    auto bytes = child.getMemoryBufferRef();
    if (!bytes) return Unreadable(path, bytes.takeError());
    auto file = object::ObjectFile::createObjectFile(*bytes);
    if (!file) return Unreadable(path, file.takeError());
    for (const object::SymbolRef& symbol : (*file)->symbols()) {
      auto flags = symbol.getFlags();
      auto name = symbol.getName();
      if (!flags) return Unreadable(path, flags.takeError());
      if (!name) return Unreadable(path, name.takeError());
      if ((*flags & object::SymbolRef::SF_Undefined) == 0 || (*flags & object::SymbolRef::SF_Weak) != 0) continue;
      if (!name->empty()) undefined->insert(name->str());
    }
  }
  return error ? Unreadable(path, std::move(error)) : absl::OkStatus();
}

struct Exports {
  std::set<std::string> functions, data;
};

absl::StatusOr<Exports> ReadExports(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(auto buffer, Open(path));
  auto file = object::ObjectFile::createObjectFile(buffer->getMemBufferRef());
  if (!file) return Unreadable(path, file.takeError());
  const auto* elf = llvm::dyn_cast<object::ELFObjectFileBase>(file->get());
  if (elf == nullptr) return Unreadable(path, "not an ELF file");
  Exports exports;
  for (const object::ELFSymbolRef& symbol : elf->getDynamicSymbolIterators()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags) return Unreadable(path, flags.takeError());
    if (!name) return Unreadable(path, name.takeError());
    if ((*flags & object::SymbolRef::SF_Undefined) != 0) continue;
    const uint8_t type = symbol.getELFType();
    const bool code = type == llvm::ELF::STT_FUNC || type == llvm::ELF::STT_GNU_IFUNC;
    (code ? exports.functions : exports.data).insert(name->str());
  }
  return exports;
}

// Removes what an archive or a shared library defines.
absl::Status RemoveDefined(const std::string& path, std::set<std::string>* symbols) {
  INLAY_ASSIGN_OR_RETURN(auto buffer, Open(path));
  if (buffer->getBuffer().substr(0, 8) != "!<arch>\n") {
    INLAY_ASSIGN_OR_RETURN(Exports exports, ReadExports(path));
    for (const std::string& name : exports.functions) symbols->erase(name);
    for (const std::string& name : exports.data) symbols->erase(name);
    return absl::OkStatus();
  }
  auto archive = object::Archive::create(buffer->getMemBufferRef());
  if (!archive) return Unreadable(path, archive.takeError());
  for (const object::Archive::Symbol& symbol : (*archive)->symbols()) symbols->erase(symbol.getName().str());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<std::string>>> FindImports(const ImportRequest& request) {
  std::vector<std::vector<std::string>> imports(request.library_paths.size());
  if (imports.empty()) return imports;
  std::set<std::string> wanted;
  for (const std::string& path : request.users) INLAY_RETURN_IF_ERROR(AddUndefined(path, &wanted));
  // What the linker itself and the objects around the archives define.
  for (const char* name : {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "inlay_library_table", "inlay_library_imports"}) {
    wanted.erase(name);
  }
  for (const std::string& path : request.users) INLAY_RETURN_IF_ERROR(RemoveDefined(path, &wanted));
  for (const std::string& path : request.carried) INLAY_RETURN_IF_ERROR(RemoveDefined(path, &wanted));
  int missing = -1;
  for (size_t i = 0; i < imports.size(); ++i) {
    const std::string& path = request.library_paths[i];
    if (path.empty()) {
      missing = static_cast<int>(i);
      continue;
    }
    INLAY_ASSIGN_OR_RETURN(const Exports exports, ReadExports(path));
    for (auto it = wanted.begin(); it != wanted.end();) {
      if (exports.data.count(*it) > 0) {
        return absl::FailedPreconditionError(absl::StrCat(*it, " of ", path, " is data, which can't be loaded late"));
      }
      if (exports.functions.count(*it) == 0) {
        ++it;
        continue;
      }
      imports[i].push_back(*it);
      it = wanted.erase(it);
    }
  }
  if (missing >= 0) imports[missing].assign(wanted.begin(), wanted.end());
  return imports;
}

absl::Status WriteImports(const std::vector<std::vector<std::string>>& imports, const std::string& path) {
  constexpr uint64_t kSlot = 8, kJump = 8;
  std::vector<std::string> names;
  for (const auto& of_library : imports) names.insert(names.end(), of_library.begin(), of_library.end());
  ElfObject elf(ElfObject::Machine::kX86_64);
  ElfObject::SectionOptions writable;
  writable.writable = true;
  const uint64_t slot_bytes = kSlot * (names.size() + 1);  // one more, so that the table is there without any
  const int slots = elf.AddSection(".data.inlay_imports", std::string(slot_bytes, '\0'), writable);
  const int table = elf.AddSymbol("inlay_library_imports", slots, slot_bytes);
  if (names.empty()) return elf.WriteTo(path);
  std::string code;
  for (size_t i = 0; i < names.size(); ++i) code.append("\xff\x25\0\0\0\0\x66\x90", kJump);  // jmp *slot(%rip); nop
  ElfObject::SectionOptions executable;
  executable.executable = true;
  const int jumps = elf.AddSection(".text.inlay_imports", std::move(code), executable);
  for (size_t i = 0; i < names.size(); ++i) {
    elf.AddSymbol(names[i], jumps, kJump, i * kJump);
    // Counted from the instruction's end, four bytes on.
    elf.AddDistance(jumps, i * kJump + 2, table, static_cast<int64_t>(i * kSlot) - 4);
  }
  return elf.WriteTo(path);
}

}  // namespace inlay::artifact
