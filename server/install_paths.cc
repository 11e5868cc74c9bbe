#include "server/install_paths.h"

#include <glob.h>
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

// Beside this executable, or in Bazel's `package` below.
std::string FindProgram(const std::string& name, const std::string& package) {
  const std::string dir = ExecutableDir();
  const std::vector<std::string> found = Existing({JoinPath(dir, name), JoinPath(JoinPath(dir, package), name)});
  return found.empty() ? "" : found[0];
}

}  // namespace

std::string ExecutableDir() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length <= 0 ? "." : DirName(std::string(path, length));
}

std::string FindWorkerBinary() { return FindProgram("inlay_worker", "worker"); }
std::string FindMeasurerBinary() { return FindProgram("inlay_measurer", "measuring"); }

std::string FindRunProgram() { return FindProgram("inlay_run", "../core/artifact/run"); }

std::vector<std::string> DefaultRuntimeDirs() {
  const std::string dir = ExecutableDir();
  std::vector<std::string> dirs = Existing({dir, JoinPath(dir, "../core/runtime")});
  // Where Bazel leaves the archives of the backends' runtimes, before they are installed beside the daemon.
  glob_t found = {};
  if (glob(JoinPath(dir, "../core/backends/*/runtime").c_str(), 0, nullptr, &found) == 0) {
    dirs.insert(dirs.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return dirs;
}

std::vector<std::string> DefaultLibraryDirs() {
  const std::string dir = ExecutableDir();
  return Existing(
      {JoinPath(dir, "lib"), JoinPath(dir, "../external/onednn/lib"), JoinPath(dir, "../external/tvm_ffi/lib")});
}

}  // namespace inlay::server
