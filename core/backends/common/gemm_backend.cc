#include "core/backends/common/gemm_backend.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/backends/common/gemm_lowering.h"

namespace inlay::backends {
namespace {

// The scale of the other CPU backends' estimates: a core of 3 GHz.
constexpr double kCyclesPerMicro = 3e3;

bool IsCheap(const GemmStep& step) {
  return step.binary || step.op == "relu" || step.op == "leaky_relu" || step.op == "clip";
}

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> GemmOptions(const GemmLibrary& library,
                                                           const target::Target& codegen_target) {
  std::map<std::string, int64_t> values;
  std::vector<std::string> names;
  for (const GemmOption& option : library.options) {
    values[option.name] = option.default_value;
    names.push_back(option.name);
  }
  for (const auto& [name, text] : codegen_target.attrs) {
    auto option = std::find_if(library.options.begin(), library.options.end(),
                               [&name = name](const GemmOption& o) { return o.name == name; });
    if (option == library.options.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the codegen target ", library.name, " has no attribute '", name, "'",
                       names.empty() ? "" : absl::StrCat("; it has: ", absl::StrJoin(names, ", "))));
    }
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < option->min || value > option->max ||
        value % option->multiple_of != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the attribute '", name, "' of the codegen target ", library.name,
                                                     " is '", text, "'; it must be a multiple of ", option->multiple_of,
                                                     " from ", option->min, " to ", option->max));
    }
    values[name] = value;
  }
  return values;
}

double EstimateGemmMicros(const GemmLibrary& library, const GemmDescription& gemm, const target::Target& target) {
  const bool avx512 = target.HasFeature("avx512f");
  double lanes = avx512 ? 16 : target.HasFeature("avx2") ? 8 : 4;
  double element_bytes = 4;
  if (gemm.dtype == "f64") lanes /= 2, element_bytes = 8;
  const double elements = static_cast<double>(gemm.num_products()) * gemm.m * gemm.n;
  double bytes = elements * element_bytes;
  for (int64_t input : gemm.input_elements) bytes += static_cast<double>(input) * element_bytes;
  double cycles = gemm.flops() / (lanes * 2 * 2 * (avx512 ? library.efficiency_avx512 : library.efficiency_avx2));
  for (const GemmStep& step : gemm.steps) cycles += elements / lanes * (IsCheap(step) ? 1 : 10);
  return library.call_micros + std::max(cycles / kCyclesPerMicro, bytes / library.bytes_per_micro);
}

GemmBackend::GemmBackend(const GemmLibrary& library)
    : library_(library), rules_(GemmRules(library.name, library.dtypes)) {}

absl::Status GemmBackend::CheckTarget(const target::Target& target, const target::Target& codegen_target) const {
  if (target.kind != "llvm") {
    return absl::FailedPreconditionError(
        absl::StrCat(library_.name, " serves CPUs, not targets of kind '", target.kind, "'"));
  }
  const std::string triple = target.attr("mtriple");
  if (!absl::StartsWith(triple, "x86_64") || !absl::StrContains(triple, "linux")) {
    return absl::FailedPreconditionError(
        absl::StrCat(library_.name, "'s library is one for x86_64 Linux, not for '", triple, "'"));
  }
  if (!library_.required_feature.empty() && !target.HasFeature(library_.required_feature)) {
    return absl::FailedPreconditionError(absl::StrCat(library_.name, " needs a target with ", library_.required_feature,
                                                      ", which ", target.attr("mcpu"), " is not"));
  }
  return GemmOptions(library_, codegen_target).status();
}

double GemmBackend::EstimateMicros(const ir::Function& partition, const target::Target& target) const {
  auto gemm = LowerGemm(partition, library_.dtypes);
  return gemm.ok() ? EstimateGemmMicros(library_, *gemm, target) : -1;
}

}  // namespace inlay::backends
