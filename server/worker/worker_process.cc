#include "server/worker/worker_process.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "server/worker/frame.h"

namespace inlay::server {
namespace {

// No file of a compile comes near it; a compiler that writes for ever does.
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;
// How long the end of a process that has closed its pipes is waited for, to say how it died.
constexpr absl::Duration kLastWords = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const WorkerProcessOptions& options) {
  INLAY_RETURN_IF_ERROR(FileSystem::Default()->CreateDirectories(options.scratch_dir));
  SubprocessOptions subprocess;
  subprocess.argv = {options.binary, absl::StrCat("--scratch_dir=", options.scratch_dir),
                     absl::StrCat("--memory_bytes=", options.memory_bytes)};
  subprocess.argv.insert(subprocess.argv.end(), options.flags.begin(), options.flags.end());
  // Nothing of the daemon's environment (LD_*, OMP_*, locale): an action is a function of its fields. One arena, so
  // that the limit on the address space counts memory and not reservations.
  subprocess.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "MALLOC_ARENA_MAX=1",
                    absl::StrCat("TMPDIR=", options.scratch_dir), absl::StrCat("HOME=", options.scratch_dir)};
  subprocess.working_directory = options.scratch_dir;
  subprocess.limits.file_size_bytes = kMaxFileBytes;
  subprocess.pipe_stdin = subprocess.pipe_stdout = true;
  subprocess.on_stderr = options.on_stderr;
  absl::StatusOr<std::unique_ptr<Subprocess>> process = Subprocess::Start(subprocess);
  if (!process.ok()) {
    FileSystem::Default()->RemoveTree(options.scratch_dir).IgnoreError();
    return Annotate(process.status(), "starting a worker");
  }
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(*std::move(process), options.scratch_dir));
}

WorkerProcess::~WorkerProcess() {
  process_->Kill();
  process_->Wait(absl::Now() + kLastWords).IgnoreError();  // else it might still write while the directory goes
  FileSystem::Default()->RemoveTree(scratch_dir_).IgnoreError();
}

absl::StatusOr<proto::WorkerResponse> WorkerProcess::Exchange(proto::WorkerRequest request, absl::Time deadline) {
  request.set_id(next_id_++);
  absl::StatusOr<proto::WorkerResponse> response = TryExchange(request, deadline);
  if (response.ok()) {
    has_answered_ = true;
    return response;
  }
  broken_ = true;
  return Explain(response.status());
}

absl::StatusOr<proto::WorkerResponse> WorkerProcess::TryExchange(const proto::WorkerRequest& request,
                                                                 absl::Time deadline) {
  INLAY_ASSIGN_OR_RETURN(std::string frame, EncodeFrame(request));
  INLAY_RETURN_IF_ERROR(process_->Write(frame, deadline));
  char header[kFrameHeader];
  INLAY_RETURN_IF_ERROR(process_->ReadExactly(header, sizeof(header), deadline));
  INLAY_ASSIGN_OR_RETURN(uint32_t size, DecodeFrameHeader(header));
  std::string body(size, '\0');
  INLAY_RETURN_IF_ERROR(process_->ReadExactly(&body[0], size, deadline));
  proto::WorkerResponse response;
  if (!response.ParseFromString(body)) return absl::DataLossError("a frame that is no answer");
  if (response.id() != request.id()) {
    return absl::DataLossError(absl::StrCat("an answer to request ", response.id(), " instead of ", request.id()));
  }
  return response;
}

absl::Status WorkerProcess::Explain(absl::Status status) {
  if (absl::IsUnavailable(status)) {
    // The pipe says only that it is closed; the exit says why.
    absl::Status exit = process_->Wait(absl::Now() + kLastWords);
    const absl::string_view what = exit.ok() ? "the worker exited" : exit.message();
    status = absl::UnavailableError(what);
  }
  process_->Kill();
  process_->Wait(absl::Now() + kLastWords).IgnoreError();
  const std::string tail = process_->StderrTail();
  if (tail.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; its standard error ends:\n", tail));
}

}  // namespace inlay::server
