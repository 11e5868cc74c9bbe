// A naive interpreter of the IR: what the operators of OPS.md mean, written for being right, not fast. Everything is
// computed in double and rounded to the dtype after each operator. Independent of every backend.
#ifndef INLAY_CORE_BACKEND_TESTING_REFERENCE_H_
#define INLAY_CORE_BACKEND_TESTING_REFERENCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::backend::testing {

struct RefTensor {
  ir::TensorType type;
  std::vector<double> values;  // row-major
};

// Dense little-endian data and back.
RefTensor FromBytes(const ir::TensorType& type, const std::string& bytes);
std::string ToBytes(const RefTensor& tensor);

// The results of a function of static shapes without nested functions. UNIMPLEMENTED names an operator that the
// reference does not know.
absl::StatusOr<std::vector<RefTensor>> Evaluate(const ir::Function& function, const std::vector<RefTensor>& arguments);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_REFERENCE_H_
