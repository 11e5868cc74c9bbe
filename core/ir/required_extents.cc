#include "core/ir/required_extents.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"

namespace inlay::ir {
namespace {

constexpr size_t kMaxRequired = 1024;
constexpr size_t kMaxExpression = 1024;  // characters, as of a Dim
constexpr size_t kMaxShown = 128;

std::string Shown(absl::string_view text) { return absl::StrCat("'", absl::CEscape(text.substr(0, kMaxShown)), "'"); }

absl::StatusOr<std::vector<Dim>> OfSlice(const Binding& slice) {
  const std::vector<Dim>&from = slice.args[0].tensor_type().dims, &taken = slice.var->type.tensor().dims;
  const std::vector<int64_t> steps = slice.attrs.IntsOr("steps", std::vector<int64_t>(from.size(), 1));
  const std::vector<std::string> names = slice.attrs.StringsOr("dims", std::vector<std::string>(from.size()));
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

// There are pixels: a place outside of x reads one, if only to leave it.
absl::StatusOr<std::vector<Dim>> OfGridSample(const Binding& sample) {
  const std::vector<Dim>& dims = sample.args[0].tensor_type().dims;
  std::vector<Dim> required;
  for (size_t i = 1; i + 1 < dims.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(required.emplace_back(0), AddDims(dims[i], -1));
  }
  return required;
}

// There are as many as are taken.
absl::StatusOr<std::vector<Dim>> OfTopK(const Binding& topk) {
  const Type& taken = topk.var->type.tuple().fields[0];
  const int64_t axis = topk.attrs.Int("axis");
  INLAY_ASSIGN_OR_RETURN(Dim left, MulDims(taken.tensor().dims[axis], -1));
  INLAY_ASSIGN_OR_RETURN(left, AddDims(left, topk.args[0].tensor_type().dims[axis]));
  return std::vector<Dim>{left};
}

// The first name in it that is neither known nor made from what is; "": there is none.
std::string FirstUnknown(const Dim& dim, const std::set<std::string>& known) {
  for (const std::string& name : SymbolNames(dim)) {
    if (known.count(name) > 0) continue;
    const absl::optional<OpaquePart> part = ParseOpaque(name);
    if (!part.has_value()) return name;
    if (std::string unknown = FirstUnknown(part->of, known); !unknown.empty()) return unknown;
  }
  return "";
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
  } else if (binding.IsCall("grid_sample")) {
    INLAY_ASSIGN_OR_RETURN(required, OfGridSample(binding));
  } else if (binding.IsCall("topk")) {
    INLAY_ASSIGN_OR_RETURN(required, OfTopK(binding));
  }
  required.erase(std::remove_if(required.begin(), required.end(), [](const Dim& dim) { return dim.is_static(); }),
                 required.end());
  return required;
}

absl::StatusOr<std::vector<Dim>> RequiredExtents(const Function& main) {
  std::vector<Dim> required;
  if (!main.attrs.Has(kRequiredExtents)) return required;
  auto bad = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("main's attribute '", kRequiredExtents, "' ", what...));
  };
  const auto* texts = std::get_if<std::vector<std::string>>(&main.attrs.values().find(kRequiredExtents)->second);
  if (texts == nullptr || texts->size() > kMaxRequired) return bad("must be strings, at most ", kMaxRequired);
  std::set<std::string> known;
  for (const VarPtr& param : main.params) {
    if (!param->type.is_tensor()) continue;
    for (const Dim& dim : param->type.tensor().dims) {
      for (std::string& name : SymbolNames(dim)) known.insert(std::move(name));
    }
  }
  for (const std::string& text : *texts) {
    if (text.empty() || text.size() > kMaxExpression) {
      return bad("has an expression of ", text.size(), " characters; it must have 1 to ", kMaxExpression);
    }
    Dim dim = CanonicalDim(text);
    if (dim.is_static()) {
      if (dim.value() < 0) return bad("has ", Shown(text), ", which is ", dim.value(), "; it must be 0 or more");
      continue;
    }
    // A text that is no expression is a name, and no parameter has it.
    if (const std::string unknown = FirstUnknown(dim, known); !unknown.empty()) {
      return bad("has ", Shown(text), ", and no parameter has the symbol ", Shown(unknown));
    }
    required.push_back(std::move(dim));
  }
  return required;
}

}  // namespace inlay::ir
