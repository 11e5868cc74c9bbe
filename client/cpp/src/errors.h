// How the client makes its errors.
#ifndef INLAY_CLIENT_CPP_SRC_ERRORS_H_
#define INLAY_CLIENT_CPP_SRC_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/runtime/status.h"
#include "inlay/error.h"

namespace inlay {

absl::Status MakeError(ErrorKind kind, absl::StatusCode code, absl::string_view message,
                       absl::string_view server_text = "");
inline absl::Status ModuleError(absl::string_view message) {
  return MakeError(ErrorKind::kModule, absl::StatusCode::kFailedPrecondition, message);
}
inline absl::Status LoadError(absl::string_view message) {
  return MakeError(ErrorKind::kLoad, absl::StatusCode::kFailedPrecondition, message);
}

// The runtime's codes are Abseil's numbers.
inline absl::Status FromRuntime(ErrorKind kind, const runtime::Status& status, absl::string_view before = "") {
  return MakeError(kind, static_cast<absl::StatusCode>(status.code()), std::string(before) + status.message());
}

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_ERRORS_H_
