#include "client/cpp/src/bundle.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/errors.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

namespace inlay {
namespace {

namespace fs = std::filesystem;

// A server's word for a path is not taken for one that leads out of the folder.
bool IsInside(const fs::path& name) {
  if (name.empty() || name.is_absolute()) return false;
  for (const fs::path& part : name) {
    if (part == "..") return false;
  }
  return true;
}

absl::Status CheckReplaceable(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::OkStatus();
  if (!fs::is_directory(path, error)) {
    return absl::AlreadyExistsError(absl::StrCat(path.string(), " is a file; a bundle is a folder"));
  }
  const bool is_bundle = fs::exists(path / "model.so", error) && fs::exists(path / "run", error);
  if (is_bundle || fs::is_empty(path, error)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(path.string(), " holds other files than a bundle's; name a new folder"));
}

}  // namespace

absl::Status BundleWriter::Add(const proto::ExportLibraryChunk& chunk) {
  if (!chunk.file().empty()) {
    if (!IsInside(chunk.file())) {
      return LoadError(absl::StrCat("the server named a file '", chunk.file(), "' outside of the bundle"));
    }
    const fs::path path = fs::path(folder_) / chunk.file();
    INLAY_RETURN_IF_ERROR(FileSystem::Default()->CreateDirectories(path.parent_path().string()));
    INLAY_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path.string()));
    if (fchmod(file.fd(), chunk.executable() ? 0755 : 0644) != 0) return ErrnoStatus(errno, "write", path.string());
    file_.reset();
    file_.emplace(std::move(file));
  }
  if (chunk.data().empty()) return absl::OkStatus();
  if (!file_.has_value()) return LoadError("the server's answer is no bundle; is it of another version?");
  return file_->Write(chunk.data());
}

absl::Status BundleWriter::Clear() {
  file_.reset();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) fs::remove_all(entry.path(), error);
  return error ? ErrnoStatus(error.value(), "write", folder_) : absl::OkStatus();
}

absl::Status WriteBundle(const std::string& path, const std::function<absl::Status(BundleWriter*)>& fill) {
  INLAY_RETURN_IF_ERROR(CheckReplaceable(path));
  const fs::path whole = fs::absolute(path);
  FileSystem& files = *FileSystem::Default();
  INLAY_RETURN_IF_ERROR(files.CreateDirectories(whole.parent_path().string()));
  INLAY_ASSIGN_OR_RETURN(const TempDir made,
                         TempDir::Create(absl::StrCat(".", whole.filename().string()), whole.parent_path().string()));
  BundleWriter writer(made.path());
  INLAY_RETURN_IF_ERROR(fill(&writer));
  if (chmod(made.path().c_str(), 0755) != 0) return ErrnoStatus(errno, "write", path);
  std::error_code error;
  fs::remove_all(whole, error);
  return files.Rename(made.path(), whole.string());
}

}  // namespace inlay
