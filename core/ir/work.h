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
// costs (exp is one), data movement none. 0 where a dimension that it depends on is not static.
double CountFlops(const Binding& binding);

// Symbolic where extents are. What is too much for a symbol (dim_expr.h) counts nothing.
struct Work {
  Dim flops = 0;
  // Each parameter is read once, of a table that is looked up only the rows that are taken; each result written once.
  Dim bytes = 0;
  Dim constant_bytes = 0;  // of these, what the parameters in `constant_params` are
};

// Of one call of a partition function (one block without nested ones).
Work CountWork(const Function& partition, const std::vector<int64_t>& constant_params);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_WORK_H_
