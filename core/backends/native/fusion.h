// Fusion: cuts a partition into kernels. Decides which tensors have no memory (they are computed where they are used),
// which are another name of one (reshape), and which pointwise tails are folded into the kernel that feeds them.
#ifndef INLAY_CORE_BACKENDS_NATIVE_FUSION_H_
#define INLAY_CORE_BACKENDS_NATIVE_FUSION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/native/graph.h"

namespace inlay::native {

// One step of the partition: `node`'s kernel, or a loop over `root`'s elements.
struct KernelPlan {
  Node* node = nullptr;
  // What is stored: for a loop, the node's output; for a kernel with a folded tail, the tail's end; else nullptr (the
  // node writes its own outputs).
  Tensor* root = nullptr;
  bool has_tail = false;
  std::vector<const Tensor*> reads;  // bases with memory that it reads
  std::vector<KernelPlan> within;    // computed by the tasks of this one as they need it: its result has no memory

  // What StoreResult stores.
  Tensor* stored() const { return root != nullptr ? root : node->outputs[0]; }
};

// Sets Tensor::inlined and alias_of. UNIMPLEMENTED names an operator without a lowering.
absl::StatusOr<std::vector<KernelPlan>> PlanKernels(Graph* graph);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_FUSION_H_
