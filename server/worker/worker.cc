#include "server/worker/worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "server/worker/frame.h"

namespace inlay::server {
namespace {

// LLVM, MLIR and the libraries of the backends map about 0.7 GiB before they allocate anything.
constexpr int64_t kMappedAtStart = int64_t{1} << 30;

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  INLAY_ASSIGN_OR_RETURN(TempDir directory, TempDir::Create("worker", options.scratch_dir));
  SubprocessOptions process;
  process.argv = {options.binary};
  // No locale, no LD_*, no OMP_*: an action's result must not depend on who started the daemon, and how.
  process.env = {"PATH=/usr/bin:/bin", "LC_ALL=C", absl::StrCat("TMPDIR=", directory.path()),
                 absl::StrCat("HOME=", directory.path())};
  process.working_directory = directory.path();
  process.pipe_stdin = true;
  process.pipe_stdout = true;
  if (options.memory_bytes > 0) process.limits.address_space_bytes = options.memory_bytes + kMappedAtStart;
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> started, Subprocess::Start(process));
  return std::unique_ptr<Worker>(new Worker(std::move(directory), std::move(started)));
}

absl::Status Worker::Died(const absl::Status& how) {
  if (absl::IsDeadlineExceeded(how)) return how;
  absl::Status exit = process_->Wait(absl::Now() + absl::Seconds(1));
  std::string message = absl::StrCat("the worker ", exit.ok() ? "left in the middle of an action" : exit.message());
  std::string tail = process_->StderrTail();
  absl::StripTrailingAsciiWhitespace(&tail);
  if (!tail.empty()) {
    if (tail.size() > 1000) tail = absl::StrCat("...", tail.substr(tail.size() - 1000));
    absl::StrAppend(&message, "; it wrote: ", tail);
  }
  return absl::UnavailableError(message);
}

absl::StatusOr<proto::WorkerResponse> Worker::Call(const proto::WorkerRequest& request, absl::Time deadline) {
  std::string bytes;
  if (!request.SerializeToString(&bytes) || bytes.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError("the action is too large for one message");
  }
  if (absl::Status sent = process_->Write(Frame(bytes), deadline); !sent.ok()) return Died(sent);
  char header[kFrameHeaderBytes];
  if (absl::Status read = process_->ReadExactly(header, sizeof(header), deadline); !read.ok()) return Died(read);
  INLAY_ASSIGN_OR_RETURN(uint32_t size, FrameSize(header));
  std::string answer(size, '\0');
  if (absl::Status read = process_->ReadExactly(answer.data(), size, deadline); !read.ok()) return Died(read);
  proto::WorkerResponse response;
  if (!response.ParseFromString(answer) || response.id() != request.id()) {
    return absl::DataLossError("the worker's answer makes no sense");
  }
  return response;
}

}  // namespace inlay::server
