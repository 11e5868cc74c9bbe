#include "server/measuring/measurer_main.h"

#include <climits>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "core/base/status_macros.h"
#include "server/measuring/measure_action.h"
#include "server/measuring/process_threads.h"
#include "server/measuring/progress_page.h"
#include "server/worker/worker_loop.h"

ABSL_FLAG(std::string, scratch_dir, ".", "where it says what it is at");
ABSL_FLAG(int64_t, memory_bytes, 0,
          "address space that a measurement may take over what the process begins with; 0: no limit");

namespace inlay::server {
namespace {

absl::Status Answer(const proto::WorkerRequest& request, ProgressPage* progress, proto::WorkerResponse* response) {
  if (request.has_ping()) return absl::OkStatus();
  if (!request.has_measure())
    return absl::UnimplementedError("a request for work that a measuring process does not do");
  const int num_threads = request.measure().num_threads();
  PinToLastCpus(num_threads > 0 ? num_threads : INT_MAX);
  INLAY_ASSIGN_OR_RETURN(*response->mutable_measured(), RunMeasureAction(request.measure(), progress));
  return absl::OkStatus();
}

}  // namespace

int MeasurerMain(int argc, char** argv) {
  absl::SetProgramUsageMessage("inlay_measurer: times compiled executables for inlayd (frames on standard input).");
  absl::ParseCommandLine(argc, argv);
  absl::StatusOr<std::unique_ptr<ProgressPage>> progress =
      ProgressPage::Create(ProgressPage::PathIn(absl::GetFlag(FLAGS_scratch_dir)));
  if (!progress.ok()) {
    fprintf(stderr, "inlay_measurer: %s\n", progress.status().ToString().c_str());
    return 1;
  }
  return ServeRequests(absl::GetFlag(FLAGS_memory_bytes),
                       [&](const proto::WorkerRequest& request, proto::WorkerResponse* response) {
                         return Answer(request, progress->get(), response);
                       });
}

}  // namespace inlay::server
