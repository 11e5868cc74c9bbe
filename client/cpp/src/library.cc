#include "inlay/library.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/src/elf_manifest.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/memory_library.h"
#include "client/cpp/src/module_objects.h"
#include "client/cpp/src/wire.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/runtime/dependencies.h"
#include "core/runtime/exported/compatibility.h"
#include "core/runtime/exported/params.h"

namespace inlay {
namespace {

namespace fs = std::filesystem;

// Of the plan's "inputs" or "outputs". Throws what nlohmann::json does.
std::vector<TensorSpec> Specs(const nlohmann::json& plan, const char* which) {
  std::vector<TensorSpec> specs;
  for (const auto& entry : plan.at(which)) {
    std::vector<Dim> dims;
    for (const auto& number : entry.at("shape")) {
      const auto extent = number.get<int64_t>();
      // Below zero: which of the plan's open extents it is (core/runtime/PLAN.md).
      if (extent >= 0) {
        dims.emplace_back(extent);
      } else {
        const size_t index = -1 - extent;
        dims.emplace_back(plan.at("shapes").at("extents").at(index).at(0).get<std::string>());
      }
    }
    specs.push_back(
        MakeSpec(entry.at("name").get<std::string>(), entry.at("dtype").get<std::string>(), std::move(dims)));
  }
  return specs;
}

struct Manifest {
  Signature signature;
  std::vector<runtime::Dependency> dependencies;
};

// What the file says of itself, where this machine can run it. `what`: begins the message.
absl::StatusOr<Manifest> CheckedManifest(const std::string& file, absl::string_view what) {
  absl::StatusOr<std::string> text = ReadManifest(file);
  if (!text.ok()) return text.status();
  Manifest manifest;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    const runtime::Status fits = runtime::CheckMachine(json);
    if (!fits.ok()) return FromRuntime(ErrorKind::kLoad, fits, absl::StrCat(what, " can't be loaded: "));
    manifest.dependencies = runtime::DependenciesOf(json);
    manifest.signature = {Specs(json.at("plan"), "inputs"), Specs(json.at("plan"), "outputs")};
  } catch (const std::exception& error) {
    return LoadError(
        absl::StrCat(what, ": its manifest can't be read (", error.what(), "); export it again with this version"));
  }
  return manifest;
}

absl::Status CallLoaded(const Module& module, const std::string& function, const std::vector<Any>& args,
                        absl::string_view what) {
  INLAY_ASSIGN_OR_RETURN(const Function call, module.GetFunction(function));
  const absl::Status status = Call(call, args).status();
  if (status.ok()) return status;
  const absl::StatusCode code =
      status.code() == absl::StatusCode::kInternal ? absl::StatusCode::kFailedPrecondition : status.code();
  return MakeError(ErrorKind::kLoad, code, absl::StrCat(what, " can't be loaded: ", status.message()));
}

// `path`: for the dynamic linker, with a suffix.
absl::StatusOr<Module> Open(const std::string& path, const std::string& what, int num_threads) {
  INLAY_ASSIGN_OR_RETURN(Manifest manifest, CheckedManifest(path, what));
  // Those that lie in this installation, so that the library finds them in the process wherever it lies itself. What is
  // missing here may lie beside it; it says so itself when it is loaded.
  std::vector<void*> addresses;
  (void)runtime::LoadDependencies(manifest.dependencies, &addresses);
  try {
    const tvm::ffi::Module library = tvm::ffi::Module::LoadFromFile(path);
    // It stays in the process, as tvm_ffi.load_module has it (client/cpp/README.md).
    Function::GetGlobalRequired("ffi.ModuleGlobalsAdd")(library);
    const Module module = LoadedModule(library, std::move(manifest.signature), std::string(what));
    if (num_threads != 0) {
      INLAY_RETURN_IF_ERROR(CallLoaded(module, "set_num_threads", {Any(num_threads)}, what));
    }
    // Now, and not at the first call: parameters are packed, and what is wrong with them comes out here.
    INLAY_RETURN_IF_ERROR(CallLoaded(module, "load", {}, what));
    return module;
  } catch (const tvm::ffi::Error& error) {
    return LoadError(absl::StrCat(what, " can't be loaded: ", error.message()));
  }
}

// A path under which the dynamic linker does not confuse this file with one that it loaded from the same path before
// and that was replaced since (exported again).
struct UnambiguousPath {
  std::string path;
  std::optional<TempDir> folder;  // in which it lies; nothing needs it once the library is loaded
};

absl::StatusOr<UnambiguousPath> Unambiguous(const std::string& path) {
  static absl::Mutex mutex;
  static auto* loaded =
      new std::map<std::string, std::pair<dev_t, ino_t>>;  // by path: the file first loaded from there
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "read", path);
  const std::pair<dev_t, ino_t> file(info.st_dev, info.st_ino);
  {
    absl::MutexLock lock(&mutex);
    if (loaded->emplace(path, file).first->second == file) return UnambiguousPath{path, std::nullopt};
  }
  INLAY_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create("inlay-"));
  const fs::path link = fs::path(folder.path()) / fs::path(path).filename();
  std::error_code error;
  fs::create_symlink(path, link, error);
  if (fs::exists(path + ".safetensors", error)) {
    fs::create_symlink(path + ".safetensors", link.string() + ".safetensors", error);
  }
  return UnambiguousPath{link.string(), std::move(folder)};
}

}  // namespace

absl::StatusOr<std::string> ReadManifest(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    const absl::Status status = ErrnoStatus(errno, "read", path);
    return MakeError(ErrorKind::kLoad, status.code(), status.message());
  }
  runtime::StatusOr<runtime::MappedFile> file = runtime::MappedFile::Open(path);
  if (!file.ok()) return LoadError(absl::StrCat(path, " is not a shared library"));
  absl::StatusOr<absl::string_view> manifest = FindManifest({file->data(), file->size()});
  if (!manifest.ok()) return LoadError(absl::StrCat(path, " ", manifest.status().message()));
  return std::string(*manifest);
}

absl::StatusOr<Module> LoadLibrary(const std::string& path, int num_threads) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  if (error) {
    const absl::Status status = ErrnoStatus(error.value(), "read", path);
    return MakeError(ErrorKind::kLoad, status.code(), status.message());
  }
  INLAY_RETURN_IF_ERROR(ReadManifest(path).status());  // errors name the path that was given
  INLAY_ASSIGN_OR_RETURN(const UnambiguousPath unambiguous, Unambiguous(whole.string()));
  return Open(unambiguous.path, path, num_threads);
}

absl::StatusOr<MemoryLibrary> MemoryLibrary::Make() {
  INLAY_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create("inlay-"));
  const int library = memfd_create("inlay-library", MFD_CLOEXEC);
  if (library < 0) return ErrnoStatus(errno, "make", "a file in memory");
  OutputFile library_file(library, "a file in memory");
  const int params = memfd_create("inlay-params", MFD_CLOEXEC);
  if (params < 0) return ErrnoStatus(errno, "make", "a file in memory");
  return MemoryLibrary(std::move(folder), std::move(library_file), OutputFile(params, "a file in memory"));
}

absl::StatusOr<Module> MemoryLibrary::Load(int num_threads) {
  const std::string path = folder_.path() + "/module.so";
  std::error_code error;
  fs::create_symlink(absl::StrCat("/proc/self/fd/", library.fd()), path, error);
  if (params.size() > 0) {
    fs::create_symlink(absl::StrCat("/proc/self/fd/", params.fd()), path + ".safetensors", error);
  }
  return Open(path, "the library", num_threads);
}

}  // namespace inlay
