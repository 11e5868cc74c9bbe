#include "server/measuring/progress_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/base/file_system.h"

namespace inlay::server {

const char* Describe(MeasurePhase phase) {
  switch (phase) {
    case MeasurePhase::kLoad:
      return "while it was loaded";
    case MeasurePhase::kCheck:
      return "in a run whose outputs were to be checked";
    case MeasurePhase::kWarmUp:
      return "in a run to warm up";
    case MeasurePhase::kTimed:
      return "in a timed run";
    case MeasurePhase::kNone:
      break;
  }
  return "between measurements";
}

std::string ProgressPage::PathIn(const std::string& scratch_dir) { return JoinPath(scratch_dir, "progress"); }

absl::StatusOr<std::unique_ptr<ProgressPage>> ProgressPage::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  void* page = MAP_FAILED;
  if (ftruncate(fd, sizeof(MeasureStep)) == 0) {
    page = mmap(nullptr, sizeof(MeasureStep), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (page == MAP_FAILED) return ErrnoStatus(error, "map", path);
  auto progress = std::unique_ptr<ProgressPage>(new ProgressPage(static_cast<MeasureStep*>(page)));
  progress->End();
  return progress;
}

ProgressPage::~ProgressPage() { munmap(step_, sizeof(MeasureStep)); }

void ProgressPage::Begin(int32_t subject, MeasurePhase phase) {
  // Volatile: the compiler may neither drop nor delay what it sees nobody read.
  volatile MeasureStep* const step = step_;
  step->subject = subject;
  step->phase = phase;
  step->count = step->count + 1;
}

MeasureStep ProgressPage::Read(const std::string& path) {
  MeasureStep step;
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (bytes.ok() && bytes->size() == sizeof(step)) std::memcpy(&step, bytes->data(), sizeof(step));
  return step;
}

}  // namespace inlay::server
