#include "client/cpp/src/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

namespace inlay {
namespace {

constexpr char kKindUrl[] = "inlay/error-kind";
constexpr char kServerTextUrl[] = "inlay/server-text";

}  // namespace

absl::Status MakeError(ErrorKind kind, absl::StatusCode code, absl::string_view message,
                       absl::string_view server_text) {
  absl::Status status(code, message);
  status.SetPayload(kKindUrl, absl::Cord(std::to_string(static_cast<int>(kind))));
  if (!server_text.empty()) status.SetPayload(kServerTextUrl, absl::Cord(server_text));
  return status;
}

ErrorKind KindOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kKindUrl);
  int kind = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &kind)) return ErrorKind::kNone;
  return static_cast<ErrorKind>(kind);
}

std::string ServerText(const absl::Status& status) {
  const auto payload = status.GetPayload(kServerTextUrl);
  return payload.has_value() ? std::string(*payload) : "";
}

}  // namespace inlay
