#include "core/ir/required_extents.h"

#include <algorithm>
#include <string>

#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"

namespace inlay::ir {
namespace {

absl::StatusOr<std::vector<Dim>> OfSlice(const Binding& slice) {
  const std::vector<Dim>&from = slice.args[0].tensor_type().dims, &taken = slice.var->type.tensor().dims;
  const std::vector<int64_t> steps = slice.attrs.IntsOr("steps", std::vector<int64_t>(from.size(), 1));
  std::vector<std::string> names(from.size());
  if (slice.attrs.Has("dims")) {
    names = std::get<std::vector<std::string>>(slice.attrs.values().find("dims")->second);
  }
  std::vector<Dim> required;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].is_static() && names[i].empty()) continue;
    INLAY_ASSIGN_OR_RETURN(Dim left, MulDims(taken[i], -1));
    INLAY_ASSIGN_OR_RETURN(left, AddDims(left, from[i]));
    const int64_t begin = slice.attrs.Ints("begins")[i];
    if (taken[i].is_static() && begin < 0) {
      INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(from[i], begin));
    } else if (!names[i].empty() || taken[i].is_static()) {
      INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(left, -begin));
    } else if (steps[i] == 1 && left.is_static()) {
      required.push_back(taken[i]);  // what is dropped is a number
    }
  }
  return required;
}

absl::StatusOr<std::vector<Dim>> OfPad(const Binding& pad) {
  const std::string& mode = pad.attrs.String("mode");
  if (mode == "constant") return std::vector<Dim>();
  const std::vector<int64_t>& pads = pad.attrs.Ints("pads");
  const std::vector<Dim>& x = pad.args[0].tensor_type().dims;
  std::vector<Dim> required;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t before = pads[i], after = pads[i + x.size()], most = std::max(before, after);
    if (most <= 0) continue;
    // What is cropped is gone before the rest is looked into.
    const int64_t cropped = std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(x[i], cropped - (mode == "edge"   ? 1
                                                                              : mode == "wrap" ? most
                                                                                               : most + 1)));
  }
  return required;
}

// Each axis that is made of another's elements has some, and not more than code counts with.
absl::StatusOr<std::vector<Dim>> OfResize(const Binding& resize) {
  const std::vector<Dim>&from = resize.args[0].tensor_type().dims, &to = resize.var->type.tensor().dims;
  const std::vector<double> scales = resize.attrs.Floats("scales");
  std::vector<Dim> required;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to[i] && scales[i] == 1) continue;
    if (!ExactDivDims(to[i], from[i]).ok()) {  // else none comes from none
      INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(from[i], -1));
    }
    INLAY_ASSIGN_OR_RETURN(Dim left, MulDims(from[i], -1));
    INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(left, INT32_MAX));
  }
  return required;
}

}  // namespace

absl::StatusOr<std::vector<Dim>> RequiredExtents(const Binding& binding) {
  std::vector<Dim> required;
  if (binding.IsCall("slice")) {
    INLAY_ASSIGN_OR_RETURN(required, OfSlice(binding));
  } else if (binding.IsCall("pad")) {
    INLAY_ASSIGN_OR_RETURN(required, OfPad(binding));
  } else if (binding.IsCall("resize")) {
    INLAY_ASSIGN_OR_RETURN(required, OfResize(binding));
  }
  required.erase(std::remove_if(required.begin(), required.end(), [](const Dim& dim) { return dim.is_static(); }),
                 required.end());
  return required;
}

}  // namespace inlay::ir
