#include "core/ir/attrs.h"

#include <cstdlib>

#include "absl/base/internal/raw_logging.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace inlay::ir {
namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

template <typename T>
const T& Get(const Attrs& attrs, absl::string_view name) {
  auto it = attrs.values().find(name);
  if (it == attrs.values().end() || !std::holds_alternative<T>(it->second)) {
    ABSL_RAW_LOG(FATAL, "attribute '%s' is absent or of another type: %s", std::string(name).c_str(),
                 it == attrs.values().end() ? "absent" : ToString(it->second).c_str());
  }
  return std::get<T>(it->second);
}

}  // namespace

std::string DoubleToString(double value) {
  std::string shortest = absl::StrFormat("%.15g", value);
  if (value == value && strtod(shortest.c_str(), nullptr) != value) shortest = absl::StrFormat("%.16g", value);
  if (value == value && strtod(shortest.c_str(), nullptr) != value) shortest = absl::StrFormat("%.17g", value);
  // A float reads as one: 2.0, not 2.
  return shortest.find_first_of(".einf") == std::string::npos ? shortest + ".0" : shortest;
}

std::string ToString(const AttrValue& value) {
  return std::visit(
      Overloaded{
          [](int64_t v) { return absl::StrCat(v); },
          [](double v) { return DoubleToString(v); },
          [](const std::string& v) { return absl::StrCat("\"", absl::CEscape(v), "\""); },
          [](bool v) { return std::string(v ? "true" : "false"); },
          [](DType v) { return std::string(Name(v)); },
          [](const std::vector<int64_t>& v) { return absl::StrCat("[", absl::StrJoin(v, ", "), "]"); },
          [](const std::vector<double>& v) {
            return absl::StrCat(
                "[", absl::StrJoin(v, ", ", [](std::string* s, double d) { absl::StrAppend(s, DoubleToString(d)); }),
                "]");
          },
          [](const std::vector<std::string>& v) {
            return absl::StrCat("[",
                                absl::StrJoin(v, ", ",
                                              [](std::string* s, const std::string& e) {
                                                absl::StrAppend(s, "\"", absl::CEscape(e), "\"");
                                              }),
                                "]");
          },
          [](const Literal& v) { return absl::StrCat("literal ", v.type.ToString()); },
      },
      value);
}

bool Attrs::Has(absl::string_view name) const { return values_.find(name) != values_.end(); }

int64_t Attrs::Int(absl::string_view name) const { return Get<int64_t>(*this, name); }

double Attrs::Float(absl::string_view name) const {
  auto it = values_.find(name);
  if (it != values_.end()) {
    if (auto* i = std::get_if<int64_t>(&it->second)) return static_cast<double>(*i);
  }
  return Get<double>(*this, name);
}

const std::string& Attrs::String(absl::string_view name) const { return Get<std::string>(*this, name); }
bool Attrs::Bool(absl::string_view name) const { return Get<bool>(*this, name); }
DType Attrs::GetDType(absl::string_view name) const { return Get<DType>(*this, name); }

const std::vector<int64_t>& Attrs::Ints(absl::string_view name) const { return Get<std::vector<int64_t>>(*this, name); }

std::vector<double> Attrs::Floats(absl::string_view name) const {
  auto it = values_.find(name);
  if (it != values_.end()) {
    if (auto* ints = std::get_if<std::vector<int64_t>>(&it->second)) return {ints->begin(), ints->end()};
  }
  return Get<std::vector<double>>(*this, name);
}

const std::vector<std::string>& Attrs::Strings(absl::string_view name) const {
  return Get<std::vector<std::string>>(*this, name);
}

int64_t Attrs::IntOr(absl::string_view name, int64_t fallback) const { return Has(name) ? Int(name) : fallback; }
double Attrs::FloatOr(absl::string_view name, double fallback) const { return Has(name) ? Float(name) : fallback; }
std::string Attrs::StringOr(absl::string_view name, absl::string_view fallback) const {
  return Has(name) ? String(name) : std::string(fallback);
}
bool Attrs::BoolOr(absl::string_view name, bool fallback) const { return Has(name) ? Bool(name) : fallback; }
std::vector<int64_t> Attrs::IntsOr(absl::string_view name, std::vector<int64_t> fallback) const {
  return Has(name) ? Ints(name) : fallback;
}
std::vector<std::string> Attrs::StringsOr(absl::string_view name, std::vector<std::string> fallback) const {
  return Has(name) ? Strings(name) : fallback;
}

}  // namespace inlay::ir
