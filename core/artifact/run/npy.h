// NumPy's files: .npy (one array) and .npz (a zip of them, stored or deflated), read and written.
#ifndef INLAY_CORE_ARTIFACT_RUN_NPY_H_
#define INLAY_CORE_ARTIFACT_RUN_NPY_H_

#include <string>
#include <utility>
#include <vector>

#include "core/runtime/status.h"
#include "core/runtime/tensor_type.h"

namespace inlay::run {

struct Array {
  runtime::TensorType type;
  bool fortran_order = false;  // the first axis is the one that lies dense
  std::string data;
};

using NamedArrays = std::vector<std::pair<std::string, Array>>;

// The bytes of an .npy file, versions 1 to 3. INVALID_ARGUMENT: damaged, or of a dtype that models have not.
runtime::StatusOr<Array> ParseNpy(const std::string& bytes);
std::string FormatNpy(const Array& array);

// Errors name the file, and the array in it.
runtime::StatusOr<Array> ReadNpy(const std::string& path);
runtime::StatusOr<NamedArrays> ReadNpz(const std::string& path);
// Stored, without times: the same arrays give the same bytes.
runtime::Status WriteNpz(const std::string& path, const NamedArrays& arrays);

}  // namespace inlay::run

#endif  // INLAY_CORE_ARTIFACT_RUN_NPY_H_
