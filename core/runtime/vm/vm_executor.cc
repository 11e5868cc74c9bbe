#include "core/runtime/vm/vm_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/runtime/vm/frame_layout.h"

namespace inlay::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// What one activation of a function needs for itself.
struct Frame {
  AlignedMemory memory;
  std::vector<void*> registers;
  std::vector<void*> args;  // of the call under way
  int64_t generation = 0;   // of the extents that its slots lie for
};

}  // namespace

// One thread at a time.
class VmExecutor::Context {
 public:
  Context(LoadedPlan* loaded, const CallPackedFn& call_packed)
      : loaded_(loaded),
        plan_(loaded->plan()),
        bytecode_(plan_.bytecode),
        call_packed_(call_packed),
        idle_(bytecode_.functions.size()),
        context_(owner_.MakeContext(loaded->pool())) {
    for (const VmFunction& f : bytecode_.functions) layouts_.emplace_back(plan_, f);
    for (const PlanFunction& f : plan_.functions) symbols_.emplace_back(f.symbols.size());
  }

  // A frame of each function; recursion alone makes more.
  static StatusOr<std::unique_ptr<Context>> Make(LoadedPlan* loaded, const CallPackedFn& call_packed) {
    auto context = std::make_unique<Context>(loaded, call_packed);
    for (size_t i = 0; i < context->idle_.size(); ++i) {
      std::unique_ptr<Frame> frame;
      if (Status s = context->NewFrame(context->bytecode_.functions[i], &frame); !s.ok()) return s;
      context->idle_[i].push_back(std::move(frame));
    }
    return context;
  }

  int64_t bytes() const { return bytes_; }

  Status Run(const void* const* inputs, void* const* outputs, const StopFn* stop, int64_t* step_ns,
             const ShapeValues* shapes) {
    stop_ = stop;
    step_ns_ = step_ns;
    if (!plan_.shapes.empty()) {
      if (Status s = SetShapes(shapes); !s.ok()) return s;
    }
    std::vector<void*>& args = main_args_;
    args.clear();
    for (size_t i = 0; i < plan_.inputs.size(); ++i) args.push_back(const_cast<void*>(inputs[i]));
    args.insert(args.end(), outputs, outputs + plan_.outputs.size());
    ScopedRun run(context_);
    return Call(0, args.data(), 0);
  }

 private:
  // Everything that depends on the extents of a run; nothing where they are those of the run before.
  Status SetShapes(const ShapeValues* shapes) {
    if (shapes == nullptr || shapes->registers.size() != plan_.shapes.registers.size() ||
        shapes->extents.size() != plan_.shapes.extents.size()) {
      return InvalidArgument("the model's shapes are open: a run must give them");
    }
    if (generation_ > 0 && shapes_.registers == shapes->registers && shapes_.extents == shapes->extents) {
      return Status();
    }
    generation_ = 0;  // until all of it is done
    shapes_ = *shapes;
    for (FrameLayout& layout : layouts_) {
      if (!layout.open()) continue;
      if (Status s = layout.Update(shapes_); !s.ok()) return s;
    }
    for (size_t f = 0; f < symbols_.size(); ++f) {
      const std::vector<int32_t>& registers = plan_.functions[f].symbols;
      for (size_t i = 0; i < registers.size(); ++i) symbols_[f][i] = shapes_.registers[registers[i]];
    }
    generation_ = ++last_generation_;
    return Status();
  }

  // Gives the slots of a frame their places, and the frame the memory for it.
  Status PlaceSlots(const VmFunction& f, const FrameLayout& layout, Frame* frame) {
    const int64_t needed = layout.frame_bytes() + kAlignment;
    if (frame->memory.bytes() < needed) {
      bytes_ -= frame->memory.bytes();
      frame->memory = AlignedMemory();  // first, so that both are never there at once
      frame->memory = AlignedMemory::Allocate(needed);
      frame->generation = 0;
      if (frame->memory.data() == nullptr) return NoMemory(f, needed);
      bytes_ += frame->memory.bytes();
    }
    for (size_t i = 0; i < f.registers.size(); ++i) {
      const VmRegister& r = f.registers[i];
      if (r.kind == RegisterKind::kFrame) frame->registers[i] = frame->memory.data() + r.at;
      if (r.kind == RegisterKind::kSlot) frame->registers[i] = frame->memory.data() + layout.slot_offset(r.at);
    }
    frame->generation = generation_;
    return Status();
  }

  static Status NoMemory(const VmFunction& f, int64_t bytes) {
    return ResourceExhausted("no memory for a frame of " + std::to_string(bytes) + " bytes of '" + f.name + "'");
  }

  Status NewFrame(const VmFunction& f, std::unique_ptr<Frame>* out) {
    auto frame = std::make_unique<Frame>();
    // The tail lets vector code read past the last register's end within its page, as it may past any other.
    frame->memory = AlignedMemory::Allocate(f.frame_bytes + kAlignment);
    if (frame->memory.data() == nullptr) return NoMemory(f, f.frame_bytes);
    bytes_ += frame->memory.bytes();
    for (const VmRegister& r : f.registers) {
      void* address = nullptr;
      if (r.kind == RegisterKind::kFrame) address = frame->memory.data() + r.at;
      if (r.kind == RegisterKind::kBuffer) address = loaded_->Resolve(plan_.buffers[r.at], nullptr);
      frame->registers.push_back(address);
    }
    size_t widest = 0;
    for (int64_t pc = 0; pc < static_cast<int64_t>(f.code.size());) {
      const int64_t words = InstructionWords(bytecode_, plan_, f, pc);
      widest = std::max(widest, static_cast<size_t>(words));
      pc += words;
    }
    frame->args.resize(widest);  // words name the function too: room for the symbols
    *out = std::move(frame);
    return Status();
  }

  // args: params, then results.
  Status Call(int64_t function, void* const* args, int depth) {
    const VmFunction& f = bytecode_.functions[function];
    if (depth >= kMaxDepth) {
      return ResourceExhausted("calls are nested deeper than " + std::to_string(kMaxDepth) + " at '" + f.name + "'");
    }
    std::unique_ptr<Frame> frame;
    if (!idle_[function].empty()) {
      frame = std::move(idle_[function].back());
      idle_[function].pop_back();
    } else if (Status s = NewFrame(f, &frame); !s.ok()) {
      return s;
    }
    if (layouts_[function].open() && frame->generation != generation_) {
      if (Status s = PlaceSlots(f, layouts_[function], frame.get()); !s.ok()) {
        idle_[function].push_back(std::move(frame));
        return s;
      }
    }
    std::copy(args, args + f.num_params + f.num_results, frame->registers.begin());
    Status status = Execute(f, layouts_[function], frame.get(), depth);
    idle_[function].push_back(std::move(frame));
    return status;
  }

  Status Execute(const VmFunction& f, const FrameLayout& layout, Frame* frame, int depth) {
    const int64_t* code = f.code.data();
    void** registers = frame->registers.data();
    void** args = frame->args.data();
    for (int64_t pc = 0;;) {
      const int64_t* word = code + pc;
      switch (static_cast<VmOp>(word[0])) {
        case VmOp::kKernel: {
          const Step& site = plan_.run_steps[word[1]];
          const PlanFunction& kernel = plan_.functions[site.function];
          const int count = kernel.num_inputs + kernel.num_outputs;
          for (int i = 0; i < count; ++i) args[i] = word[3 + i] < 0 ? nullptr : registers[word[3 + i]];
          context_.state = site.state >= 0 ? loaded_->state(site.state) : nullptr;
          context_.workspace = word[2] >= 0 ? frame->memory.data() + word[2] : nullptr;
          const int32_t rc = step_ns_ == nullptr ? loaded_->function(site.function).run(&context_, args)
                                                 : Timed(word[1], site.function, args);
          if (rc != INLAY_OK || owner_.failed.load(std::memory_order_relaxed)) {
            return owner_.TakeError(rc, kernel, site, "_run");
          }
          pc += 3 + count;
          break;
        }
        case VmOp::kCall: {
          const VmFunction& callee = bytecode_.functions[word[1]];
          const int count = callee.num_params + callee.num_results;
          if (Stopped()) return Cancelled("stopped before a call of '" + callee.name + "'");
          for (int i = 0; i < count; ++i) args[i] = registers[word[2 + i]];
          if (Status s = Call(word[1], args, depth + 1); !s.ok()) return s;
          pc += 2 + count;
          break;
        }
        case VmOp::kCallInTurns: {
          const VmFunction& callee = bytecode_.functions[word[1]];
          if (Status s = CallInTurns(f, word, frame, depth); !s.ok()) return s;
          pc += 3 + callee.num_params + callee.num_results;
          break;
        }
        case VmOp::kCallPacked: {
          const int64_t count = word[2] + word[3];
          if (Status s = CallPacked(f, word, registers); !s.ok()) return s;
          pc += 4 + count;
          break;
        }
        case VmOp::kCopy: {
          const int64_t bytes = layout.register_bytes(word[1]);
          if (bytes > 0 && registers[word[1]] != registers[word[2]]) {
            std::memmove(registers[word[2]], registers[word[1]], bytes);
          }
          pc += 3;
          break;
        }
        case VmOp::kSwap:
          std::swap(registers[word[1]], registers[word[2]]);
          pc += 3;
          break;
        case VmOp::kBranchIfNot:
          if (*static_cast<const uint8_t*>(registers[word[1]]) != 0) {
            pc += 3;
            break;
          }
          if (word[2] <= pc && Stopped()) return Cancelled("stopped in a loop of '" + f.name + "'");
          pc = word[2];
          break;
        case VmOp::kJump:
          if (word[1] <= pc && Stopped()) return Cancelled("stopped in a loop of '" + f.name + "'");
          pc = word[1];
          break;
        case VmOp::kReturn:
          return Status();
        case VmOp::kOpenKernel: {
          const Step& site = plan_.run_steps[word[1]];
          const PlanFunction& kernel = plan_.functions[site.function];
          const int count = kernel.num_inputs + kernel.num_outputs;
          if (!layout.IsEmpty(pc)) {
            if (Status s = OpenKernel(word, site, layout, frame); !s.ok()) return s;
          }
          pc += 3 + count;
          break;
        }
      }
    }
  }

  // Parameters of the callee's own type are whole in every turn, those of the batch move on.
  Status CallInTurns(const VmFunction& f, const int64_t* word, Frame* frame, int depth) {
    const VmFunction& callee = bytecode_.functions[word[1]];
    const int count = callee.num_params + callee.num_results;
    const int64_t turns = word[2] >= 0 ? word[2] : shapes_.extents[-1 - word[2]];
    void** args = frame->args.data();
    for (int i = 0; i < count; ++i) args[i] = frame->registers[word[3 + i]];
    for (int64_t turn = 0; turn < turns; ++turn) {
      if (Stopped()) return Cancelled("stopped before a call of '" + callee.name + "'");
      if (Status s = Call(word[1], args, depth + 1); !s.ok()) return s;
      for (int i = 0; i < count; ++i) {
        const TensorType& part = callee.registers[i].type;
        if (f.registers[word[3 + i]].type != part) args[i] = static_cast<char*>(args[i]) + part.NumBytes();
      }
    }
    return Status();
  }

  Status OpenKernel(const int64_t* word, const Step& site, const FrameLayout& layout, Frame* frame) {
    const PlanFunction& kernel = plan_.functions[site.function];
    const int count = kernel.num_inputs + kernel.num_outputs;
    void** args = frame->args.data();
    for (int i = 0; i < count; ++i) args[i] = word[3 + i] < 0 ? nullptr : frame->registers[word[3 + i]];
    args[count] = symbols_[site.function].data();
    context_.state = site.state >= 0 ? loaded_->state(site.state) : nullptr;
    const int64_t workspace = word[2] <= -2 ? layout.slot_offset(-2 - word[2]) : word[2];
    context_.workspace = workspace >= 0 ? frame->memory.data() + workspace : nullptr;
    const int32_t rc = step_ns_ == nullptr ? loaded_->function(site.function).run(&context_, args)
                                           : Timed(word[1], site.function, args);
    if (rc == INLAY_OK && !owner_.failed.load(std::memory_order_relaxed)) return Status();
    return owner_.TakeError(rc, kernel, site, "_run");
  }

  bool Stopped() const { return stop_ != nullptr && (*stop_)(); }

  int32_t Timed(int64_t site, int32_t function, void* const* args) {
    const Clock::time_point start = Clock::now();
    const int32_t rc = loaded_->function(function).run(&context_, args);
    step_ns_[site] += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    return rc;
  }

  Status CallPacked(const VmFunction& f, const int64_t* word, void* const* registers) {
    std::vector<TensorType> types;
    for (int64_t i = 0; i < word[2] + word[3]; ++i) {
      types.push_back(plan_.shapes.Resolve(f.registers[word[4 + i]].type, shapes_));
    }
    std::vector<PackedTensor> tensors;
    for (int64_t i = 0; i < word[2] + word[3]; ++i) tensors.push_back({&types[i], registers[word[4 + i]]});
    const ScopedDefaultFloatMode mode;
    return call_packed_(bytecode_.packed[word[1]], tensors.data(), static_cast<int>(word[2]), tensors.data() + word[2],
                        static_cast<int>(word[3]));
  }

  LoadedPlan* loaded_;
  const ExecutionPlan& plan_;
  const Bytecode& bytecode_;
  const CallPackedFn& call_packed_;
  std::vector<std::vector<std::unique_ptr<Frame>>> idle_;  // by function
  int64_t bytes_ = 0;
  // Of a run whose shapes are open.
  ShapeValues shapes_;
  int64_t generation_ = 0, last_generation_ = 0;  // counts sets of extents; 0: none
  std::vector<FrameLayout> layouts_;              // by function
  std::vector<std::vector<int64_t>> symbols_;     // by function of the plan: what its code is given
  std::vector<void*> main_args_;
  const StopFn* stop_ = nullptr;  // null: nobody asks
  int64_t* step_ns_ = nullptr;    // null: not profiled
  CallOwner owner_;
  InlayCallContext context_;
};

VmExecutor::VmExecutor(std::unique_ptr<LoadedPlan> loaded, CallPackedFn call_packed)
    : loaded_(std::move(loaded)), call_packed_(std::move(call_packed)) {}
VmExecutor::~VmExecutor() = default;

Status VmExecutor::RunIn(const void* const* inputs, void* const* outputs, const StopFn* stop, int64_t* step_ns,
                         const ShapeValues* shapes) const {
  StatusOr<std::unique_ptr<Context>> context =
      contexts_.Acquire([&] { return Context::Make(loaded_.get(), call_packed_); });
  if (!context.ok()) return context.status();
  const int64_t before = (*context)->bytes();
  Status status = (*context)->Run(inputs, outputs, stop, step_ns, shapes);
  const int64_t grown = (*context)->bytes() - before;
  contexts_.Release(std::move(*context), grown);
  return status;
}

Status VmExecutor::Run(const void* const* inputs, void* const* outputs, const ShapeValues* shapes) const {
  return RunIn(inputs, outputs, nullptr, nullptr, shapes);
}

Status VmExecutor::RunUnlessStopped(const void* const* inputs, void* const* outputs, const StopFn& stop,
                                    const ShapeValues* shapes) const {
  return RunIn(inputs, outputs, &stop, nullptr, shapes);
}

Status VmExecutor::Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                           const ShapeValues* shapes) const {
  std::fill(step_ns, step_ns + plan().run_steps.size(), 0);
  return RunIn(inputs, outputs, nullptr, step_ns, shapes);
}

}  // namespace inlay::runtime
