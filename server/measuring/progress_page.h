// ProgressPage: what a measuring process is at, in a file that it maps and its parent reads: so that telling costs
// nothing that a timing would show (no system call, nobody wakes up), and is known whatever way the process dies.
//
// One writer. Readers see some step that was, or is just being, made.
#ifndef INLAY_SERVER_MEASURING_PROGRESS_PAGE_H_
#define INLAY_SERVER_MEASURING_PROGRESS_PAGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace inlay::server {

enum class MeasurePhase : int32_t { kNone = 0, kLoad, kCheck, kWarmUp, kTimed };
const char* Describe(MeasurePhase phase);  // "while it was loaded"

struct MeasureStep {
  int32_t subject = -1;  // of the action under way; -1: none
  MeasurePhase phase = MeasurePhase::kNone;
  uint64_t count = 0;  // of steps so far: it changes as long as the process gets on
};

class ProgressPage {
 public:
  // Where it lies in a worker's scratch directory.
  static std::string PathIn(const std::string& scratch_dir);
  static absl::StatusOr<std::unique_ptr<ProgressPage>> Create(const std::string& path);
  ~ProgressPage();
  void Begin(int32_t subject, MeasurePhase phase);
  void End() { Begin(-1, MeasurePhase::kNone); }

  // The writer's last step; an idle one where there is no such file (yet).
  static MeasureStep Read(const std::string& path);

 private:
  explicit ProgressPage(MeasureStep* step) : step_(step) {}
  MeasureStep* const step_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_PROGRESS_PAGE_H_
