#include "server/worker/worker_main.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/backend/backend.h"
#include "core/backend/run_action.h"
#include "core/base/file_system.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "proto/worker.pb.h"
#include "server/worker/frame.h"

ABSL_FLAG(std::string, scratch_dir, "", "where actions get their scratch directories (default: $TMPDIR)");
ABSL_FLAG(int64_t, memory_bytes, 0,
          "address space that actions may take over what the worker begins with; 0: no limit");
ABSL_FLAG(std::string, action, "", "a serialized CompileAction: run it alone");
ABSL_FLAG(bool, backends, false, "print the backends of this worker and their versions");
ABSL_FLAG(std::string, out, "", "where its StaticLibrary is written");

namespace inlay::server {
namespace {

int Fail(const absl::Status& status) {
  fprintf(stderr, "inlay_worker: %s\n", status.ToString().c_str());
  return 1;
}

// "VmHWM" of /proc/self/status, in bytes. Not getrusage's: that of a vfork-ed child begins with its parent's peak.
int64_t MemoryField(absl::string_view field) {
  absl::StatusOr<std::string> status = ReadFile("/proc/self/status");
  if (!status.ok()) return 0;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    int64_t kib = 0;
    if (parts.first != field) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(parts.second, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!words.empty() && absl::SimpleAtoi(words[0], &kib)) return kib << 10;
  }
  return 0;
}

void LimitMemory(int64_t bytes) {
  if (bytes <= 0) return;
  const rlim_t limit = static_cast<rlim_t>(MemoryField("VmSize") + bytes);
  const struct rlimit value = {limit, limit};
  setrlimit(RLIMIT_AS, &value);
}

absl::StatusOr<proto::StaticLibrary> RunInScratch(const proto::CompileAction& action) {
  INLAY_ASSIGN_OR_RETURN(TempDir scratch, TempDir::Create("action", absl::GetFlag(FLAGS_scratch_dir)));
  return backend::RunAction(action, scratch.path());
}

int RunOne(const std::string& action_file, const std::string& out_file) {
  if (out_file.empty()) return Fail(absl::InvalidArgumentError("--action needs --out"));
  absl::StatusOr<std::string> bytes = ReadFile(action_file);
  if (!bytes.ok()) return Fail(bytes.status());
  proto::CompileAction action;
  if (!action.ParseFromString(*bytes)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(action_file, " is no CompileAction")));
  }
  absl::StatusOr<proto::StaticLibrary> library = RunInScratch(action);
  if (!library.ok()) return Fail(library.status());
  absl::Status written = WriteFileAtomically(out_file, DeterministicBytes(*library));
  return written.ok() ? 0 : Fail(written);
}

void FillBackends(proto::WorkerResponse* response) {
  for (const backend::BackendCodegen* codegen : backend::CodegenRegistry::Global().All()) {
    proto::BackendInfo* info = response->add_backends();
    info->set_name(codegen->name());
    info->set_version(codegen->version());
  }
}

int PrintBackends() {
  proto::WorkerResponse response;
  FillBackends(&response);
  for (const proto::BackendInfo& info : response.backends()) {
    printf("%s %s\n", info.name().c_str(), info.version().c_str());
  }
  return 0;
}

proto::WorkerResponse Answer(const proto::WorkerRequest& request) {
  const absl::Time start = absl::Now();
  proto::WorkerResponse response;
  response.set_id(request.id());
  absl::Status status;
  if (request.has_compile()) {
    absl::StatusOr<proto::StaticLibrary> library = RunInScratch(request.compile());
    status = library.status();
    if (library.ok()) *response.mutable_library() = *std::move(library);
  } else if (request.has_ping()) {
    FillBackends(&response);
  } else {
    status = absl::UnimplementedError("a request for work that this worker does not know");
  }
  response.set_code(static_cast<int>(status.code()));
  response.set_message(std::string(status.message()));
  response.set_wall_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
  response.set_peak_rss_bytes(MemoryField("VmHWM"));
  return response;
}

// False at the end of the input, or where it breaks off.
bool ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = read(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

bool WriteAll(int fd, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data.remove_prefix(n);
  }
  return true;
}

int Serve(int in, int out) {
  while (true) {
    char header[kFrameHeader];
    if (!ReadAll(in, header, sizeof(header))) return 0;
    absl::StatusOr<uint32_t> size = DecodeFrameHeader(header);
    if (!size.ok()) return Fail(size.status());
    std::string body(*size, '\0');
    if (!ReadAll(in, &body[0], body.size())) return Fail(absl::DataLossError("a request breaks off"));
    proto::WorkerRequest request;
    if (!request.ParseFromString(body)) return Fail(absl::DataLossError("a frame that is no request"));
    absl::StatusOr<std::string> frame = EncodeFrame(Answer(request));
    if (!frame.ok()) return Fail(frame.status());
    if (!WriteAll(out, *frame)) return 1;  // the parent is gone
  }
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "inlay_worker: runs compile actions for inlayd (frames on standard input), or one from a file (--action, "
      "--out).");
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_backends)) return PrintBackends();
  if (!absl::GetFlag(FLAGS_action).empty()) {
    LimitMemory(absl::GetFlag(FLAGS_memory_bytes));
    return RunOne(absl::GetFlag(FLAGS_action), absl::GetFlag(FLAGS_out));
  }
  // The pipes move to descriptors that nobody else knows: a code generator that prints, or the compilers that it
  // starts, must not write into an answer or read a request.
  const int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0) {
    return Fail(ErrnoStatus(errno, "redirect", "standard input and output"));
  }
  close(null);
  LimitMemory(absl::GetFlag(FLAGS_memory_bytes));
  return Serve(in, out);
}

}  // namespace inlay::server
