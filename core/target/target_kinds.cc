#include "core/target/target_kinds.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay::target {
namespace {

using Type = AttrSpec::Type;

std::vector<TargetKind>* MakeKinds() {
  const AttrSpec num_cores = {
      "num-cores", Type::kInt, "those of the machine that runs it", "cores that cost estimates count with", {},
      1,           4096};
  return new std::vector<TargetKind>{
      {"llvm",
       "a CPU, by LLVM",
       {{"mattr", Type::kString, "what mcpu has", "instruction sets on and off: +avx512f,-avx512bf16"},
        {"mcpu", Type::kString, "x86-64-v3", "LLVM's name of the CPU; native: the client's"},
        {"mtriple", Type::kString, "x86_64-unknown-linux-gnu", "architecture and system"},
        num_cores}},
      {"c",
       "whatever a C11 compiler compiles for",
       {{"mcpu", Type::kString, "", "the device's CPU as its compiler names it: cortex-m3; kept in the metadata"},
        {"model", Type::kString, "unknown", "the board or SoC; kept in the metadata"},
        num_cores}},
      {"cuda", "a GPU of NVIDIA's", {{"arch", Type::kString, "sm_90", "compute capability, as nvcc names it"}}},
  };
}

absl::Status CheckValue(const AttrSpec& spec, const std::string& value, absl::string_view whose) {
  std::string wanted;
  int64_t n;
  switch (spec.type) {
    case Type::kString:
      return absl::OkStatus();
    case Type::kInt:
      if (absl::SimpleAtoi(value, &n) && ((spec.min == 0 && spec.max == 0) || (n >= spec.min && n <= spec.max))) {
        return absl::OkStatus();
      }
      wanted = spec.min == 0 && spec.max == 0 ? "a number" : absl::StrCat("a number from ", spec.min, " to ", spec.max);
      break;
    case Type::kBool:
      if (value == "0" || value == "1") return absl::OkStatus();
      wanted = "0 or 1";
      break;
    case Type::kChoice:
      if (std::find(spec.choices.begin(), spec.choices.end(), value) != spec.choices.end()) return absl::OkStatus();
      wanted = absl::StrCat("one of ", absl::StrJoin(spec.choices, ", "));
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(whose, ": ", spec.name, "=", value, " must be ", wanted));
}

}  // namespace

const std::vector<TargetKind>& TargetKinds() {
  static const std::vector<TargetKind>* kinds = MakeKinds();
  return *kinds;
}

const TargetKind* FindTargetKind(absl::string_view name) {
  for (const TargetKind& kind : TargetKinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

absl::Status CheckAttrs(const std::map<std::string, std::string>& attrs, const std::vector<AttrSpec>& specs,
                        absl::string_view whose) {
  for (const auto& [name, value] : attrs) {
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&name = name](const AttrSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      std::vector<std::string> names;
      for (const AttrSpec& s : specs) names.push_back(s.name);
      return absl::InvalidArgumentError(absl::StrCat(whose, " has no attribute '", name, "'; it has ",
                                                     names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    if (absl::Status status = CheckValue(*spec, value, whose); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace inlay::target
