// What a partition has to do at the least, whoever compiles it: for reports (share of the roofline), and what costs are
// reckoned from. How long that takes is for a backend to say, or for a measurement.
#ifndef INLAY_CORE_IR_WORK_H_
#define INLAY_CORE_IR_WORK_H_

#include <cstdint>

#include "core/ir/ir_module.h"

namespace inlay::ir {

// Of a tensor, of all tensors of a tuple; those whose extents are not all static count nothing.
double CountElements(const Type& type);
int64_t CountBytes(const Type& type);

// Arithmetic of the operator's definition: contractions count two a multiply-add (a convolution is the direct one, so
// that an algorithm with fewer operations may come out above the peak), elementwise work one a result, whatever it
// costs (exp is one), data movement none. 0 where a dimension is not static.
double CountFlops(const Binding& binding);

struct Work {
  double flops = 0;
  int64_t parameter_bytes = 0;  // read: each parameter once, of a table that is looked up only the rows that are taken
  int64_t constant_bytes = 0;   // that part of parameter_bytes which are the parameters in `constant_params`
  int64_t result_bytes = 0;     // written: each result once
};

// Of one call of a partition function (one block without nested ones).
Work CountWork(const Function& partition, const std::vector<int64_t>& constant_params);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_WORK_H_
