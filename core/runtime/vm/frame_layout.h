// FrameLayout: where the slots of a function's frame lie for one set of extents (BYTECODE.md, "Open shapes").
//
// One thread at a time.
#ifndef INLAY_CORE_RUNTIME_VM_FRAME_LAYOUT_H_
#define INLAY_CORE_RUNTIME_VM_FRAME_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

class FrameLayout {
 public:
  // Of a function that has passed Bytecode::Check.
  FrameLayout(const ExecutionPlan& plan, const VmFunction& function);

  bool open() const { return open_; }  // else nothing ever changes
  // Allocates nothing. RESOURCE_EXHAUSTED where the sizes overflow.
  Status Update(const ShapeValues& values);

  int64_t frame_bytes() const { return frame_bytes_; }  // slots included
  int64_t slot_offset(int64_t slot) const { return offsets_[slot]; }
  int64_t register_bytes(int64_t index) const { return bytes_[index]; }
  // Whether all results of the kernel_open at `pc` have no elements: there is nothing to compute.
  bool IsEmpty(int64_t pc) const { return empty_[pc]; }

 private:
  struct OpenKernel {
    int64_t pc;
    const PlanFunction* function;
  };
  const VmFunction& function_;
  bool open_ = false;
  std::vector<OpenKernel> kernels_;
  int64_t frame_bytes_;
  std::vector<int64_t> bytes_;    // by register
  std::vector<int64_t> offsets_;  // by slot
  std::vector<int64_t> sizes_;    // by slot
  std::vector<bool> empty_;       // by place in the code
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_VM_FRAME_LAYOUT_H_
