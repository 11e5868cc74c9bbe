#include "core/runtime/aot/aot_executor.h"

#include <cstring>

namespace inlay::runtime {

AotExecutor::AotExecutor(std::unique_ptr<LoadedPlan> loaded) : loaded_(std::move(loaded)) {
  const ExecutionPlan& plan = loaded_->plan();
  fixed_.push_back(loaded_->constants());
  for (size_t i = 0; i < plan.params.size(); ++i) fixed_.push_back(loaded_->param(static_cast<int64_t>(i)));
  for (size_t i = 0; i < plan.literals.size(); ++i) fixed_.push_back(loaded_->literal(static_cast<int64_t>(i)));
  for (int32_t i = 0; i < plan.num_states; ++i) fixed_.push_back(loaded_->state(i));
}

StatusOr<std::unique_ptr<AotExecutor::Context>> AotExecutor::MakeContext() const {
  const ExecutionPlan& plan = loaded_->plan();
  auto context = std::make_unique<Context>();
  // The tail lets vector code read past the last buffer's end within its page, as it may past any other.
  context->arena = AlignedMemory::Allocate(plan.arena_bytes + kAlignment);
  if (context->arena.data() == nullptr) {
    return ResourceExhausted("no memory for an arena of " + std::to_string(plan.arena_bytes) + " bytes");
  }
  context->args.resize(plan.inputs.size() + plan.outputs.size());
  context->call = context->owner.MakeContext(loaded_->pool());
  context->call.state = const_cast<void**>(fixed_.data());
  context->call.workspace = context->arena.data();
  return context;
}

Status AotExecutor::RunIn(Context* context, const void* const* inputs, void* const* outputs) const {
  const ExecutionPlan& plan = loaded_->plan();
  void** args = context->args.data();
  std::memcpy(args, inputs, plan.inputs.size() * sizeof(void*));
  std::memcpy(args + plan.inputs.size(), outputs, plan.outputs.size() * sizeof(void*));
  ScopedRun run(context->call);
  const int32_t rc = loaded_->function(plan.entry).run(&context->call, args);
  if (rc == INLAY_OK && !context->owner.failed) return Status();
  const int32_t at = context->call.reserved;
  if (at < 0 || at >= static_cast<int32_t>(plan.run_steps.size()) || plan.run_steps[at].function < 0) {
    return Internal(plan.functions[plan.entry].symbol + ": failed at no step of the plan");
  }
  const Step& step = plan.run_steps[at];
  return context->owner.TakeError(rc, plan.functions[step.function], step, "_run");
}

Status AotExecutor::Run(const void* const* inputs, void* const* outputs, const ShapeValues*) const {
  StatusOr<std::unique_ptr<Context>> context = contexts_.Acquire([&] { return MakeContext(); });
  if (!context.ok()) return context.status();
  Status status = RunIn(context->get(), inputs, outputs);
  contexts_.Release(std::move(*context));
  return status;
}

Status AotExecutor::Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                            const ShapeValues*) const {
  StatusOr<std::unique_ptr<RunContext>> context = profiled_.Acquire([&] { return RunContext::Make(loaded_.get()); });
  if (!context.ok()) return context.status();
  Status status = (*context)->Profile(inputs, outputs, step_ns);
  profiled_.Release(std::move(*context));
  return status;
}

}  // namespace inlay::runtime
