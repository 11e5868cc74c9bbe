#include "server/measuring/measure_action.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/digest.h"
#include "core/base/status_macros.h"
#include "core/jit/loaded_module.h"
#include "core/runtime/memory.h"
#include "core/runtime/threads.h"
#include "server/measuring/action_checks.h"
#include "server/measuring/output_check.h"
#include "server/measuring/process_threads.h"
#include "server/measuring/statistics.h"
#include "server/measuring/stopwatch.h"
#include "server/measuring/synthetic_values.h"

namespace inlay::server {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::AlignedMemory;
using runtime::NamedTensor;

constexpr int kDefaultMinRounds = 3;
// A sample is no shorter, so that the clock's own grain stays below a percent of it.
constexpr double kShortestSampleUs = 20;
constexpr int kMostRepeats = 64;
// Warming up after the run that was checked: as long, within the bound. Nothing where that run was so long that what it
// left in caches is little of what a run reads.
constexpr double kWarmUpUs = 2000;
constexpr int kMostWarmUpRuns = 20;
constexpr double kWarmUpIsNothingUs = 50000;
// After min_rounds a subject whose best time is longer than another's median by half has lost, and by ever less the
// more rounds there were. Not than its best: while something else has the core, medians are long, and a subject may not
// have had one undisturbed run yet.
constexpr double kHopeless = 0.5;
constexpr int kRoundsBetweenDrops = 8;
constexpr absl::Duration kSettleLimit = absl::Milliseconds(20);
constexpr double kWakingIsNothingUs = 5000;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

absl::StatusOr<AlignedMemory> Allocate(int64_t bytes) {
  AlignedMemory memory = AlignedMemory::Allocate(bytes);
  if (memory.data() == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  return memory;
}

bool SameTypes(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const NamedTensor& x, const NamedTensor& y) { return x.type == y.type; });
}

// What subjects share, each value made once.
class SharedTensors {
 public:
  using Memory = std::shared_ptr<const AlignedMemory>;

  explicit SharedTensors(uint64_t seed) : seed_(seed) {}

  absl::StatusOr<Memory> Input(const runtime::TensorType& type, size_t place) {
    return Filled(&inputs_, type, SyntheticRole::kInput, absl::StrCat(place));
  }
  // `transient`: no run reads it, so it may share its memory with weights that have other values.
  absl::StatusOr<jit::ParamBytes> Weight(const runtime::TensorType& type, SyntheticRole role, const std::string& key,
                                         bool transient) {
    const size_t bytes = type.NumBytes();
    if (!transient || bytes < kWorthSharing) {
      INLAY_ASSIGN_OR_RETURN(const Memory memory, Filled(&weights_, type, role, key));
      return jit::ParamBytes{{memory->data(), bytes}, memory};
    }
    const int64_t size = runtime::ByteSize(type.dtype);
    INLAY_ASSIGN_OR_RETURN(const Memory sequence,
                           Get(&sequences_[{role, type.ToString()}], type.NumBytes() + kSyntheticSlack * size,
                               [&](char* data) { FillSyntheticSequence(type, role, seed_, data); }));
    return jit::ParamBytes{{sequence->data() + SyntheticWindow(key) * size, bytes}, sequence};
  }
  void ForgetWeights() {
    weights_.clear();
    sequences_.clear();
  }

 private:
  using Tensors = std::map<std::pair<SyntheticRole, std::string>, Memory>;
  // A tensor's memory is less than a sequence's slack below.
  static constexpr size_t kWorthSharing = size_t{1} << 20;

  absl::StatusOr<Memory> Filled(Tensors* tensors, const runtime::TensorType& type, SyntheticRole role,
                                const std::string& key) {
    return Get(&(*tensors)[{role, absl::StrCat(type.ToString(), " ", key)}], type.NumBytes(),
               [&](char* data) { FillSynthetic(type, role, key, seed_, data); });
  }

  static absl::StatusOr<Memory> Get(Memory* made, int64_t bytes, const std::function<void(char* data)>& fill) {
    if (*made == nullptr) {
      INLAY_ASSIGN_OR_RETURN(AlignedMemory memory, Allocate(bytes));
      fill(memory.data());
      *made = std::make_shared<const AlignedMemory>(std::move(memory));
    }
    return *made;
  }

  const uint64_t seed_;
  Tensors inputs_, weights_, sequences_;
};

// Memory for the outputs of a run.
class Outputs {
 public:
  static absl::StatusOr<Outputs> Make(const std::vector<NamedTensor>& types) {
    Outputs outputs;
    for (const NamedTensor& output : types) {
      INLAY_ASSIGN_OR_RETURN(AlignedMemory memory, Allocate(output.type.NumBytes()));
      outputs.pointers_.push_back(memory.data());
      outputs.memory_.push_back(std::move(memory));
    }
    return outputs;
  }
  // What nobody computes, so that an element that a run does not write is seen.
  void Poison() {
    for (AlignedMemory& memory : memory_) std::memset(memory.data(), 0x7b, memory.bytes());
  }
  absl::Span<void* const> pointers() const { return pointers_; }
  const char* data(size_t i) const { return memory_[i].data(); }

 private:
  std::vector<AlignedMemory> memory_;
  std::vector<void*> pointers_;
};

struct Subject {
  int index = 0;
  std::unique_ptr<jit::LoadedModule> module;
  std::vector<std::shared_ptr<const AlignedMemory>> input_memory;
  std::vector<const void*> inputs;
  Outputs outputs;
  double checked_us = 0;        // of the first run
  std::vector<double> samples;  // microseconds of one run
  bool hopeless = false;
};

class Measurement {
 public:
  Measurement(const proto::MeasureAction& action, ProgressPage* progress)
      : action_(action), progress_(progress), tensors_(action.seed()), order_(static_cast<uint32_t>(action.seed())) {
    for (int i = 0; i < action.subjects_size(); ++i) result_.add_timings();
  }

  absl::StatusOr<proto::MeasureResult> Run() {
    if (has_reference()) INLAY_RETURN_IF_ERROR(Admit(action_.reference()));
    for (int i = 0; i < action_.subjects_size(); ++i) {
      if (i != action_.reference()) INLAY_RETURN_IF_ERROR(Admit(i));
    }
    tensors_.ForgetWeights();  // those that runs read, their modules keep
    INLAY_RETURN_IF_ERROR(ForEach([this](Subject& subject) { return WarmUp(subject); }));
    for (const std::unique_ptr<Subject>& subject : subjects_) subject->outputs.Poison();
    INLAY_RETURN_IF_ERROR(TimeRounds());
    INLAY_RETURN_IF_ERROR(ForEach([this](Subject& subject) { return Compare(subject); }));
    for (const std::unique_ptr<Subject>& subject : subjects_) Report(*subject);
    return std::move(result_);
  }

 private:
  bool has_reference() const { return action_.reference() >= 0; }
  void Begin(int subject, MeasurePhase phase) {
    if (progress_ != nullptr) progress_->Begin(subject, phase);
  }

  // Keeps why a subject has no time. An error only where without it nothing can be measured.
  absl::Status Exclude(int index, const absl::Status& why) {
    if (index == action_.reference()) return ReferenceError(action_.subjects(index).name(), why.message());
    proto::MeasureResult::Timing* timing = result_.mutable_timings(index);
    timing->set_code(static_cast<int>(why.code()));
    timing->set_message(std::string(why.message()));
    return absl::OkStatus();
  }

  absl::Status ForEach(const std::function<absl::Status(Subject&)>& step) {
    for (size_t i = 0; i < subjects_.size();) {
      const absl::Status status = step(*subjects_[i]);
      if (status.ok()) {
        ++i;
        continue;
      }
      INLAY_RETURN_IF_ERROR(Exclude(subjects_[i]->index, status));
      subjects_.erase(subjects_.begin() + i);
    }
    return absl::OkStatus();
  }

  absl::Status Admit(int index) {
    auto subject = std::make_unique<Subject>();
    subject->index = index;
    absl::Status status = Load(subject.get());
    if (status.ok()) status = Check(*subject);
    if (!status.ok()) return Exclude(index, status);
    subjects_.push_back(std::move(subject));
    return absl::OkStatus();
  }

  absl::Status Load(Subject* subject) {
    Begin(subject->index, MeasurePhase::kLoad);
    const proto::MeasureAction::Subject& what = action_.subjects(subject->index);
    INLAY_ASSIGN_OR_RETURN(subject->module, LoadModule(what));
    const jit::LoadedModule& module = *subject->module;
    if (has_reference() && !subjects_.empty()) {
      const jit::LoadedModule& reference = *subjects_[0]->module;
      if (!SameTypes(module.inputs(), reference.inputs()) || !SameTypes(module.outputs(), reference.outputs())) {
        return absl::InvalidArgumentError("its inputs or outputs are not of the reference's types");
      }
    }
    for (size_t i = 0; i < module.inputs().size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(auto memory, tensors_.Input(module.inputs()[i].type, i));
      subject->inputs.push_back(memory->data());
      subject->input_memory.push_back(std::move(memory));
    }
    INLAY_ASSIGN_OR_RETURN(subject->outputs, Outputs::Make(module.outputs()));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<jit::LoadedModule>> LoadModule(const proto::MeasureAction::Subject& what) {
    auto plan = runtime::ExecutionPlan::FromJson(what.plan_json());
    if (!plan.ok()) return absl::InvalidArgumentError(plan.status().message());
    // LoadedModule asks for a param by digest only: each gets one that names its place.
    std::vector<proto::ParamRef> refs(plan->params.size());
    std::map<Digest, size_t> places;
    for (size_t i = 0; i < refs.size(); ++i) {
      const Digest digest = Digest::Of(absl::StrCat(i));
      refs[i].set_digest(std::string(digest.bytes()));
      places[digest] = i;
    }
    auto get = [&](const Digest& digest) -> absl::StatusOr<jit::ParamBytes> {
      const size_t i = places.at(digest);
      const NamedTensor& param = plan->params[i];
      const bool known = static_cast<int>(i) < what.params_size() && !what.params(i).digest().empty();
      const std::string key = known ? absl::StrCat("#", what.params(i).digest()) : param.name;
      return tensors_.Weight(param.type, RoleOfWeight(param.name), key, plan->param_load_only[i]);
    };
    std::vector<const proto::StaticLibrary*> libraries;
    for (const proto::StaticLibrary& library : what.libraries()) libraries.push_back(&library);
    return jit::LoadedModule::Load(what.plan_json(), libraries, refs, get, {num_threads_});
  }

  absl::Status RunOnce(Subject& subject, MeasurePhase phase) {
    Begin(subject.index, phase);
    return subject.module->Run(subject.inputs, subject.outputs.pointers());
  }

  absl::Status Check(Subject& subject) {
    subject.outputs.Poison();
    const Clock::time_point start = Clock::now();
    INLAY_RETURN_IF_ERROR(RunOnce(subject, MeasurePhase::kCheck));
    subject.checked_us = MicrosecondsSince(start);
    return Compare(subject);
  }

  // What its last run computed with what the reference's did. The first of the subjects is the reference, where there
  // is one.
  absl::Status Compare(const Subject& subject) {
    if (!has_reference() || subject.index == action_.reference()) return absl::OkStatus();
    const std::vector<NamedTensor>& types = subject.module->outputs();
    proto::MeasureResult::Timing* timing = result_.mutable_timings(subject.index);
    const proto::MeasureAction::Subject& what = action_.subjects(subject.index);
    const double rtol = std::max(action_.rtol(), what.rtol()), atol = std::max(action_.atol(), what.atol());
    for (size_t i = 0; i < types.size(); ++i) {
      const OutputDifference difference =
          CompareOutput(types[i].type, subjects_[0]->outputs.data(i), subject.outputs.data(i), rtol, atol);
      timing->set_max_error(std::max(timing->max_error(), difference.max_error));
      if (difference.first_bad < 0) continue;
      return absl::DataLossError(
          absl::StrCat("wrong result: output ", i, " ('", types[i].name, "'): ", difference.ToString(types[i].type)));
    }
    return absl::OkStatus();
  }

  absl::Status WarmUp(Subject& subject) {
    if (subject.checked_us > kWarmUpIsNothingUs) return absl::OkStatus();
    double total = 0;
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kMostWarmUpRuns && total < kWarmUpUs; ++i) {
      const Stopwatch stopwatch(num_threads_ == 1);
      INLAY_RETURN_IF_ERROR(RunOnce(subject, MeasurePhase::kWarmUp));
      const double us = stopwatch.Elapsed();
      total += us;
      best = std::min(best, us);
    }
    // The same for all: how warm the caches are depends on it.
    const double repeats = std::ceil(kShortestSampleUs / std::max(best, 0.001));
    repeats_ = std::max(repeats_, static_cast<int>(std::min<double>(kMostRepeats, repeats)));
    return absl::OkStatus();
  }

  // With several threads: the workers of whoever ran before spin for a while (libgomp's for milliseconds), on the cores
  // that this subject's own need; no artifact would ship with two pools. Then one run more where it is so short that
  // waking its own workers would show.
  absl::Status Settle(Subject& subject) {
    if (num_threads_ == 1) return absl::OkStatus();
    WaitForOtherThreadsToSleep(kSettleLimit);
    if (!subject.samples.empty() && subject.samples.back() > kWakingIsNothingUs) return absl::OkStatus();
    return RunOnce(subject, MeasurePhase::kWarmUp);
  }

  absl::Status TimeOnce(Subject& subject) {
    INLAY_RETURN_IF_ERROR(Settle(subject));
    Begin(subject.index, MeasurePhase::kTimed);
    const Stopwatch stopwatch(num_threads_ == 1);
    for (int i = 0; i < repeats_; ++i) {
      INLAY_RETURN_IF_ERROR(subject.module->Run(subject.inputs, subject.outputs.pointers()));
    }
    subject.samples.push_back(stopwatch.Elapsed() / repeats_);
    return absl::OkStatus();
  }

  void DropHopeless(int min_rounds, int rounds) {
    const double factor = 1 + kHopeless * min_rounds / rounds;
    double bound = std::numeric_limits<double>::infinity();
    for (const auto& subject : subjects_) bound = std::min(bound, factor * Summarise(subject->samples).median);
    for (const auto& subject : subjects_) subject->hopeless |= Summarise(subject->samples).min > bound;
  }

  absl::Status TimeRounds() {
    const int min_rounds = action_.min_rounds() > 0 ? action_.min_rounds() : kDefaultMinRounds;
    const int max_rounds = action_.max_rounds() > 0 ? std::max(action_.max_rounds(), min_rounds) : INT32_MAX;
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < max_rounds; ++round) {
      if (round >= min_rounds && MicrosecondsSince(start) >= action_.budget_ms() * 1000) break;
      if (has_reference() && round >= min_rounds && (round - min_rounds) % kRoundsBetweenDrops == 0) {
        DropHopeless(min_rounds, round);
      }
      std::vector<int> order;
      for (const auto& subject : subjects_) {
        if (!subject->hopeless) order.push_back(subject->index);
      }
      std::shuffle(order.begin(), order.end(), order_);
      for (const int index : order) {
        const auto it = std::find_if(subjects_.begin(), subjects_.end(), [&](auto& s) { return s->index == index; });
        const absl::Status status = TimeOnce(**it);
        if (status.ok()) continue;
        INLAY_RETURN_IF_ERROR(Exclude(index, status));
        subjects_.erase(it);
      }
      if (subjects_.empty()) break;
    }
    return absl::OkStatus();
  }

  void Report(const Subject& subject) {
    const TimeStatistics times = Summarise(subject.samples);
    proto::MeasureResult::Timing* timing = result_.mutable_timings(subject.index);
    timing->set_min_us(times.min);
    timing->set_median_us(times.median);
    timing->set_spread_us(times.spread);
    timing->set_rounds(static_cast<int>(subject.samples.size()));
  }

  const proto::MeasureAction& action_;
  const int num_threads_ = action_.num_threads() > 0 ? action_.num_threads() : runtime::AvailableCpus();
  ProgressPage* const progress_;
  proto::MeasureResult result_;
  SharedTensors tensors_;
  std::mt19937 order_;
  std::vector<std::unique_ptr<Subject>> subjects_;  // those not excluded; the reference first
  int repeats_ = 1;
};

}  // namespace

absl::StatusOr<proto::MeasureResult> RunMeasureAction(const proto::MeasureAction& action, ProgressPage* progress) {
  INLAY_RETURN_IF_ERROR(CheckMeasureAction(action));
  absl::StatusOr<proto::MeasureResult> result = Measurement(action, progress).Run();
  if (progress != nullptr) progress->End();
  return result;
}

}  // namespace inlay::server
