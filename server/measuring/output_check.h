// Whether an output is what the reference's is (MeasureAction's rtol and atol say when).
#ifndef INLAY_SERVER_MEASURING_OUTPUT_CHECK_H_
#define INLAY_SERVER_MEASURING_OUTPUT_CHECK_H_

#include <cstdint>
#include <string>

#include "core/runtime/tensor_type.h"

namespace inlay::server {

struct OutputDifference {
  double max_error = 0;          // of elements that are finite in both
  int64_t first_bad = -1;        // -1: all are right
  double expected = 0, got = 0;  // there
  int64_t num_bad = 0;

  // "element 17 of f32[2, 10] is 3.5 instead of 2.5; 4 of 20 are wrong"
  std::string ToString(const runtime::TensorType& type) const;
};

OutputDifference CompareOutput(const runtime::TensorType& type, const char* expected, const char* got, double rtol,
                               double atol);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_OUTPUT_CHECK_H_
