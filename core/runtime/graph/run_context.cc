#include "core/runtime/graph/run_context.h"

#include <chrono>
#include <cstring>

namespace inlay::runtime {

StatusOr<std::unique_ptr<RunContext>> RunContext::Make(LoadedPlan* loaded) {
  const ExecutionPlan& plan = loaded->plan();
  std::unique_ptr<RunContext> context(new RunContext(plan));
  // The tail lets vector code read past the last buffer's end within its page, as it may past any other.
  context->arena_ = AlignedMemory::Allocate(plan.arena_bytes + kAlignment);
  if (context->arena_.data() == nullptr) {
    return ResourceExhausted("no memory for an arena of " + std::to_string(plan.arena_bytes) + " bytes");
  }
  char* arena = context->arena_.data();
  size_t num_args = 0;
  for (const Step& step : plan.run_steps) num_args += step.args.size();
  context->args_.resize(num_args);
  int32_t slot = 0;
  for (const Step& step : plan.run_steps) {
    Call call = {};
    call.args = context->args_.data() + slot;
    if (step.kind == StepKind::kCopy) {
      call.bytes = plan.buffers[step.args[0]].bytes;
    } else {
      call.run = loaded->function(step.function).run;
      if (step.state >= 0) call.state = loaded->state(step.state);
      if (step.workspace_offset >= 0) call.workspace = arena + step.workspace_offset;
    }
    context->calls_.push_back(call);
    for (int32_t arg : step.args) {
      if (arg < 0) {
        context->args_[slot++] = nullptr;
        continue;
      }
      const Buffer& buffer = plan.buffers[arg];
      void* address = loaded->Resolve(buffer, arena);
      if (address == nullptr) {
        context->patches_.push_back(
            {slot, static_cast<int32_t>(buffer.index), buffer.kind == BufferKind::kOutput, buffer.offset});
      }
      context->args_[slot++] = address;
    }
  }
  context->context_ = context->owner_.MakeContext(loaded->pool());
  return context;
}

void RunContext::Bind(const void* const* inputs, void* const* outputs) {
  for (const Patch& patch : patches_) {
    void* base = patch.output ? outputs[patch.index] : const_cast<void*>(inputs[patch.index]);
    args_[patch.slot] = static_cast<char*>(base) + patch.offset;
  }
}

inline bool RunContext::Execute(const Call& call, int32_t* rc) {
  if (call.run == nullptr) {
    if (call.bytes > 0 && call.args[0] != call.args[1]) std::memcpy(call.args[1], call.args[0], call.bytes);
    return true;
  }
  context_.state = call.state;
  context_.workspace = call.workspace;
  *rc = call.run(&context_, call.args);
  return *rc == INLAY_OK && !owner_.failed.load(std::memory_order_relaxed);
}

Status RunContext::ErrorOf(const Call& call, int32_t rc) {
  const Step& step = plan_.run_steps[&call - calls_.data()];
  return owner_.TakeError(rc, plan_.functions[step.function], step, "_run");
}

Status RunContext::Run(const void* const* inputs, void* const* outputs) {
  Bind(inputs, outputs);
  ScopedRun run(context_);
  int32_t rc = INLAY_OK;
  for (const Call& call : calls_) {
    if (!Execute(call, &rc)) return ErrorOf(call, rc);
  }
  return Status();
}

Status RunContext::Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns) {
  using Clock = std::chrono::steady_clock;
  Bind(inputs, outputs);
  ScopedRun run(context_);
  int32_t rc = INLAY_OK;
  for (const Call& call : calls_) {
    const Clock::time_point start = Clock::now();
    if (!Execute(call, &rc)) return ErrorOf(call, rc);
    *step_ns++ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }
  return Status();
}

}  // namespace inlay::runtime
