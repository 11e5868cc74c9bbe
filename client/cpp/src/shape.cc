#include "inlay/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay {

bool Shape::is_open() const {
  return std::any_of(dims_.begin(), dims_.end(), [](const Dim& dim) { return dim.is_open(); });
}

std::vector<int64_t> Shape::values() const {
  std::vector<int64_t> values;
  for (const Dim& dim : dims_) values.push_back(dim.value());
  return values;
}

std::string Shape::ToString() const {
  const auto append = [](std::string* out, const Dim& dim) { *out += dim.ToString(); };
  return absl::StrCat("[", absl::StrJoin(dims_, ", ", append), "]");
}

}  // namespace inlay
