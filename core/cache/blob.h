// Blob: immutable bytes with a shared owner (a string, a mapped file). Copies share; a plain value, any thread.
// The bytes stay for as long as one copy does, whatever becomes of the store that they came from.
#ifndef INLAY_CORE_CACHE_BLOB_H_
#define INLAY_CORE_CACHE_BLOB_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace inlay::cache {

class Blob {
 public:
  Blob() = default;  // empty
  explicit Blob(std::string bytes) {
    auto owner = std::make_shared<const std::string>(std::move(bytes));
    view_ = *owner;
    owner_ = std::move(owner);
  }
  // `view` lies in what `owner` keeps.
  Blob(absl::string_view view, std::shared_ptr<const void> owner) : view_(view), owner_(std::move(owner)) {}

  absl::string_view view() const { return view_; }
  size_t size() const { return view_.size(); }

 private:
  absl::string_view view_;
  std::shared_ptr<const void> owner_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_BLOB_H_
