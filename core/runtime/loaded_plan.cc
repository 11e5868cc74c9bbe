#include "core/runtime/loaded_plan.h"

#include <cstring>
#include <utility>

namespace inlay::runtime {

LoadedPlan::~LoadedPlan() {
  for (size_t i = 0; i < states_.size(); ++i) DestroyState(i);
}

void LoadedPlan::DestroyState(size_t i) {
  if (state_destroy_[i] != nullptr) state_destroy_[i](states_[i]);
  state_destroy_[i] = nullptr;
  states_[i] = nullptr;
  passing_memory_.erase(static_cast<int32_t>(i));
}

void* LoadedPlan::Resolve(const Buffer& buffer, char* arena) const {
  switch (buffer.kind) {
    case BufferKind::kInput:
    case BufferKind::kOutput:
      return nullptr;
    case BufferKind::kParam:
      return param(buffer.index);
    case BufferKind::kLiteral:
      return literal(buffer.index);
    case BufferKind::kConstant:
      return constants_.data() + buffer.offset;
    case BufferKind::kLoad:
      return load_.data() + buffer.offset;
    case BufferKind::kArena:
      return arena + buffer.offset;
  }
  return nullptr;
}

Status LoadedPlan::Prepare() {
  if (functions_.size() != plan_.functions.size() || params_.size() != plan_.params.size()) {
    return InvalidArgument("the plan has " + std::to_string(plan_.functions.size()) + " functions and " +
                           std::to_string(plan_.params.size()) + " params, given were " +
                           std::to_string(functions_.size()) + " and " + std::to_string(params_.size()));
  }
  for (size_t i = 0; i < functions_.size(); ++i) {
    const FunctionPointers& f = functions_[i];
    if (f.run == nullptr || (plan_.functions[i].has_state && (f.init == nullptr || f.destroy == nullptr))) {
      return FailedPrecondition("no code for function " + plan_.functions[i].symbol);
    }
  }
  for (size_t i = 0; i < params_.size(); ++i) {
    const int64_t bytes = plan_.params[i].type.NumBytes();
    if (bytes > 0 && params_[i] == nullptr) return InvalidArgument("no data for param '" + plan_.params[i].name + "'");
    if (params_[i] != nullptr && IsAligned(params_[i])) continue;
    AlignedMemory copy = AlignedMemory::Allocate(bytes);
    if (copy.data() == nullptr) return ResourceExhausted("no memory for param '" + plan_.params[i].name + "'");
    if (bytes > 0) std::memcpy(copy.data(), params_[i], bytes);
    params_[i] = copy.data();
    param_copies_.push_back(std::move(copy));
  }
  for (const std::string& literal : plan_.literals) {
    AlignedMemory copy = AlignedMemory::Allocate(static_cast<int64_t>(literal.size()));
    if (copy.data() == nullptr) return ResourceExhausted("no memory for a literal");
    std::memcpy(copy.data(), literal.data(), literal.size());
    literals_.push_back(std::move(copy));
  }
  constants_ = AlignedMemory::Allocate(plan_.constant_bytes + kAlignment);
  load_ = AlignedMemory::Allocate(plan_.load_bytes + kAlignment);
  if (constants_.data() == nullptr || load_.data() == nullptr) {
    return ResourceExhausted("no memory for " + std::to_string(plan_.constant_bytes) + " bytes of constants and " +
                             std::to_string(plan_.load_bytes) + " to make them");
  }
  states_.assign(plan_.num_states, nullptr);
  state_destroy_.assign(plan_.num_states, nullptr);
  for (const Step& step : plan_.load_steps) {
    if (step.kind == StepKind::kDestroy) passing_memory_.try_emplace(step.state);
  }
  return Status();
}

Status LoadedPlan::RunLoadStep(const Step& step, CallOwner* owner, InlayCallContext* context) {
  const PlanFunction& function = plan_.functions[step.function];
  const FunctionPointers& code = functions_[step.function];
  if (step.kind == StepKind::kDestroy) {
    DestroyState(step.state);
    return Status();
  }
  std::vector<void*> args;
  for (int32_t arg : step.args) args.push_back(arg < 0 ? nullptr : Resolve(plan_.buffers[arg], nullptr));
  context->state = nullptr;
  context->workspace = nullptr;
  if (step.kind == StepKind::kInit) {
    const auto passing = passing_memory_.find(step.state);
    owner->memory = passing != passing_memory_.end() ? &passing->second : &state_memory_;
    void* state = nullptr;
    const int32_t rc = code.init(context, args.data(), &state);
    owner->memory = nullptr;
    if (rc != INLAY_OK || owner->failed) return owner->TakeError(rc, function, step, "_init");
    states_[step.state] = state;
    state_destroy_[step.state] = code.destroy;
    return Status();
  }
  if (step.state >= 0) context->state = states_[step.state];
  if (step.workspace_offset >= 0) context->workspace = load_.data() + step.workspace_offset;
  const int32_t rc = code.run(context, args.data());
  if (rc != INLAY_OK || owner->failed) return owner->TakeError(rc, function, step, "_run");
  return Status();
}

Status LoadedPlan::RunLoadSteps() {
  CallOwner owner;
  InlayCallContext context = owner.MakeContext(&pool_);
  ScopedRun run(context);
  for (const Step& step : plan_.load_steps) {
    if (Status s = RunLoadStep(step, &owner, &context); !s.ok()) return s;
  }
  load_ = AlignedMemory();
  return Status();
}

StatusOr<std::unique_ptr<LoadedPlan>> LoadedPlan::Load(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                       std::vector<const void*> params, ExecutorOptions options) {
  if (Status s = plan.Check(); !s.ok()) return s;
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan);
  loaded->plan_ = std::move(plan);
  loaded->functions_ = std::move(functions);
  loaded->params_ = std::move(params);
  const int threads = options.num_threads > 0 ? options.num_threads : loaded->plan_.num_threads;
  loaded->pool_.num_threads = threads > 0 ? threads : AvailableCpus();
  loaded->pool_.openmp = loaded->plan_.openmp;
  if (Status s = loaded->Prepare(); !s.ok()) return s;
  if (Status s = loaded->RunLoadSteps(); !s.ok()) return s;
  return loaded;
}

int64_t LoadedPlan::memory_bytes() const {
  int64_t bytes = constants_.bytes() + state_memory_.bytes();
  for (const AlignedMemory& m : param_copies_) bytes += m.bytes();
  for (const AlignedMemory& m : literals_) bytes += m.bytes();
  return bytes;
}

}  // namespace inlay::runtime
