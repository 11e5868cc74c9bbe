// Status and StatusOr of the code that is linked into exported libraries, where Abseil is not.
//
// The codes are gRPC's (and absl::StatusCode's) numbers, so that the daemon's side converts by a cast.
#ifndef INLAY_CORE_RUNTIME_STATUS_H_
#define INLAY_CORE_RUNTIME_STATUS_H_

#include <optional>
#include <string>
#include <utility>

namespace inlay::runtime {

enum class Code {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kInternal = 13,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status Cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
inline Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status ResourceExhausted(std::string message) { return {Code::kResourceExhausted, std::move(message)}; }
inline Status FailedPrecondition(std::string message) { return {Code::kFailedPrecondition, std::move(message)}; }
inline Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }

template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT
  StatusOr(T value) : value_(std::move(value)) {}          // NOLINT
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_STATUS_H_
