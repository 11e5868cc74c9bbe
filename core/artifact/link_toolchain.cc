// What a link needs of the machine: found through the compiler that the server was set up with.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/artifact/linker.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay::artifact {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

absl::StatusOr<std::string> FindTool(std::initializer_list<const char*> candidates, absl::string_view package) {
  for (const char* path : candidates) {
    if (access(path, X_OK) == 0) return std::string(path);
  }
  return absl::NotFoundError(
      absl::StrCat("linking needs ", absl::StrJoin(candidates, " or "), " (Debian: ", package, ")"));
}

// What gcc would link under that name.
absl::StatusOr<std::string> FromCompiler(const std::string& gcc, const std::string& file) {
  SubprocessOptions options;
  options.argv = {gcc, "-print-file-name=" + file};
  options.env = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  options.pipe_stdout = true;
  INLAY_ASSIGN_OR_RETURN(SubprocessResult result, RunSubprocess(std::move(options), absl::Seconds(20)));
  const std::string path(absl::StripSuffix(result.stdout_bytes, "\n"));
  // gcc answers the bare name where it does not know the file.
  if (!absl::StartsWith(path, "/") || !Exists(path)) {
    return absl::NotFoundError(absl::StrCat("linking needs ", file, " of the C++ compiler (Debian: g++)"));
  }
  return path;
}

}  // namespace

absl::StatusOr<LinkToolchain> FindLinkToolchain(std::vector<std::string> runtime_dirs,
                                                std::vector<std::string> library_dirs) {
  LinkToolchain toolchain;
  INLAY_ASSIGN_OR_RETURN(toolchain.lld, FindTool({"/usr/lib/llvm-19/bin/ld.lld", "/usr/bin/ld.lld-19"}, "lld-19"));
  INLAY_ASSIGN_OR_RETURN(std::string gcc, FindTool({"/usr/bin/gcc", "/usr/bin/gcc-12"}, "gcc"));
  constexpr char kRuntime[] = "libinlay_artifact_runtime.a";
  const bool have_runtime = std::any_of(runtime_dirs.begin(), runtime_dirs.end(),
                                        [&](const std::string& dir) { return Exists(JoinPath(dir, kRuntime)); });
  if (!have_runtime) {
    return absl::NotFoundError(absl::StrCat("no ", kRuntime, " in ", absl::StrJoin(runtime_dirs, ", ")));
  }
  toolchain.runtime_dirs = std::move(runtime_dirs);
  toolchain.library_dirs = std::move(library_dirs);
  INLAY_ASSIGN_OR_RETURN(toolchain.crti, FromCompiler(gcc, "crti.o"));
  INLAY_ASSIGN_OR_RETURN(toolchain.crt_begin, FromCompiler(gcc, "crtbeginS.o"));
  INLAY_ASSIGN_OR_RETURN(toolchain.crt_end, FromCompiler(gcc, "crtendS.o"));
  INLAY_ASSIGN_OR_RETURN(toolchain.crtn, FromCompiler(gcc, "crtn.o"));
  for (const char* archive : {"libstdc++.a", "libgcc.a", "libgcc_eh.a", "libc_nonshared.a"}) {
    INLAY_ASSIGN_OR_RETURN(std::string path, FromCompiler(gcc, archive));
    toolchain.static_archives.push_back(std::move(path));
  }
  // Where libc, libm, libgomp and the dynamic loader are.
  for (const char* library : {"libc.so.6", "libgomp.so.1"}) {
    INLAY_ASSIGN_OR_RETURN(std::string path, FromCompiler(gcc, library));
    toolchain.library_dirs.push_back(DirName(path));
  }
  const bool have_tvm_ffi = std::any_of(toolchain.library_dirs.begin(), toolchain.library_dirs.end(),
                                        [&](const std::string& dir) { return Exists(JoinPath(dir, "libtvm_ffi.so")); });
  if (!have_tvm_ffi) {
    return absl::NotFoundError(
        absl::StrCat("no libtvm_ffi.so (PyPI: apache-tvm-ffi) in ", absl::StrJoin(toolchain.library_dirs, ", ")));
  }
  return toolchain;
}

}  // namespace inlay::artifact
