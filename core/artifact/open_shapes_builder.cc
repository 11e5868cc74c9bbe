#include "core/artifact/open_shapes_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::artifact {
namespace {

runtime::ShapeRegister::Kind KindOf(ir::OpaquePart::Function function) {
  switch (function) {
    case ir::OpaquePart::Function::kFloorDiv:
      return runtime::ShapeRegister::Kind::kFloorDiv;
    case ir::OpaquePart::Function::kSlice:
      return runtime::ShapeRegister::Kind::kSlice;
    case ir::OpaquePart::Function::kCeilPool:
      return runtime::ShapeRegister::Kind::kCeilPool;
  }
  return runtime::ShapeRegister::Kind::kInput;
}

}  // namespace

absl::Status OpenShapesBuilder::AddInputs(const std::vector<ir::VarPtr>& inputs) {
  struct Open {
    int64_t input, axis;
    ir::Dim dim;
  };
  std::vector<Open> open;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<ir::Dim>& dims = inputs[i]->type.tensor().dims;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (!dims[axis].is_static()) open.push_back({static_cast<int64_t>(i), static_cast<int64_t>(axis), dims[axis]});
    }
  }
  // An opaque part is taken for a name of its own only where nothing else says what it is made from.
  std::vector<bool> done(open.size(), false);
  for (bool opaque : {false, true}) {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < open.size(); ++i) {
        if (done[i]) continue;
        INLAY_ASSIGN_OR_RETURN(done[i], Bind(open[i].input, open[i].axis, open[i].dim, opaque));
        progress = progress || done[i];
      }
    }
  }
  for (size_t i = 0; i < open.size(); ++i) {
    if (!done[i]) INLAY_RETURN_IF_ERROR(ExtentOf(open[i].dim).status());  // names what is missing
  }
  for (const runtime::ShapeRegister& r : shapes_.registers) {
    const absl::optional<ir::OpaquePart> part = ir::ParseOpaque(r.name);
    if (r.kind != runtime::ShapeRegister::Kind::kInput || !part.has_value()) continue;
    const std::vector<std::string> names = ir::SymbolNames(part->of);
    if (std::all_of(names.begin(), names.end(), [&](const std::string& n) { return registers_.count(n) > 0; })) {
      return absl::InvalidArgumentError(absl::StrCat("'", r.name, "' is a dimension of input '",
                                                     inputs[r.args[0]]->name, "' and follows from '",
                                                     part->of.ToString(), "' too"));
    }
  }
  return absl::OkStatus();
}

// Whether all names of an input's extent are known, perhaps by it.
absl::StatusOr<bool> OpenShapesBuilder::Bind(int64_t input, int64_t axis, const ir::Dim& dim, bool opaque) {
  const std::vector<ir::DimTerm> terms = ir::DimTerms(dim);
  std::vector<ir::DimTerm> rest;
  const ir::DimTerm* unknown = nullptr;
  for (const ir::DimTerm& term : terms) {
    const bool known =
        std::all_of(term.names.begin(), term.names.end(), [&](const std::string& n) { return RegisterOf(n).ok(); });
    if (known) {
      rest.push_back(term);
    } else if (unknown != nullptr || term.names.size() != 1 || term.coefficient < 1 ||
               (!opaque && ir::ParseOpaque(term.names[0]).has_value())) {
      return false;
    } else {
      unknown = &term;
    }
  }
  if (unknown != nullptr) {
    runtime::ShapeRegister r;
    r.name = unknown->names[0];
    r.args = {input, axis, unknown->coefficient};
    INLAY_ASSIGN_OR_RETURN(r.sum, SumOf(rest));
    registers_[r.name] = static_cast<int32_t>(shapes_.registers.size());
    shapes_.registers.push_back(std::move(r));
  }
  return ExtentOf(dim).ok();
}

absl::StatusOr<int32_t> OpenShapesBuilder::RegisterOf(const std::string& name) {
  if (const auto it = registers_.find(name); it != registers_.end()) return it->second;
  const absl::optional<ir::OpaquePart> part = ir::ParseOpaque(name);
  if (!part.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("the symbolic extent '", name,
                                                   "' is no input's dimension, so a run can't know it: give it a ",
                                                   "value (shape ", name, "=N)"));
  }
  runtime::ShapeRegister r{KindOf(part->function), name, part->args, {}};
  INLAY_ASSIGN_OR_RETURN(r.sum, SumOf(ir::DimTerms(part->of)));
  const auto index = static_cast<int32_t>(shapes_.registers.size());
  shapes_.registers.push_back(std::move(r));
  registers_[name] = index;
  return index;
}

absl::StatusOr<runtime::ExtentSum> OpenShapesBuilder::SumOf(const std::vector<ir::DimTerm>& terms) {
  runtime::ExtentSum sum;
  for (const ir::DimTerm& term : terms) {
    runtime::ExtentTerm& added = sum.emplace_back();
    added.coefficient = term.coefficient;
    for (const std::string& name : term.names) {
      INLAY_ASSIGN_OR_RETURN(int32_t index, RegisterOf(name));
      added.registers.push_back(index);
    }
  }
  return sum;
}

absl::StatusOr<int64_t> OpenShapesBuilder::ExtentOf(const ir::Dim& dim) {
  const std::string name = dim.ToString();
  if (const auto it = extents_.find(name); it != extents_.end()) return it->second;
  INLAY_ASSIGN_OR_RETURN(runtime::ExtentSum sum, SumOf(ir::DimTerms(dim)));
  const auto index = static_cast<int64_t>(shapes_.extents.size());
  shapes_.extents.push_back({name, std::move(sum)});
  extents_[name] = index;
  return index;
}

absl::StatusOr<runtime::TensorType> OpenShapesBuilder::TypeOf(const ir::TensorType& type) {
  runtime::TensorType result{static_cast<runtime::DType>(type.dtype), {}};
  for (const ir::Dim& dim : type.dims) {
    if (dim.is_static()) {
      result.shape.push_back(dim.value());
      continue;
    }
    INLAY_ASSIGN_OR_RETURN(int64_t extent, ExtentOf(dim));
    result.shape.push_back(-1 - extent);
  }
  return result;
}

}  // namespace inlay::artifact
