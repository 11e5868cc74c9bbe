#include "core/backends/csource/compile.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "core/backends/common/build_id.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay::csource {
namespace {

constexpr size_t kMaxMessage = 4000;
constexpr int64_t kCpuSeconds = 300;
constexpr int64_t kMaxObjectBytes = int64_t{1} << 30;

// Nothing of the worker's environment: gcc finds its parts beside itself, `as` by PATH.
std::vector<std::string> Environment(const std::string& scratch_dir) {
  return {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", absl::StrCat("TMPDIR=", scratch_dir)};
}

// As compilers look for what does not lie beside them; empty where it is nowhere.
std::string ByPath(const std::string& program) {
  for (const char* directory : {"/usr/local/bin", "/usr/bin", "/bin"}) {
    std::string path = JoinPath(directory, program);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// What a compiler answers to a question about itself; empty where it does not.
std::string Ask(const std::string& program, std::vector<std::string> arguments,
                std::vector<std::string> more_env = {}) {
  SubprocessOptions options;
  options.argv = {program};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.env = Environment("/tmp");
  options.env.insert(options.env.end(), more_env.begin(), more_env.end());
  options.pipe_stdout = true;
  auto result = RunSubprocess(std::move(options), absl::Seconds(20));
  return result.ok() ? std::string(absl::StripSuffix(result->stdout_bytes, "\n")) : "";
}

// The shared libraries that the dynamic loader would give to a program: clang's optimiser is in them.
std::set<std::string> LibrariesOf(const std::string& program) {
  std::set<std::string> libraries;
  for (absl::string_view line : absl::StrSplit(Ask(program, {}, {"LD_TRACE_LOADED_OBJECTS=1"}), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() >= 3 && words[1] == "=>" && absl::StartsWith(words[2], "/"))
      libraries.insert(std::string(words[2]));
  }
  return libraries;
}

std::string Identify(const std::string& name, const std::string& path) {
  std::set<std::string> files = {path};
  for (const char* part : {"cc1", "as"}) {  // of gcc: the compiler proper and the assembler
    std::string found = Ask(path, {absl::StrCat("-print-prog-name=", part)});
    if (found == part) found = ByPath(part);
    if (absl::StartsWith(found, "/")) files.insert(found);
  }
  for (const std::string& file : std::set<std::string>(files)) {
    for (const std::string& library : LibrariesOf(file)) files.insert(library);
  }
  std::set<std::string> ids;  // sorted by contents: where they lie does not matter
  for (const std::string& file : files) {
    auto id = backends::FileBuildId(file);
    if (id.ok()) ids.insert(*id);
  }
  Hasher hasher;
  for (const std::string& id : ids) hasher.UpdateField(id);
  std::string version = Ask(path, {"-dumpfullversion"});
  if (version.empty()) version = Ask(path, {"-dumpversion"});
  return absl::StrCat(name, " ", version, " (", hasher.Finish().hex().substr(0, 16), ")");
}

std::string FirstLines(const std::string& text) {
  std::string lines;
  int n = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (++n > 12 || lines.size() + line.size() > kMaxMessage) break;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", line);
  }
  return std::string(absl::StripTrailingAsciiWhitespace(lines));
}

}  // namespace

absl::StatusOr<std::string> CompileC(const CompileJob& job) {
  const std::string file = job.name + ".c", object = job.name + ".o";
  std::ofstream out(JoinPath(job.scratch_dir, file), std::ios::binary);
  out << job.source;
  out.close();
  if (!out) return absl::InternalError(absl::StrCat("can't write the source to ", job.scratch_dir));
  std::mutex mutex;
  std::string message;
  SubprocessOptions options;
  options.argv = {job.compiler_path};
  options.argv.insert(options.argv.end(), job.arguments.begin(), job.arguments.end());
  // Relative names: the object holds the source's name, and must not hold the directory's.
  for (const std::string& argument :
       {std::string("-x"), std::string("c"), std::string("-c"), file, std::string("-o"), object}) {
    options.argv.push_back(argument);
  }
  options.env = Environment(job.scratch_dir);
  options.working_directory = job.scratch_dir;
  options.in_parents_group = true;  // so that cc1 ends with the worker, whoever ends that
  options.limits.cpu_seconds = kCpuSeconds;
  options.limits.file_size_bytes = kMaxObjectBytes;
  options.on_stderr = [&](absl::string_view text) {
    std::lock_guard<std::mutex> lock(mutex);
    if (message.size() < 4 * kMaxMessage) absl::StrAppend(&message, text);
  };
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> process, Subprocess::Start(options));
  const absl::Status status = process->Wait(absl::InfiniteFuture());
  process.reset();
  std::lock_guard<std::mutex> lock(mutex);
  if (!status.ok()) {
    const bool killed = absl::StrContains(status.message(), "signal");
    const std::string text =
        absl::StrCat(job.compiler_path.substr(job.compiler_path.rfind('/') + 1), " ", std::string(status.message()),
                     message.empty() ? "" : ":\n", FirstLines(message));
    return killed ? absl::ResourceExhaustedError(text) : absl::InvalidArgumentError(text);
  }
  return ReadFile(JoinPath(job.scratch_dir, object));
}

std::string CompilerIdentity(const std::string& name, const std::string& path) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, std::string>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::string& identity = (*known)[absl::StrCat(name, "=", path)];
  if (identity.empty()) identity = Identify(name, path);
  return identity;
}

}  // namespace inlay::csource
