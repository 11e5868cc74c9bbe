#include "core/artifact/licenses.h"

#include <glob.h>
#include <limits.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay::artifact {
namespace {

std::vector<std::string> Glob(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

// "" where no Debian package has it. A file of a merged /usr is registered under one of its two names.
std::string DebianPackageOf(const std::string& path) {
  std::vector<std::string> names = {path};
  names.push_back(absl::StartsWith(path, "/usr/") ? path.substr(4) : "/usr" + path);
  for (const std::string& name : names) {
    SubprocessOptions options;
    options.argv = {"/usr/bin/dpkg-query", "-S", name};
    options.env = {"LC_ALL=C", "PATH=/usr/bin:/bin"};
    options.pipe_stdout = true;
    auto result = RunSubprocess(std::move(options), absl::Seconds(30));
    if (!result.ok()) continue;
    // "libgomp1:amd64: /usr/lib/x86_64-linux-gnu/libgomp.so.1"
    const std::string line(absl::StripAsciiWhitespace(result->stdout_bytes));
    return line.substr(0, line.find(':'));
  }
  return "";
}

bool IsLicense(const std::string& file) {
  const std::string name = absl::AsciiStrToLower(file.substr(file.rfind('/') + 1));
  for (const char* word : {"licen", "copying", "notice", "third-party"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

// Of the wheel whose RECORD (PEP 376: paths from its site-packages folder) has the file; "" where it is another.
std::string WheelLicense(const std::string& record, const std::string& path) {
  auto text = ReadFile(record);
  if (!text.ok()) return "";
  const std::string packages = DirName(DirName(record));
  std::vector<std::string> licenses;
  bool has_file = false;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::string file(line.substr(0, line.find(',')));
    if (absl::StrContains(file, ".dist-info/") && IsLicense(file)) licenses.push_back(file);
    if (path.substr(path.rfind('/')) != file.substr(std::min(file.rfind('/'), file.size()))) continue;
    has_file |= RealPath(JoinPath(packages, file)) == path;
  }
  if (!has_file) return "";
  std::sort(licenses.begin(), licenses.end());
  std::string all;
  for (const std::string& license : licenses) {
    if (auto part = ReadFile(JoinPath(packages, license)); part.ok()) absl::StrAppend(&all, *part, "\n");
  }
  return all;
}

}  // namespace

absl::StatusOr<std::string> PackageLicense(const std::string& package) {
  auto text = ReadFile(absl::StrCat("/usr/share/doc/", package, "/copyright"));
  if (!text.ok()) return absl::NotFoundError(absl::StrCat("no licence of the Debian package ", package, " is here"));
  return absl::StrCat("Debian package ", package, "\n\n", *text);
}

absl::StatusOr<std::string> FileLicense(const std::string& path) {
  const std::string real = RealPath(path);
  // First a wheel: its files lie in a folder of its environment, where dpkg need not be asked.
  std::string folder = DirName(real);
  for (int up = 0; up < 4 && folder.size() > 1; ++up, folder = DirName(folder)) {
    for (const char* packages : {"/*.dist-info/RECORD", "/python3*/site-packages/*.dist-info/RECORD"}) {
      for (const std::string& record : Glob(folder + packages)) {
        if (std::string license = WheelLicense(record, real); !license.empty()) return license;
      }
    }
  }
  const std::string package = DebianPackageOf(real);
  if (package.empty()) return absl::NotFoundError(absl::StrCat("no package is known to have installed ", real));
  return PackageLicense(package);
}

}  // namespace inlay::artifact
