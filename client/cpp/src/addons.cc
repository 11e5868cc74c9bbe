// Modules that can be exported: sources and objects, whose they are, and how they become objects for the server to
// link.
#include <dlfcn.h>
#include <stdlib.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/module_objects.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay {
namespace {

using tvm::ffi::Array;
using tvm::ffi::String;

struct Language {
  const char* kind;
  const char* format;  // of WriteToFile, and the file's suffix
  const char* compiler;
};
constexpr Language kLanguages[] = {{"c", "c", "cc"}, {"cc", "cc", "c++"}, {"cuda", "cu", "nvcc"}};

class SourceObj final : public NodeObj {
 public:
  SourceObj(std::string source, const Language& language, std::string name)
      : NodeObj(language.kind, Module::kCompilationExportable, std::move(name)),
        source_(std::move(source)),
        format_(language.format) {}
  Array<String> GetWriteFormats() const final { return {String(format_)}; }
  void WriteToFile(const String& file, const String&) const final { std::ofstream(file.c_str()) << source_; }
  String InspectSource(const String&) const final { return source_; }

 private:
  const std::string source_, format_;
};

class ObjectObj final : public NodeObj {
 public:
  ObjectObj(std::string data, std::string name)
      : NodeObj("static_library", Module::kCompilationExportable, std::move(name)), data_(std::move(data)) {}
  Array<String> GetWriteFormats() const final { return {String("o")}; }
  void WriteToFile(const String& file, const String&) const final {
    std::ofstream(file.c_str(), std::ios::binary) << data_;
  }

 private:
  const std::string data_;
};

// The language of a module that writes sources; nullptr: it writes none.
const Language* LanguageOf(const Module& module) {
  for (const String& format : module->GetWriteFormats()) {
    for (const Language& language : kLanguages) {
      if (format == language.format) return &language;
    }
  }
  return nullptr;
}

// As the shell finds it; "": nowhere.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path, ':')) {
    const std::string candidate = absl::StrCat(folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// tvm-ffi's headers, which lie beside its library in its package.
std::string TvmFfiInclude() {
  Dl_info info = {};
  char real[PATH_MAX];
  if (dladdr(reinterpret_cast<const void*>(&TVMFFIErrorMoveFromRaised), &info) == 0 ||
      realpath(info.dli_fname, real) == nullptr) {
    return "";
  }
  return (std::filesystem::path(real).parent_path().parent_path() / "include").string();
}

absl::Status RunCompiler(const Module& module, const Language& language, const std::string& compiler,
                         const std::string& source, const std::string& output,
                         const std::vector<std::string>& options) {
  const std::string program = FindProgram(compiler);
  if (program.empty()) {
    return ModuleError(absl::StrCat(module.ToString(), " must be compiled, and there is no '", compiler,
                                    "' here: install it, or give another as fcompile"));
  }
  SubprocessOptions command;
  command.argv = {program, "-c", "-O2"};
  if (std::string(language.kind) == "cuda") command.argv.push_back("-Xcompiler");
  command.argv.push_back("-fPIC");
  if (const std::string include = TvmFfiInclude(); !include.empty()) command.argv.push_back("-I" + include);
  command.argv.insert(command.argv.end(), options.begin(), options.end());
  command.argv.insert(command.argv.end(), {source, "-o", output});
  for (char** variable = environ; *variable != nullptr; ++variable) command.env.emplace_back(*variable);
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> process, Subprocess::Start(command));
  if (!process->Wait(absl::InfiniteFuture()).ok()) {
    const std::string all = process->StderrTail();
    std::string said(absl::StripAsciiWhitespace(all));
    if (said.size() > 2000) said = said.substr(said.size() - 2000);
    return ModuleError(absl::StrCat(module.ToString(), ": ", compiler, " failed:\n", said));
  }
  return absl::OkStatus();
}

// The object that a module which is to be exported becomes.
absl::StatusOr<Addon> Compile(const Module& module, const Fcompile& fcompile, const std::vector<std::string>& options) {
  INLAY_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create("inlay-"));
  const std::string output = folder.path() + "/source.o";
  const Language* language = LanguageOf(module);
  const std::string source = absl::StrCat(folder.path(), "/source.", language == nullptr ? "o" : language->format);
  try {
    module->WriteToFile(source, language == nullptr ? "o" : language->format);
  } catch (const tvm::ffi::Error& error) {
    return ModuleError(absl::StrCat(module.ToString(), " can't be written: ", error.message()));
  }
  if (language != nullptr && fcompile.function) {
    const absl::Status done = fcompile.function(output, source, options);
    if (!done.ok()) return ModuleError(absl::StrCat(module.ToString(), ": fcompile: ", done.message()));
    if (access(output.c_str(), R_OK) != 0) {
      return ModuleError(absl::StrCat(module.ToString(), ": fcompile returned and made no source.o"));
    }
  } else if (language != nullptr) {
    INLAY_RETURN_IF_ERROR(RunCompiler(module, *language,
                                      fcompile.compiler.empty() ? language->compiler : fcompile.compiler, source,
                                      output, options));
  }
  INLAY_ASSIGN_OR_RETURN(std::string data, ReadFile(output));
  return Addon{module.name().empty() ? module.kind() : module.name(), std::move(data)};
}

bool WritesObjects(const Module& module) {
  for (const String& format : module->GetWriteFormats()) {
    if (format == "o") return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Module> SourceModule(std::string source, const std::string& kind, std::string name) {
  for (const Language& language : kLanguages) {
    if (kind != language.kind) continue;
    if (name.empty()) name = absl::StrCat("source.", language.format);
    return Module(tvm::ffi::Module(tvm::ffi::make_object<SourceObj>(std::move(source), language, std::move(name))));
  }
  return MakeError(ErrorKind::kModule, absl::StatusCode::kInvalidArgument,
                   absl::StrCat("a source of kind '", kind, "'; there are c, cc, cuda"));
}

Module ObjectModule(std::string data, std::string name) {
  return tvm::ffi::Module(tvm::ffi::make_object<ObjectObj>(std::move(data), std::move(name)));
}

absl::StatusOr<Module> LoadObjectModule(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(std::string data, ReadFile(path));
  return ObjectModule(std::move(data), std::filesystem::path(path).filename().string());
}

absl::StatusOr<Module> CompileSource(const Module& source, const Fcompile& fcompile,
                                     const std::vector<std::string>& options) {
  if (LanguageOf(source) == nullptr) return ModuleError(absl::StrCat(source.ToString(), " is no source"));
  INLAY_ASSIGN_OR_RETURN(Addon object, Compile(source, fcompile, options));
  return ObjectModule(std::move(object.data), std::move(object.name));
}

absl::StatusOr<std::vector<Addon>> AddonsOf(const std::vector<Module>& modules, const Fcompile& fcompile,
                                            const std::vector<std::string>& options) {
  std::vector<Addon> addons;
  for (const Module& module : modules) {
    if (LanguageOf(module) != nullptr || WritesObjects(module)) {
      INLAY_ASSIGN_OR_RETURN(addons.emplace_back(), Compile(module, fcompile, options));
      continue;
    }
    if (!module.is_exportable()) {
      const NodeObj* node = AsNode(module);
      const std::string why = node == nullptr ? "leave it out" : node->why_not_exported();
      return ModuleError(
          absl::StrCat(module.ToString(), " can't be exported: it is runnable only. ", why, "; or use Jit()"));
    }
    if (AsNode(module) != nullptr) {
      return ModuleError(absl::StrCat(module.ToString(), " belongs to another Executable; export that one by itself"));
    }
    return ModuleError(
        absl::StrCat(module.ToString(), " can't be exported: it writes neither an object nor a source; or use Jit()"));
  }
  return addons;
}

}  // namespace inlay
