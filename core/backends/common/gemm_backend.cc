#include "core/backends/common/gemm_backend.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/backends/common/gemm_lowering.h"
#include "core/base/status_macros.h"

namespace inlay::backends {
namespace {

// The scale of the other CPU backends' estimates: a core of 3 GHz.
constexpr double kCyclesPerMicro = 3e3;

bool IsCheap(const GemmStep& step) {
  return step.binary || step.op == "relu" || step.op == "leaky_relu" || step.op == "clip";
}

std::vector<GemmOption> OptionsOf(const GemmLibrary& library) {
  std::vector<GemmOption> options = library.options;
  options.push_back({kSplitFlops, kDefaultSplitFlops, 0, int64_t{1} << 50, 1,
                     "floating-point operations that a product has at least to be split over threads"});
  return options;
}

std::vector<target::AttrSpec> AttrsOf(const GemmLibrary& library) {
  std::vector<target::AttrSpec> attrs;
  for (const GemmOption& o : OptionsOf(library)) {
    attrs.push_back({o.name, target::AttrSpec::Type::kInt, absl::StrCat(o.default_value), o.help, {}, o.min, o.max});
  }
  return attrs;
}

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> GemmOptions(const GemmLibrary& library,
                                                           const target::Target& codegen_target) {
  INLAY_RETURN_IF_ERROR(
      target::CheckAttrs(codegen_target.attrs, AttrsOf(library), absl::StrCat("the codegen target ", library.name)));
  std::map<std::string, int64_t> values;
  for (const GemmOption& option : OptionsOf(library)) {
    int64_t value = option.default_value;
    const std::string text = codegen_target.attr(option.name);
    if (!text.empty() && (!absl::SimpleAtoi(text, &value) || value % option.multiple_of != 0)) {
      return absl::InvalidArgumentError(absl::StrCat("the codegen target ", library.name, ": ", option.name, "=", text,
                                                     " must be a multiple of ", option.multiple_of));
    }
    values[option.name] = value;
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
  for (const GemmStep& step : gemm.steps) cycles += elements / lanes * (IsCheap(step) ? 1 : 20);
  return library.call_micros + std::max(cycles / kCyclesPerMicro, bytes / library.bytes_per_micro);
}

GemmBackend::GemmBackend(const GemmLibrary& library)
    : library_(library), attrs_(AttrsOf(library)), rules_(GemmRules(library.name, library.dtypes)) {}

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
