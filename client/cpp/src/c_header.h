// The header of a library that was exported with the C interface (executor aot, interface-api c).
#ifndef INLAY_CLIENT_CPP_SRC_C_HEADER_H_
#define INLAY_CLIENT_CPP_SRC_C_HEADER_H_

#include <string>

#include "absl/status/statusor.h"

namespace inlay {

// What inlay_model_run of the library takes, one member a tensor in the model's order; the same text as Python's
// (client/python/inlay/c_header.py). `manifest`: JSON. `library`: the name of its file, for the comment.
absl::StatusOr<std::string> CHeader(const std::string& manifest, const std::string& library);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_C_HEADER_H_
