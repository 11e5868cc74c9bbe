// Passing absl::Status up, and saying where it happened on the way.
//
//   INLAY_RETURN_IF_ERROR(Check(x));
//   INLAY_ASSIGN_OR_RETURN(std::string bytes, Read(path));
//   return Annotate(Parse(bytes), absl::StrCat("manifest of ", name));   // "manifest of foo: <message>", same code
#ifndef INLAY_CORE_BASE_STATUS_MACROS_H_
#define INLAY_CORE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace inlay {

// The same status (code and payloads) with "context: " before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

template <typename T>
absl::StatusOr<T> Annotate(absl::StatusOr<T> value, absl::string_view context) {
  if (value.ok()) return value;
  return Annotate(value.status(), context);
}

}  // namespace inlay

#define INLAY_RETURN_IF_ERROR(expr)                                 \
  do {                                                              \
    if (::absl::Status inlay_status = (expr); !inlay_status.ok()) { \
      return inlay_status;                                          \
    }                                                               \
  } while (false)

// lhs: a declaration or an lvalue, without a comma (use `auto` for a type that has one).
#define INLAY_ASSIGN_OR_RETURN(lhs, ...) \
  INLAY_ASSIGN_OR_RETURN_IMPL_(INLAY_CONCAT_(inlay_status_or_, __LINE__), lhs, (__VA_ARGS__))
#define INLAY_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = expr;                                   \
  if (!tmp.ok()) return std::move(tmp).status();     \
  lhs = *std::move(tmp)

#define INLAY_CONCAT_INNER_(a, b) a##b
#define INLAY_CONCAT_(a, b) INLAY_CONCAT_INNER_(a, b)

#endif  // INLAY_CORE_BASE_STATUS_MACROS_H_
