#include "core/backends/native/lowerings/views.h"

#include <algorithm>
#include <string>

#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

int64_t Normalise(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

bool OnlyPositiveSteps(const Node& node) {
  std::vector<int64_t> steps = node.attrs->IntsOr("steps", {});
  return std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s > 0; });
}

Shape WithoutOnes(const Shape& shape) {
  Shape result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](const Extent& d) { return d != Extent(1); });
  return result;
}

// Where each axis begins is known: no begin is counted from an open end, or may lie beyond one.
bool HasPlainBegins(const Node& node) {
  const std::vector<int64_t>& begins = node.attrs->Ints("begins");
  for (size_t d = 0; d < begins.size(); ++d) {
    if (!node.in(0).dims[d].is_static() && begins[d] != 0) return false;
  }
  return true;
}

// What moves elements only and is never memory by itself.
bool IsMovement(const Node& node) {
  return node.op == "transpose" || node.op == "split" || node.op == "expand" ||
         (node.op == "slice" && OnlyPositiveSteps(node) && HasPlainBegins(node)) ||
         (node.op == "reshape" && IsReadThrough(node));
}

// The strides of a dimension's parts; those of extent 1 are never used.
void ReshapeView(const Tensor& in, const Tensor& out, View* view) {
  std::vector<int> part_of;
  SplitsDims(in.dims, out.dims, &part_of);
  Shape strides(out.rank(), 0);
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (part_of[i] < 0) continue;
    Extent& stride = view->strides[part_of[i]];
    strides[i] = stride;
    stride = stride * out.dims[i];
  }
  view->strides = strides;
}

void SliceView(const Node& node, View* view) {
  const std::vector<int64_t>& begins = node.attrs->Ints("begins");
  std::vector<int64_t> steps = node.attrs->IntsOr("steps", std::vector<int64_t>(begins.size(), 1));
  for (size_t d = 0; d < begins.size(); ++d) {
    const Extent& extent = node.in(0).dims[d];
    if (extent.is_static()) {
      int64_t begin = begins[d] < 0 ? begins[d] + extent.value() : begins[d];
      begin = std::clamp<int64_t>(begin, 0, extent.value());
      if (node.out().dims[d] != Extent(0)) view->offset = view->offset + Extent(begin) * view->strides[d];
    }
    view->strides[d] = view->strides[d] * steps[d];
  }
}

void SplitView(const Node& node, const Tensor& out, View* view) {
  int64_t axis = Normalise(node.attrs->IntOr("axis", 0), node.in(0).rank());
  for (const Tensor* piece : node.outputs) {
    if (piece == &out) return;
    view->offset = view->offset + piece->dims[axis] * view->strides[axis];
  }
}

void ExpandView(const Tensor& in, const Tensor& out, View* view) {
  Shape strides(out.rank(), 0);
  int skip = out.rank() - in.rank();
  for (int i = 0; i < in.rank(); ++i) {
    if (in.dims[i] == out.dims[skip + i]) strides[skip + i] = view->strides[i];
  }
  view->strides = strides;
}

}  // namespace

bool IsReadThrough(const Node& reshape) {
  const Tensor &in = reshape.in(0), &out = reshape.out();
  if (WithoutOnes(in.dims) == WithoutOnes(out.dims)) return true;
  std::vector<int> part_of;
  return in.producer != nullptr && IsMovement(*in.producer) && SplitsDims(in.dims, out.dims, &part_of);
}

bool CanBeView(const Tensor& tensor) {
  if (tensor.producer == nullptr) return true;
  const Node& node = *tensor.producer;
  if (IsMovement(node)) return CanBeView(node.in(0));
  if (node.op == "reshape") return true;  // an alias, whose argument has memory for that
  const Lowering* lowering = FindLowering(node.op);
  return lowering != nullptr && lowering->element == nullptr;
}

bool ResolveView(const Tensor& tensor, View* view) {
  if (!tensor.inlined) {
    *view = {&tensor, 0, RowMajorStrides(tensor.dims)};
    return true;
  }
  const Node& node = *tensor.producer;
  if (!IsMovement(node) || !ResolveView(node.in(0), view)) return false;
  if (node.op == "transpose") {
    Shape strides;
    for (int64_t axis : node.attrs->Ints("perm")) strides.push_back(view->strides[Normalise(axis, node.in(0).rank())]);
    view->strides = strides;
  } else if (node.op == "slice") {
    SliceView(node, view);
  } else if (node.op == "split") {
    SplitView(node, tensor, view);
  } else if (node.op == "expand") {
    ExpandView(node.in(0), tensor, view);
  } else {
    ReshapeView(node.in(0), tensor, view);
  }
  return true;
}

}  // namespace inlay::native
