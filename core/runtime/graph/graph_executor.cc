#include "core/runtime/graph/graph_executor.h"

#include <cstring>
#include <mutex>

#include "core/runtime/graph/run_context.h"

namespace inlay::runtime {

struct GraphExecutor::Impl {
  ExecutionPlan plan;
  std::vector<FunctionPointers> functions;
  std::vector<const void*> params;
  std::vector<AlignedMemory> literals;
  std::vector<AlignedMemory> param_copies;
  AlignedMemory constants;
  AlignedMemory load;
  // A state, its memory, and who destroys it (null: destroyed already, or never made).
  std::vector<void*> states;
  std::vector<std::vector<AlignedMemory>> state_memory;
  std::vector<InlayDestroyFunction> state_destroy;
  ThreadPool pool;

  std::mutex mutex;
  std::vector<std::unique_ptr<RunContext>> idle;  // guarded
  int64_t num_contexts = 0;                       // guarded; idle or running
  int64_t context_bytes = 0;                      // guarded

  ~Impl() {
    for (size_t i = 0; i < states.size(); ++i) DestroyState(i);
  }

  void DestroyState(size_t i) {
    if (state_destroy[i] != nullptr) state_destroy[i](states[i]);
    state_destroy[i] = nullptr;
    states[i] = nullptr;
    state_memory[i].clear();
  }

  FixedAddresses Fixed() { return {&params, &literals, constants.data(), load.data(), &functions, &states}; }

  Status Prepare();
  Status RunLoadSteps();
  Status RunLoadStep(const Step& step, CallOwner* owner, InlayCallContext* context);
  StatusOr<std::unique_ptr<RunContext>> Acquire();
  void Release(std::unique_ptr<RunContext> context);
};

Status GraphExecutor::Impl::Prepare() {
  if (functions.size() != plan.functions.size() || params.size() != plan.params.size()) {
    return InvalidArgument("the plan has " + std::to_string(plan.functions.size()) + " functions and " +
                           std::to_string(plan.params.size()) + " params, given were " +
                           std::to_string(functions.size()) + " and " + std::to_string(params.size()));
  }
  for (size_t i = 0; i < functions.size(); ++i) {
    const FunctionPointers& f = functions[i];
    if (f.run == nullptr || (plan.functions[i].has_state && (f.init == nullptr || f.destroy == nullptr))) {
      return FailedPrecondition("no code for function " + plan.functions[i].symbol);
    }
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t bytes = plan.params[i].type.NumBytes();
    if (bytes > 0 && params[i] == nullptr) return InvalidArgument("no data for param '" + plan.params[i].name + "'");
    if (params[i] != nullptr && IsAligned(params[i])) continue;
    AlignedMemory copy = AlignedMemory::Allocate(bytes);
    if (copy.data() == nullptr) return ResourceExhausted("no memory for param '" + plan.params[i].name + "'");
    if (bytes > 0) std::memcpy(copy.data(), params[i], bytes);
    params[i] = copy.data();
    param_copies.push_back(std::move(copy));
  }
  for (const std::string& literal : plan.literals) {
    AlignedMemory copy = AlignedMemory::Allocate(static_cast<int64_t>(literal.size()));
    if (copy.data() == nullptr) return ResourceExhausted("no memory for a literal");
    std::memcpy(copy.data(), literal.data(), literal.size());
    literals.push_back(std::move(copy));
  }
  constants = AlignedMemory::Allocate(plan.constant_bytes + kAlignment);
  load = AlignedMemory::Allocate(plan.load_bytes + kAlignment);
  if (constants.data() == nullptr || load.data() == nullptr) {
    return ResourceExhausted("no memory for " + std::to_string(plan.constant_bytes) + " bytes of constants and " +
                             std::to_string(plan.load_bytes) + " to make them");
  }
  states.assign(plan.num_states, nullptr);
  state_memory.resize(plan.num_states);
  state_destroy.assign(plan.num_states, nullptr);
  return Status();
}

Status GraphExecutor::Impl::RunLoadStep(const Step& step, CallOwner* owner, InlayCallContext* context) {
  const PlanFunction& function = plan.functions[step.function];
  const FunctionPointers& code = functions[step.function];
  if (step.kind == StepKind::kDestroy) {
    DestroyState(step.state);
    return Status();
  }
  std::vector<void*> args;
  for (int32_t arg : step.args) args.push_back(arg < 0 ? nullptr : Resolve(Fixed(), nullptr, plan.buffers[arg]));
  context->state = nullptr;
  context->workspace = nullptr;
  if (step.kind == StepKind::kInit) {
    owner->allocs = &state_memory[step.state];
    void* state = nullptr;
    const int32_t rc = code.init(context, args.data(), &state);
    owner->allocs = nullptr;
    if (rc != INLAY_OK || owner->failed) return owner->TakeError(rc, function, step, "_init");
    states[step.state] = state;
    state_destroy[step.state] = code.destroy;
    return Status();
  }
  if (step.state >= 0) context->state = states[step.state];
  if (step.workspace_offset >= 0) context->workspace = load.data() + step.workspace_offset;
  const int32_t rc = code.run(context, args.data());
  if (rc != INLAY_OK || owner->failed) return owner->TakeError(rc, function, step, "_run");
  return Status();
}

Status GraphExecutor::Impl::RunLoadSteps() {
  CallOwner owner;
  InlayCallContext context = owner.MakeContext(&pool);
  ScopedFloatMode mode;
  for (const Step& step : plan.load_steps) {
    if (Status s = RunLoadStep(step, &owner, &context); !s.ok()) return s;
  }
  load = AlignedMemory();
  return Status();
}

StatusOr<std::unique_ptr<RunContext>> GraphExecutor::Impl::Acquire() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<RunContext> context = std::move(idle.back());
      idle.pop_back();
      return context;
    }
  }
  StatusOr<std::unique_ptr<RunContext>> context = RunContext::Make(plan, Fixed(), &pool);
  if (context.ok()) {
    std::lock_guard<std::mutex> lock(mutex);
    context_bytes += (*context)->bytes();
    idle.reserve(++num_contexts);  // so that Release never allocates
  }
  return context;
}

void GraphExecutor::Impl::Release(std::unique_ptr<RunContext> context) {
  std::lock_guard<std::mutex> lock(mutex);
  idle.push_back(std::move(context));
}

GraphExecutor::GraphExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphExecutor::~GraphExecutor() = default;

StatusOr<std::unique_ptr<GraphExecutor>> GraphExecutor::Load(ExecutionPlan plan,
                                                             std::vector<FunctionPointers> functions,
                                                             std::vector<const void*> params, Options options) {
  if (Status s = plan.Check(); !s.ok()) return s;
  auto impl = std::make_unique<Impl>();
  impl->plan = std::move(plan);
  impl->functions = std::move(functions);
  impl->params = std::move(params);
  int threads = options.num_threads > 0 ? options.num_threads : impl->plan.num_threads;
  impl->pool.num_threads = threads > 0 ? threads : AvailableCpus();
  impl->pool.openmp = impl->plan.openmp;
  if (Status s = impl->Prepare(); !s.ok()) return s;
  if (Status s = impl->RunLoadSteps(); !s.ok()) return s;
  return std::unique_ptr<GraphExecutor>(new GraphExecutor(std::move(impl)));
}

Status GraphExecutor::Run(const void* const* inputs, void* const* outputs) const {
  StatusOr<std::unique_ptr<RunContext>> context = impl_->Acquire();
  if (!context.ok()) return context.status();
  Status status = (*context)->Run(inputs, outputs);
  impl_->Release(std::move(*context));
  return status;
}

Status GraphExecutor::Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns) const {
  StatusOr<std::unique_ptr<RunContext>> context = impl_->Acquire();
  if (!context.ok()) return context.status();
  Status status = (*context)->Profile(inputs, outputs, step_ns);
  impl_->Release(std::move(*context));
  return status;
}

const ExecutionPlan& GraphExecutor::plan() const { return impl_->plan; }
int GraphExecutor::num_threads() const { return impl_->pool.num_threads; }

int64_t GraphExecutor::memory_bytes() const {
  int64_t bytes = impl_->constants.bytes();
  for (const AlignedMemory& m : impl_->param_copies) bytes += m.bytes();
  for (const AlignedMemory& m : impl_->literals) bytes += m.bytes();
  for (const auto& state : impl_->state_memory) {
    for (const AlignedMemory& m : state) bytes += m.bytes();
  }
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return bytes + impl_->context_bytes;
}

}  // namespace inlay::runtime
