#include "core/runtime/vm/frame_layout.h"

#include <algorithm>

namespace inlay::runtime {
namespace {

constexpr int64_t kMaxFrame = int64_t{1} << 46;

// The bytes of an open type; -1: too many.
int64_t Bytes(const TensorType& type, const ShapeValues& values) {
  int64_t bytes = ByteSize(type.dtype);
  for (int64_t extent : type.shape) {
    if (extent < 0) extent = values.extents[-1 - extent];
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return bytes > kMaxFrame ? -1 : bytes;
}

}  // namespace

FrameLayout::FrameLayout(const ExecutionPlan& plan, const VmFunction& function)
    : function_(function),
      frame_bytes_(function.frame_bytes),
      offsets_(function.num_slots, 0),
      sizes_(function.num_slots, 0) {
  for (const VmRegister& r : function.registers) {
    bytes_.push_back(r.type.NumBytes());
    open_ = open_ || r.type.is_open();
  }
  for (int64_t pc = 0; pc < static_cast<int64_t>(function.code.size());
       pc += InstructionWords(plan.bytecode, plan, function, pc)) {
    if (static_cast<VmOp>(function.code[pc]) != VmOp::kOpenKernel) continue;
    kernels_.push_back({pc, &plan.functions[plan.run_steps[function.code[pc + 1]].function]});
    open_ = true;
  }
  if (open_) empty_.resize(function.code.size());
}

Status FrameLayout::Update(const ShapeValues& values) {
  auto too_large = [&](const std::string& what) {
    return ResourceExhausted(what + " of '" + function_.name + "' would be too large");
  };
  std::fill(sizes_.begin(), sizes_.end(), 0);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    const VmRegister& r = function_.registers[i];
    if (!r.type.is_open()) continue;
    bytes_[i] = Bytes(r.type, values);
    if (bytes_[i] < 0) return too_large("a tensor");
    if (r.kind == RegisterKind::kSlot) sizes_[r.at] = std::max(sizes_[r.at], bytes_[i]);
  }
  for (const OpenKernel& kernel : kernels_) {
    const int64_t* word = &function_.code[kernel.pc];
    const PlanFunction& f = *kernel.function;
    if (f.workspace_extent >= 0) {
      const int64_t bytes = values.extents[f.workspace_extent];
      if (bytes > kMaxFrame) return too_large("a workspace");
      int64_t& size = sizes_[-2 - word[2]];
      size = std::max(size, bytes);
    }
    bool empty = true;
    for (int i = 0; i < f.num_outputs; ++i) empty = empty && bytes_[word[3 + f.num_inputs + i]] == 0;
    empty_[kernel.pc] = empty;
  }
  frame_bytes_ = function_.frame_bytes;
  for (size_t slot = 0; slot < sizes_.size(); ++slot) {
    offsets_[slot] = frame_bytes_;
    frame_bytes_ += (sizes_[slot] + kAlignment - 1) / kAlignment * kAlignment;
    if (frame_bytes_ > kMaxFrame) return too_large("the frame");
  }
  return Status();
}

}  // namespace inlay::runtime
