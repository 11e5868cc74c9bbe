#include "core/artifact/bundle.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/artifact/licenses.h"
#include "core/artifact/static_library.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

namespace inlay::artifact {
namespace {

constexpr char kPatchelf[] = "/usr/bin/patchelf";
constexpr char kTvmFfi[] = "libtvm_ffi.so";
// Static in `run` and in every artifact's runtime.
constexpr const char* kLinkedPackages[] = {"libminizip-dev", "nlohmann-json3-dev", "zlib1g-dev"};

constexpr char kReadme[] =
    "A model, compiled by inlay, with all that it needs besides glibc.\n"
    "\n"
    "  ./run --info                             inputs, outputs, and whether this machine can run it\n"
    "  ./run --input x.npz --output y.npz       run it on NumPy's arrays, by the inputs' names\n"
    "  ./run --random 1 --repeat 100            time it\n"
    "\n"
    "model.so is a library of Apache tvm-ffi's ABI (tvm_ffi.load_module); lib/ has the shared libraries that it "
    "loads,\n"
    "licenses/ their licences and those of what is linked into model.so and run. Copy the folder anywhere.\n";

absl::Status WriteFile(const std::string& path, absl::string_view data) {
  INLAY_ASSIGN_OR_RETURN(auto file, FileSystem::Default()->Create(path, 0644));
  INLAY_RETURN_IF_ERROR(file->Append(data));
  return file->Close();
}

class Assembly {
 public:
  Assembly(const LinkToolchain& toolchain, const BundleRequest& request) : toolchain_(toolchain), request_(request) {}

  absl::StatusOr<std::vector<BundleFile>> Run() {
    INLAY_RETURN_IF_ERROR(CheckNames());
    files_ = {{"run", request_.run_program, true}};
    if (!request_.library.empty()) files_.push_back({"model.so", request_.library, true});
    if (!request_.params_path.empty()) files_.push_back({"model.so.safetensors", request_.params_path, false});
    INLAY_RETURN_IF_ERROR(Add("README.txt", kReadme));
    INLAY_RETURN_IF_ERROR(FileSystem::Default()->CreateDirectories(request_.scratch_dir + "/lib"));
    INLAY_RETURN_IF_ERROR(AddLibrary(kTvmFfi, "model.so"));
    for (const proto::RequiredLibrary& required : request_.required_libraries) {
      INLAY_RETURN_IF_ERROR(AddLibrary(required.soname(), "model.so"));
    }
    if (!request_.library.empty()) INLAY_RETURN_IF_ERROR(AddNeeded(request_.library, "model.so"));
    INLAY_RETURN_IF_ERROR(AddNeeded(request_.run_program, "run"));
    INLAY_RETURN_IF_ERROR(AddLicenses());
    std::sort(files_.begin(), files_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return std::move(files_);
  }

 private:
  absl::Status CheckNames() const {
    for (const proto::RequiredLibrary& required : request_.required_libraries) {
      if (!IsPlainName(required.soname()) || !absl::StrContains(required.soname(), ".so")) {
        return absl::InvalidArgumentError(absl::StrCat("'", required.soname(), "' is no shared library's name"));
      }
    }
    for (const std::string& package : request_.linked_packages) {
      if (!IsPlainName(package)) return absl::InvalidArgumentError(absl::StrCat("'", package, "' is no package"));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& name, absl::string_view text) {
    std::string path = JoinPath(request_.scratch_dir, name);
    INLAY_RETURN_IF_ERROR(FileSystem::Default()->CreateDirectories(DirName(path)));
    INLAY_RETURN_IF_ERROR(WriteFile(path, text));
    files_.push_back({name, std::move(path), false});
    return absl::OkStatus();
  }

  std::string Find(const std::string& soname, const std::string& beside) const {
    std::vector<std::string> dirs = toolchain_.library_dirs;
    if (!beside.empty()) dirs.push_back(beside);
    for (const std::string& dir : dirs) {
      std::string path = JoinPath(dir, soname);
      if (access(path.c_str(), R_OK) == 0) return path;
    }
    return "";
  }

  absl::Status AddNeeded(const std::string& path, const std::string& user) {
    INLAY_ASSIGN_OR_RETURN(const std::vector<std::string> sonames, NeededSonames(path));
    for (const std::string& soname : sonames) INLAY_RETURN_IF_ERROR(AddLibrary(soname, user, DirName(path)));
    return absl::OkStatus();
  }

  absl::Status AddLibrary(const std::string& soname, const std::string& user, const std::string& beside = "") {
    if (IsGlibc(soname) || !libraries_.insert({soname, ""}).second) return absl::OkStatus();
    const std::string path = Find(soname, beside);
    if (path.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("a bundle needs ", soname, " (for ", user, "), which is not in ",
                       absl::StrJoin(toolchain_.library_dirs, ", "), " of the server"));
    }
    libraries_[soname] = path;
    INLAY_RETURN_IF_ERROR(AddNeeded(path, soname));
    INLAY_ASSIGN_OR_RETURN(std::string copy, FindingItsNeighbours(path, soname));
    files_.push_back({"lib/" + soname, std::move(copy), false});
    return absl::OkStatus();
  }

  // The library, or where it needs others a copy with RUNPATH $ORIGIN: model.so's RUNPATH is not theirs.
  absl::StatusOr<std::string> FindingItsNeighbours(const std::string& path, const std::string& soname) {
    INLAY_ASSIGN_OR_RETURN(const std::vector<std::string> needed, NeededSonames(path));
    if (std::all_of(needed.begin(), needed.end(), IsGlibc)) return path;
    if (access(kPatchelf, X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat("a bundle needs ", kPatchelf, " on the server (Debian: patchelf)"));
    }
    INLAY_ASSIGN_OR_RETURN(const FileContents contents, FileSystem::Default()->Read(path, 1 << 20));
    std::string copy = absl::StrCat(request_.scratch_dir, "/lib/", soname);
    INLAY_RETURN_IF_ERROR(WriteFile(copy, contents.data));
    SubprocessOptions options;
    options.argv = {kPatchelf, "--set-rpath", "$ORIGIN", copy};
    options.env = {"LC_ALL=C"};
    INLAY_RETURN_IF_ERROR(Annotate(RunSubprocess(std::move(options), absl::Minutes(2)).status(), kPatchelf));
    return copy;
  }

  absl::Status AddLicenses() {
    for (const auto& [soname, path] : libraries_) {
      auto text = FileLicense(path);
      if (absl::IsNotFound(text.status())) {
        text = absl::StrCat("No licence of ", soname, " was found beside it on the server.\n");
      }
      INLAY_RETURN_IF_ERROR(text.status());
      INLAY_RETURN_IF_ERROR(Add(absl::StrCat("licenses/", soname, ".txt"), *text));
    }
    std::set<std::string> packages(std::begin(kLinkedPackages), std::end(kLinkedPackages));
    packages.insert(request_.linked_packages.begin(), request_.linked_packages.end());
    for (const std::string& package : packages) {
      if (auto text = PackageLicense(package); text.ok()) {
        INLAY_RETURN_IF_ERROR(Add(absl::StrCat("licenses/", package, ".txt"), *text));
      }
    }
    // libstdc++ and libgcc, by their archives' package.
    for (size_t i = 0; i < toolchain_.static_archives.size(); ++i) {
      const std::string& archive = toolchain_.static_archives[i];
      const std::string name = archive.substr(archive.rfind('/') + 1);
      if (auto text = FileLicense(archive); text.ok()) {
        INLAY_RETURN_IF_ERROR(Add(absl::StrCat("licenses/", name, ".txt"), *text));
      }
    }
    return absl::OkStatus();
  }

  const LinkToolchain& toolchain_;
  const BundleRequest& request_;
  std::vector<BundleFile> files_;
  std::map<std::string, std::string> libraries_;  // soname -> where it was found
};

}  // namespace

bool IsGlibc(const std::string& soname) {
  static const auto* own = new std::set<std::string>{
      "libc.so.6",    "libm.so.6",      "libmvec.so.1",         "libdl.so.2",  "libpthread.so.0", "librt.so.1",
      "libutil.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2", "libanl.so.1", "libnss_dns.so.2", "libthread_db.so.1"};
  return own->count(soname) > 0;
}

absl::StatusOr<std::vector<std::string>> NeededSonames(const std::string& path) {
  auto bad = [&](llvm::Error error) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", llvm::toString(std::move(error))));
  };
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer) return absl::FailedPreconditionError(absl::StrCat(path, ": ", buffer.getError().message()));
  auto file = llvm::object::ELFObjectFile<llvm::object::ELF64LE>::create((*buffer)->getMemBufferRef());
  if (!file) return bad(file.takeError());
  const auto& elf = file->getELFFile();
  auto entries = elf.dynamicEntries();
  if (!entries) return bad(entries.takeError());
  std::vector<uint64_t> offsets;
  uint64_t strings = 0;
  for (const auto& entry : *entries) {
    if (entry.getTag() == llvm::ELF::DT_STRTAB) strings = entry.getPtr();
    if (entry.getTag() == llvm::ELF::DT_NEEDED) offsets.push_back(entry.getVal());
  }
  std::vector<std::string> needed;
  for (uint64_t offset : offsets) {
    auto text = elf.toMappedAddr(strings + offset);
    if (!text) return bad(text.takeError());
    needed.emplace_back(reinterpret_cast<const char*>(*text));
  }
  return needed;
}

absl::StatusOr<std::vector<BundleFile>> AssembleBundle(const LinkToolchain& toolchain, const BundleRequest& request) {
  if (request.run_program.empty()) {
    return absl::NotFoundError("this server has no program 'inlay_run' for bundles: see deploy/setup.sh");
  }
  return Assembly(toolchain, request).Run();
}

}  // namespace inlay::artifact
