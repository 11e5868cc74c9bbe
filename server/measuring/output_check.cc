#include "server/measuring/output_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/ir/literal.h"

namespace inlay::server {
namespace {

double RootMeanSquare(ir::DType dtype, absl::string_view data, int64_t n) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = ir::ElementAsDouble(dtype, data, i);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++finite;
  }
  return finite == 0 ? 0 : std::sqrt(sum / static_cast<double>(finite));
}

}  // namespace

OutputDifference CompareOutput(const runtime::TensorType& type, const char* expected, const char* got, double rtol,
                               double atol) {
  const ir::DType dtype = static_cast<ir::DType>(type.dtype);  // the numbers are proto/ir.proto's in both
  const int64_t n = type.NumElements();
  const absl::string_view want(expected, type.NumBytes()), have(got, type.NumBytes());
  const double absolute = atol * RootMeanSquare(dtype, want, n);
  OutputDifference difference;
  for (int64_t i = 0; i < n; ++i) {
    const double r = ir::ElementAsDouble(dtype, want, i), x = ir::ElementAsDouble(dtype, have, i);
    bool right;
    if (std::isfinite(r) && std::isfinite(x)) {
      const double error = std::abs(x - r);
      difference.max_error = std::max(difference.max_error, error);
      right = error <= rtol * std::abs(r) + absolute;
    } else {
      right = x == r || (std::isnan(x) && std::isnan(r));
    }
    if (right) continue;
    if (difference.num_bad++ > 0) continue;
    difference.first_bad = i;
    difference.expected = r;
    difference.got = x;
  }
  return difference;
}

std::string OutputDifference::ToString(const runtime::TensorType& type) const {
  return absl::StrCat("element ", first_bad, " of ", type.ToString(), " is ", got, " instead of ", expected, "; ",
                      num_bad, " of ", type.NumElements(), " are wrong");
}

}  // namespace inlay::server
