// Cuts a partition into kernels: which tensors have no memory (they are computed where they are used), which are
// another name of one (reshape), and which pointwise tails are folded into the kernel that feeds them.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_PLAN_H_
#define INLAY_CORE_BACKENDS_CSOURCE_PLAN_H_

#include <vector>

#include "core/backends/csource/graph.h"

namespace inlay::csource {

// One step of the partition, one C function.
struct Kernel {
  Node* node = nullptr;
  int output = 0;  // of the node, where it is a loop over that output's elements
  // What is stored in place of the kernel's own output: the end of its tail. nullptr: there is none.
  Tensor* tail = nullptr;
  std::vector<const Tensor*> reads, writes;  // with memory
};

// Sets Tensor::inlined and alias_of. Every node has an Op or a user kernel.
std::vector<Kernel> PlanKernels(Graph* graph);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_PLAN_H_
