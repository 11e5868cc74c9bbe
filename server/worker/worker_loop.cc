#include "server/worker/worker_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "server/worker/frame.h"

namespace inlay::server {
namespace {

int Fail(const absl::Status& status) {
  fprintf(stderr, "inlay worker: %s\n", status.ToString().c_str());
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

}  // namespace

void LimitMemory(int64_t bytes) {
  if (bytes <= 0) return;
  const rlim_t limit = static_cast<rlim_t>(MemoryField("VmSize") + bytes);
  const struct rlimit value = {limit, limit};
  setrlimit(RLIMIT_AS, &value);
}

int ServeRequests(int64_t memory_bytes,
                  const std::function<absl::Status(const proto::WorkerRequest&, proto::WorkerResponse*)>& work) {
  // The pipes move to descriptors that nobody else knows: code that prints, or the compilers that it starts, must not
  // write into an answer or read a request.
  const int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0) {
    return Fail(ErrnoStatus(errno, "redirect", "standard input and output"));
  }
  close(null);
  LimitMemory(memory_bytes);
  while (true) {
    char header[kFrameHeader];
    if (!ReadAll(in, header, sizeof(header))) return 0;
    absl::StatusOr<uint32_t> size = DecodeFrameHeader(header);
    if (!size.ok()) return Fail(size.status());
    std::string body(*size, '\0');
    if (!ReadAll(in, &body[0], body.size())) return Fail(absl::DataLossError("a request breaks off"));
    proto::WorkerRequest request;
    if (!request.ParseFromString(body)) return Fail(absl::DataLossError("a frame that is no request"));
    body = std::string();  // a large one is there twice already, parsed

    const absl::Time start = absl::Now();
    proto::WorkerResponse response;
    const absl::Status status = work(request, &response);
    response.set_id(request.id());
    response.set_code(static_cast<int>(status.code()));
    response.set_message(std::string(status.message()));
    response.set_wall_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
    response.set_peak_rss_bytes(MemoryField("VmHWM"));
    absl::StatusOr<std::string> frame = EncodeFrame(response);
    if (!frame.ok()) return Fail(frame.status());
    if (!WriteAll(out, *frame)) return 1;  // the parent is gone
  }
}

}  // namespace inlay::server
