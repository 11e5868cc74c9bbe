// inlay_worker: runs compile actions. Crashes are left to happen: the daemon starts another one.
//
//   inlay_worker                               frames (server/worker/frame.h) on standard input and output
//   inlay_worker --action=FILE --out=FILE      one CompileAction from a file: what a Remote Execution worker runs
//   inlay_worker --backends                    names and versions, as text
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "core/backend/backend.h"
#include "core/backend/run_action.h"
#include "core/base/file_system.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "proto/worker.pb.h"
#include "server/worker/frame.h"

ABSL_FLAG(std::string, action, "", "file with a serialized CompileAction to run");
ABSL_FLAG(std::string, out, "", "file to write the serialized StaticLibrary to");
ABSL_FLAG(bool, backends, false, "print the backends and their versions");

namespace inlay::server {
namespace {

// False: the end of the input, or an error of it.
bool ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t put = write(fd, data.data(), data.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    data.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

absl::StatusOr<proto::StaticLibrary> RunInScratch(const proto::CompileAction& action) {
  INLAY_ASSIGN_OR_RETURN(TempDir scratch, TempDir::Create("action"));
  return backend::RunAction(action, scratch.path());
}

void FillBackends(proto::WorkerResponse* response) {
  for (const backend::BackendCodegen* codegen : backend::CodegenRegistry::Global().All()) {
    proto::BackendInfo* info = response->add_backends();
    info->set_name(codegen->name());
    info->set_version(codegen->version());
  }
}

void Answer(const proto::WorkerRequest& request, proto::WorkerResponse* response) {
  const absl::Time start = absl::Now();
  response->set_id(request.id());
  absl::StatusOr<proto::StaticLibrary> library = absl::UnimplementedError("this worker knows compile and ping");
  switch (request.work_case()) {
    case proto::WorkerRequest::kPing:
      FillBackends(response);
      return;
    case proto::WorkerRequest::kCompile:
      library = RunInScratch(request.compile());
      break;
    default:
      break;
  }
  if (library.ok()) {
    *response->mutable_library() = *std::move(library);
  } else {
    response->set_code(static_cast<int>(library.status().code()));
    response->set_message(std::string(library.status().message()));
  }
  response->set_wall_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) response->set_peak_rss_bytes(int64_t{usage.ru_maxrss} * 1024);
}

int Serve() {
  // Answers go to a private copy of standard output; whatever else writes to it (a library's chatter) goes to stderr.
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  char header[kFrameHeaderBytes];
  while (ReadAll(STDIN_FILENO, header, sizeof(header))) {
    absl::StatusOr<uint32_t> size = FrameSize(header);
    std::string bytes;
    if (size.ok()) bytes.resize(*size);
    proto::WorkerRequest request;
    if (!size.ok() || !ReadAll(STDIN_FILENO, bytes.data(), bytes.size()) || !request.ParseFromString(bytes)) {
      std::fprintf(stderr, "inlay_worker: a request that makes no sense\n");
      return 1;
    }
    proto::WorkerResponse response;
    Answer(request, &response);
    if (!WriteAll(out, Frame(DeterministicBytes(response)))) return 1;
  }
  return 0;
}

absl::Status RunFile(const std::string& path, const std::string& out) {
  INLAY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  proto::CompileAction action;
  if (!action.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a serialized CompileAction"));
  }
  INLAY_ASSIGN_OR_RETURN(proto::StaticLibrary library, RunInScratch(action));
  return WriteFileAtomically(out, DeterministicBytes(library));
}

int Main() {
  if (absl::GetFlag(FLAGS_backends)) {
    proto::WorkerResponse response;
    FillBackends(&response);
    for (const proto::BackendInfo& info : response.backends()) {
      std::printf("%s %s\n", info.name().c_str(), info.version().c_str());
    }
    return 0;
  }
  const std::string action = absl::GetFlag(FLAGS_action), out = absl::GetFlag(FLAGS_out);
  if (action.empty() && out.empty()) return Serve();
  if (action.empty() || out.empty()) {
    std::fprintf(stderr, "inlay_worker: --action and --out go together\n");
    return 2;
  }
  absl::Status status = RunFile(action, out);
  if (status.ok()) return 0;
  std::fprintf(stderr, "inlay_worker: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace inlay::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "inlay_worker: runs compile actions for inlayd (frames on standard input), or one from a file (--action, "
      "--out).");
  absl::ParseCommandLine(argc, argv);
  return inlay::server::Main();
}
