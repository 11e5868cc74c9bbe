#include "server/measuring/measuring_pool.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "server/measuring/action_checks.h"
#include "server/measuring/device.h"
#include "server/measuring/watchdog.h"

namespace inlay::server {
namespace {

// The action with some of its subjects, by index.
proto::MeasureAction Part(const proto::MeasureAction& action, const std::vector<int>& subjects) {
  proto::MeasureAction part;
  part.set_reference(-1);
  for (size_t i = 0; i < subjects.size(); ++i) {
    *part.add_subjects() = action.subjects(subjects[i]);
    if (subjects[i] == action.reference()) part.set_reference(static_cast<int32_t>(i));
  }
  part.set_rtol(action.rtol());
  part.set_atol(action.atol());
  part.set_num_threads(action.num_threads());
  part.set_seed(action.seed());
  part.set_min_rounds(action.min_rounds());
  part.set_max_rounds(action.max_rounds());
  part.set_budget_ms(action.budget_ms());
  return part;
}

bool WasKilled(const absl::Status& status) { return absl::StrContains(status.message(), "signal 9 "); }

// What befell a subject while the process was at it.
struct Mishaps {
  int failures = 0, kills = 0;
  std::string first;
};

// Whether it says nothing of the subject, but of the machine or the process at that time.
bool IsPassing(const proto::MeasureResult::Timing& timing) {
  const auto code = static_cast<absl::StatusCode>(timing.code());
  return code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kAborted;
}

}  // namespace

MeasuringPool::MeasuringPool(const MeasuringPoolOptions& options, MachineGate* gate, metrics::Registry* registry)
    : options_(options),
      gate_(gate),
      registry_(registry),
      seconds_(registry->GetHistogram("inlay_measure_seconds", "Seconds a measurement took")),
      wait_seconds_(registry->GetHistogram("inlay_measure_wait_seconds", "Seconds a measurement waited for the cores")),
      lock_wait_seconds_(
          registry->GetHistogram("inlay_measure_lock_wait_seconds", "Seconds a measurement waited for other daemons'")),
      starts_(registry->GetCounter("inlay_measurer_starts_total", "Measuring processes started")),
      subjects_(registry->GetCounter("inlay_measured_subjects_total", "Executables given to measurements")),
      crashes_(registry->GetCounter("inlay_measure_crashes_total", "Executables that crashed or hung when measured")),
      device_(DescribeDevice()),
      lock_(options.machine_lock, options.machine_lock_wait) {}

MeasuringPool::~MeasuringPool() = default;

pid_t MeasuringPool::pid() const {
  absl::MutexLock lock(&mu_);
  return pid_;
}

metrics::Counter& MeasuringPool::Results(const char* result) {
  return registry_->GetCounter("inlay_measurements_total", "Measurements by what became of them", {{"result", result}});
}

void MeasuringPool::StopProcess() {
  process_ = nullptr;
  absl::MutexLock lock(&mu_);
  pid_ = 0;
}

absl::Status MeasuringPool::EnsureReady(CancelToken* token) {
  if (process_ != nullptr && process_->broken()) StopProcess();
  if (process_ != nullptr) return absl::OkStatus();
  WorkerProcessOptions options;
  options.binary = options_.measurer_binary;
  options.scratch_dir = process_dir_ = absl::StrCat(options_.scratch_dir, "/measurer.", ++num_starts_);
  options.memory_bytes = options_.memory_bytes;
  options.on_stderr = options_.on_stderr;
  INLAY_ASSIGN_OR_RETURN(process_, WorkerProcess::Start(options));
  starts_.Increment();
  {
    absl::MutexLock lock(&mu_);
    pid_ = process_->pid();
  }
  proto::WorkerRequest ping;
  ping.mutable_ping();
  auto on_cancel = token->OnCancel([this] { process_->Kill(); });
  const absl::Time deadline = std::min(absl::Now() + options_.start_timeout, token->deadline());
  absl::StatusOr<proto::WorkerResponse> response = process_->Exchange(std::move(ping), deadline);
  on_cancel = nullptr;
  if (!response.ok()) StopProcess();
  INLAY_RETURN_IF_ERROR(response.status());
  rss_at_start_ = response->peak_rss_bytes();
  return absl::OkStatus();
}

MeasuringPool::Attempt MeasuringPool::TryMeasure(const proto::MeasureAction& action, CancelToken* token) {
  Attempt attempt;
  proto::WorkerRequest request;
  *request.mutable_measure() = action;
  const std::string progress = ProgressPage::PathIn(process_dir_);
  std::atomic<bool> hung{false};
  auto on_cancel = token->OnCancel([this] { process_->Kill(); });
  {
    Watchdog watchdog(progress, options_.step_timeout, [&] {
      hung = true;
      process_->Kill();
    });
    attempt.response = process_->Exchange(std::move(request), token->deadline());
  }
  on_cancel = nullptr;
  if (attempt.response.ok()) {
    // One that has grown is retired between measurements rather than left to hit its limit within one.
    const int64_t growth = attempt.response->peak_rss_bytes() - rss_at_start_;
    if (options_.memory_bytes > 0 && growth > options_.memory_bytes / 2) StopProcess();
    return attempt;
  }
  attempt.hung = hung;
  attempt.step = ProgressPage::Read(progress);  // before its directory goes
  StopProcess();
  return attempt;
}

absl::StatusOr<proto::MeasureResult> MeasuringPool::MeasureAlone(const proto::MeasureAction& action,
                                                                 CancelToken* token) {
  proto::MeasureResult result;
  std::vector<int> left(action.subjects_size());
  std::iota(left.begin(), left.end(), 0);
  for (int i = 0; i < action.subjects_size(); ++i) result.add_timings();
  std::vector<Mishaps> mishaps(action.subjects_size());
  bool second_chance = true;
  while (!left.empty()) {
    INLAY_RETURN_IF_ERROR(token->status());
    if (absl::Status ready = EnsureReady(token); !ready.ok()) {
      INLAY_RETURN_IF_ERROR(token->status());
      return absl::UnavailableError(absl::StrCat("no measuring process starts: ", ready.message()));
    }
    const Attempt attempt = TryMeasure(Part(action, left), token);
    if (attempt.response.ok()) {
      const proto::WorkerResponse& response = *attempt.response;
      if (response.code() != 0) return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
      if (response.measured().timings_size() != static_cast<int>(left.size())) {
        return absl::InternalError("a measuring process answered for other subjects than it was given");
      }
      for (size_t i = 0; i < left.size(); ++i) {
        *result.mutable_timings(left[i]) = response.measured().timings(i);
        const std::string& first = mishaps[left[i]].first;
        if (!first.empty()) result.mutable_timings(left[i])->set_note(absl::StrCat(first, "; not when measured again"));
      }
      return result;
    }
    INLAY_RETURN_IF_ERROR(token->status());
    const absl::Status& why = attempt.response.status();
    const bool has_culprit = attempt.step.subject >= 0 && attempt.step.subject < static_cast<int>(left.size());
    if (!has_culprit) {
      if (!std::exchange(second_chance, false)) {
        return absl::UnavailableError(absl::StrCat("the measuring process: ", why.message()));
      }
      continue;
    }
    const int culprit = left[attempt.step.subject];
    const char* where = Describe(attempt.step.phase);
    const bool killed = !attempt.hung && WasKilled(why);
    absl::Status excluded = attempt.hung
                                ? absl::DeadlineExceededError(absl::StrCat(
                                      "took longer than ", absl::FormatDuration(options_.step_timeout), " ", where))
                            : killed ? absl::UnavailableError(absl::StrCat("was killed ", where, ": ", why.message()))
                                     : absl::InternalError(absl::StrCat("crashed ", where, ": ", why.message()));
    Mishaps& mishap = mishaps[culprit];
    if (++(killed ? mishap.kills : mishap.failures) < 2) {
      mishap.first = std::string(excluded.message());
      continue;
    }
    excluded = absl::Status(excluded.code(), absl::StrCat(excluded.message(), " (twice)"));
    crashes_.Increment();
    if (culprit == action.reference()) {
      return ReferenceError(action.subjects(culprit).name(), excluded.message());
    }
    proto::MeasureResult::Timing* timing = result.mutable_timings(culprit);
    timing->set_code(static_cast<int>(excluded.code()));
    timing->set_message(absl::StrCat("'", action.subjects(culprit).name(), "' ", excluded.message()));
    left.erase(left.begin() + attempt.step.subject);
  }
  return result;
}

absl::StatusOr<proto::MeasureResult> MeasuringPool::MeasureWithRetries(const proto::MeasureAction& action,
                                                                       CancelToken* token) {
  INLAY_ASSIGN_OR_RETURN(proto::MeasureResult result, MeasureAlone(action, token));
  std::vector<int> again;
  for (int i = 0; i < action.subjects_size(); ++i) {
    if (IsPassing(result.timings(i))) again.push_back(i);
  }
  if (again.empty()) return result;
  if (action.reference() >= 0) again.insert(again.begin(), action.reference());
  StopProcess();
  absl::StatusOr<proto::MeasureResult> second = MeasureAlone(Part(action, again), token);
  if (!second.ok()) {
    INLAY_RETURN_IF_ERROR(token->status());
    return result;
  }
  for (size_t i = 0; i < again.size(); ++i) {
    if (again[i] == action.reference()) continue;
    proto::MeasureResult::Timing* timing = result.mutable_timings(again[i]);
    const std::string first = timing->message();
    timing->Swap(second->mutable_timings(static_cast<int>(i)));
    if (timing->code() == 0) timing->set_note(absl::StrCat(first, "; not when measured again"));
  }
  return result;
}

absl::StatusOr<proto::MeasureResult> MeasuringPool::Measure(const proto::MeasureAction& action, CancelToken* token) {
  INLAY_RETURN_IF_ERROR(CheckMeasureAction(action));
  INLAY_RETURN_IF_ERROR(token->status());
  const absl::Time asked = absl::Now();
  INLAY_ASSIGN_OR_RETURN(MachineGate::Pass pass, gate_->Enter(MachineGate::Use::kAlone, token));
  const absl::Time alone = absl::Now();
  wait_seconds_.Observe(absl::ToDoubleSeconds(alone - asked));
  INLAY_ASSIGN_OR_RETURN(const MachineLock::Turn turn, lock_.Wait(token));
  const absl::Time start = absl::Now();
  lock_wait_seconds_.Observe(absl::ToDoubleSeconds(start - alone));
  subjects_.Increment(action.subjects_size());
  absl::StatusOr<proto::MeasureResult> result = MeasureWithRetries(action, token);
  if (result.ok()) result->set_note(turn.note);
  seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - start));
  Results(result.ok() ? "ok" : token->status().ok() ? "error" : "cancelled").Increment();
  return result;
}

}  // namespace inlay::server
