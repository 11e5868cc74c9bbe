// What every backend that lowers a partition function by itself must check of it first. Any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_PARTITION_FUNCTION_H_
#define INLAY_CORE_BACKENDS_COMMON_PARTITION_FUNCTION_H_

#include "absl/status/status.h"
#include "core/ir/ir_module.h"

namespace inlay::backends {

// INVALID_ARGUMENT where `function` is no partition function: constant_params missing or out of range, a parameter that
// is no tensor of known shape, a weight inside, an argument that nothing defines, no results, or one that no call
// makes.
absl::Status CheckPartitionFunction(const ir::Function& function);

// f32 of known shape, with elements, of a rank up to `max_rank`; 2^31 elements are too many, as libraries count in 32
// bits here and there. f16 and bf16 would round inside a partition, where the operators' contract says f32.
absl::Status CheckF32Tensor(const ir::TensorType& type, int max_rank);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_PARTITION_FUNCTION_H_
