#include "core/artifact/static_library.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/artifact/elf_check.h"
#include "core/artifact/function_table.h"
#include "core/base/status_macros.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::artifact {
namespace {

absl::Status Bad(absl::string_view what) { return absl::FailedPreconditionError(what); }

absl::Status CheckManifest(const proto::StaticLibraryManifest& manifest) {
  if (manifest.format_version() != kStaticLibraryFormatVersion ||
      manifest.kernel_abi_version() != INLAY_KERNEL_ABI_VERSION) {
    return Bad(absl::StrCat("format ", manifest.format_version(), " with kernel ABI ", manifest.kernel_abi_version(),
                            "; this server has ", kStaticLibraryFormatVersion, " and ", INLAY_KERNEL_ABI_VERSION));
  }
  if (manifest.backend().empty() || manifest.backend_version().empty() || manifest.target_triple().empty()) {
    return Bad("the manifest lacks backend, version or target");
  }
  if (manifest.functions().empty()) return Bad("the manifest lists no function");
  for (const std::string& component : manifest.runtime_components()) {
    if (!IsPlainName(component)) return Bad(absl::StrCat("the runtime component '", component, "' is no name"));
  }
  for (const proto::RequiredLibrary& library : manifest.required_libraries()) {
    if (!IsPlainName(library.soname())) return Bad(absl::StrCat("the soname '", library.soname(), "' is no name"));
  }
  for (const std::string& package : manifest.linked_packages()) {
    if (!IsPlainName(package)) return Bad(absl::StrCat("the package '", package, "' is no name"));
  }
  // Each function's own entry; and none twice.
  return FunctionTable::Make(absl::MakeConstSpan(&manifest, 1)).status();
}

std::set<std::string> WantedSymbols(const proto::StaticLibraryManifest& manifest) {
  std::set<std::string> wanted;
  for (const proto::PrimitiveFunction& f : manifest.functions()) {
    wanted.insert(f.symbol() + "_run");
    if (!f.has_state()) continue;
    wanted.insert(f.symbol() + "_init");
    wanted.insert(f.symbol() + "_destroy");
  }
  return wanted;
}

bool IsProvided(absl::string_view symbol, const proto::StaticLibraryManifest& manifest) {
  if (IsAllowedExternal(symbol) || symbol == "_GLOBAL_OFFSET_TABLE_") return true;
  for (const std::string& component : manifest.runtime_components()) {
    if (absl::StartsWith(symbol, absl::StrCat("inlay_", component, "_"))) return true;
  }
  for (const std::string& callee : manifest.calls()) {
    if (symbol == absl::StrCat(callee, "_run")) return true;
  }
  return false;
}

// A C compiler will check more; this much tells a library of sources from a damaged one.
absl::Status CheckSources(const proto::StaticLibrary& library, std::map<std::string, std::string>* defined_by) {
  const proto::StaticLibraryManifest& manifest = library.manifest();
  if (!library.objects().empty()) return Bad("both sources and objects");
  for (const proto::SourceFile& source : library.sources()) {
    const bool c = absl::EndsWith(source.name(), ".c") || absl::EndsWith(source.name(), ".h");
    if (!c || !IsPlainName(source.name())) return Bad(absl::StrCat("the source '", source.name(), "' is no C file"));
  }
  for (const proto::PrimitiveFunction& f : manifest.functions()) {
    const std::string definition = absl::StrCat("\nint32_t ", f.symbol(), "(");
    const bool found = std::any_of(library.sources().begin(), library.sources().end(),
                                   [&](const auto& source) { return absl::StrContains(source.text(), definition); });
    if (!found) return Bad(absl::StrCat("no source defines ", f.symbol(), ", which the manifest lists"));
    if (f.has_state()) return Bad(absl::StrCat("function ", f.symbol(), " has state, which C sources can't have"));
    if (!defined_by->insert({f.symbol(), manifest.backend()}).second) {
      return Bad(absl::StrCat("function ", f.symbol(), " is defined twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAlone(const proto::StaticLibrary& library, std::map<std::string, std::string>* defined_by) {
  const proto::StaticLibraryManifest& manifest = library.manifest();
  INLAY_RETURN_IF_ERROR(CheckManifest(manifest));
  if (manifest.target_triple() == "c" || !library.sources().empty()) return CheckSources(library, defined_by);
  const std::string architecture = manifest.target_triple().substr(0, manifest.target_triple().find('-'));
  std::set<std::string> defined, undefined;
  for (const proto::ObjectFile& object : library.objects()) {
    const std::string where = absl::StrCat("object '", object.name(), "'");
    INLAY_ASSIGN_OR_RETURN(ObjectSymbols symbols, Annotate(ReadObject(object.data(), architecture), where));
    for (const std::string& symbol : symbols.strong) {
      const auto [it, fresh] = defined_by->insert({symbol, absl::StrCat(where, " of ", manifest.backend())});
      if (!fresh) {
        return Bad(absl::StrCat("symbol ", symbol, " is defined twice: in ", it->second, " and in ", where, " of ",
                                manifest.backend()));
      }
    }
    defined.insert(symbols.strong.begin(), symbols.strong.end());
    defined.insert(symbols.weak.begin(), symbols.weak.end());
    undefined.insert(symbols.undefined.begin(), symbols.undefined.end());
  }
  const std::set<std::string> wanted = WantedSymbols(manifest);
  for (const std::string& symbol : wanted) {
    if (defined.count(symbol) == 0)
      return Bad(absl::StrCat("no object defines ", symbol, ", which the manifest lists"));
  }
  for (const std::string& symbol : defined) {
    if (absl::EndsWith(symbol, "_run") && wanted.count(symbol) == 0) {
      return Bad(absl::StrCat("the manifest does not list function ", absl::StripSuffix(symbol, "_run"),
                              ", which an object defines"));
    }
  }
  for (const std::string& symbol : undefined) {
    if (defined.count(symbol) == 0 && !IsProvided(symbol, manifest)) {
      return Bad(absl::StrCat("undefined symbol ", symbol, ": neither the C or math library's, nor of a runtime ",
                              "component that the manifest declares"));
    }
  }
  return absl::OkStatus();
}

std::string Which(const proto::StaticLibrary& library) {
  const proto::StaticLibraryManifest& manifest = library.manifest();
  return absl::StrCat("StaticLibrary of ", manifest.backend().empty() ? "(no backend)" : manifest.backend(),
                      manifest.functions().empty() ? "" : absl::StrCat(" with ", manifest.functions(0).symbol()));
}

}  // namespace

absl::Status CheckStaticLibrary(const proto::StaticLibrary& library) {
  std::map<std::string, std::string> defined_by;
  return Annotate(CheckAlone(library, &defined_by), Which(library));
}

absl::Status CheckStaticLibraries(absl::Span<const proto::StaticLibrary* const> libraries) {
  std::map<std::string, std::string> defined_by;
  for (const proto::StaticLibrary* library : libraries) {
    INLAY_RETURN_IF_ERROR(Annotate(CheckAlone(*library, &defined_by), Which(*library)));
  }
  for (const proto::StaticLibrary* library : libraries) {
    for (const std::string& callee : library->manifest().calls()) {
      if (defined_by.count(absl::StrCat(callee, "_run")) == 0) {
        return Bad(absl::StrCat(Which(*library), ": no library implements ", callee, ", which it calls"));
      }
    }
  }
  return absl::OkStatus();
}

bool IsPlainName(absl::string_view name) {
  if (name.empty() || name.size() > 128) return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' && c != '+') return false;
  }
  return name[0] != '-' && name[0] != '.';
}

std::vector<absl::string_view> AllowedExternals() {
  return {
#define INLAY_EXTERNAL(name) #name,
#define INLAY_HELPER(name) #name,
#include "core/artifact/allowed_externals.inc"
#undef INLAY_EXTERNAL
#undef INLAY_HELPER
  };
}

bool IsAllowedExternal(absl::string_view symbol) {
  static const auto* allowed = [] {
    const std::vector<absl::string_view> names = AllowedExternals();
    return new std::set<absl::string_view>(names.begin(), names.end());
  }();
  return allowed->count(symbol) > 0;
}

}  // namespace inlay::artifact
