#include "server/install_paths.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_system.h"

namespace inlay::server {
namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::vector<std::string> Existing(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (Exists(path)) found.push_back(path);
  }
  return found;
}

}  // namespace

std::string ExecutableDir() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length <= 0 ? "." : DirName(std::string(path, length));
}

std::string FindWorkerBinary() {
  const std::string dir = ExecutableDir();
  for (const char* candidate : {"inlay_worker", "worker/inlay_worker"}) {
    std::string path = JoinPath(dir, candidate);
    if (Exists(path)) return path;
  }
  return "";
}

std::vector<std::string> DefaultRuntimeDirs() {
  const std::string dir = ExecutableDir();
  return Existing({dir, JoinPath(dir, "../core/runtime"), JoinPath(dir, "../core/backends/onednn")});
}

std::vector<std::string> DefaultLibraryDirs() {
  const std::string dir = ExecutableDir();
  return Existing(
      {JoinPath(dir, "lib"), JoinPath(dir, "../external/onednn/lib"), JoinPath(dir, "../external/tvm_ffi/lib")});
}

}  // namespace inlay::server
