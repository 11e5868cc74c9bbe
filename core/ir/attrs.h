// Attributes of calls, functions and modules: a sorted map of names to small values.
#ifndef INLAY_CORE_IR_ATTRS_H_
#define INLAY_CORE_IR_ATTRS_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/ir/type.h"

namespace inlay::ir {

struct Literal {
  TensorType type;   // static
  std::string data;  // dense, row-major, little-endian
  bool operator==(const Literal& other) const { return type == other.type && data == other.data; }
  bool operator!=(const Literal& other) const { return !(*this == other); }
};

using AttrValue = std::variant<int64_t, double, std::string, bool, DType, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, Literal>;

std::string ToString(const AttrValue& value);
std::string DoubleToString(double value);  // the shortest that reads back the same; "2.0", "1e-05"

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

  bool Has(absl::string_view name) const;
  void Set(std::string name, AttrValue value) { values_[std::move(name)] = std::move(value); }
  void Erase(const std::string& name) { values_.erase(name); }

  // For code that runs after the verifier: the attribute is there and has that type (a broken invariant aborts).
  int64_t Int(absl::string_view name) const;
  double Float(absl::string_view name) const;  // an int is accepted
  const std::string& String(absl::string_view name) const;
  bool Bool(absl::string_view name) const;
  DType GetDType(absl::string_view name) const;
  const std::vector<int64_t>& Ints(absl::string_view name) const;
  std::vector<double> Floats(absl::string_view name) const;
  const std::vector<std::string>& Strings(absl::string_view name) const;

  // With a default where the attribute is absent.
  int64_t IntOr(absl::string_view name, int64_t fallback) const;
  double FloatOr(absl::string_view name, double fallback) const;
  std::string StringOr(absl::string_view name, absl::string_view fallback) const;
  bool BoolOr(absl::string_view name, bool fallback) const;
  std::vector<int64_t> IntsOr(absl::string_view name, std::vector<int64_t> fallback) const;
  std::vector<std::string> StringsOr(absl::string_view name, std::vector<std::string> fallback) const;

  const std::map<std::string, AttrValue, std::less<>>& values() const { return values_; }
  bool operator==(const Attrs& other) const { return values_ == other.values_; }

 private:
  std::map<std::string, AttrValue, std::less<>> values_;
};

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_ATTRS_H_
