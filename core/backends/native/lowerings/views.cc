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

std::vector<int64_t> WithoutOnes(const std::vector<int64_t>& shape) {
  std::vector<int64_t> result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](int64_t d) { return d != 1; });
  return result;
}

// What moves elements only and is never memory by itself.
bool IsMovement(const Node& node) {
  return node.op == "transpose" || node.op == "split" || node.op == "expand" ||
         (node.op == "slice" && OnlyPositiveSteps(node)) || (node.op == "reshape" && IsReadThrough(node));
}

// The strides of a dimension's parts; those of extent 1 are never used.
void ReshapeView(const Tensor& in, const Tensor& out, View* view) {
  std::vector<int> part_of;
  SplitsDims(in.shape, out.shape, &part_of);
  std::vector<int64_t> strides(out.rank(), 0);
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (part_of[i] < 0) continue;
    int64_t& stride = view->strides[part_of[i]];
    strides[i] = stride;
    stride *= out.shape[i];
  }
  view->strides = strides;
}

void SliceView(const Node& node, View* view) {
  const std::vector<int64_t>& begins = node.attrs->Ints("begins");
  std::vector<int64_t> steps = node.attrs->IntsOr("steps", std::vector<int64_t>(begins.size(), 1));
  for (size_t d = 0; d < begins.size(); ++d) {
    int64_t extent = node.in(0).shape[d];
    int64_t begin = begins[d] < 0 ? begins[d] + extent : begins[d];
    begin = std::clamp<int64_t>(begin, 0, extent);
    if (node.out().shape[d] > 0) view->offset += begin * view->strides[d];
    view->strides[d] *= steps[d];
  }
}

void SplitView(const Node& node, const Tensor& out, View* view) {
  int64_t axis = Normalise(node.attrs->IntOr("axis", 0), node.in(0).rank());
  for (const Tensor* piece : node.outputs) {
    if (piece == &out) return;
    view->offset += piece->shape[axis] * view->strides[axis];
  }
}

void ExpandView(const Tensor& in, const Tensor& out, View* view) {
  std::vector<int64_t> strides(out.rank(), 0);
  int skip = out.rank() - in.rank();
  for (int i = 0; i < in.rank(); ++i) {
    if (in.shape[i] == out.shape[skip + i]) strides[skip + i] = view->strides[i];
  }
  view->strides = strides;
}

}  // namespace

bool SplitsDims(const std::vector<int64_t>& in, const std::vector<int64_t>& out, std::vector<int>* part_of) {
  part_of->assign(out.size(), -1);
  size_t next = 0;
  for (size_t d = 0; d < in.size(); ++d) {
    for (int64_t covered = 1; covered != in[d]; ++next) {
      if (next == out.size() || (covered > in[d] && in[d] != 0)) return false;
      covered *= out[next];
      if (out[next] != 1) (*part_of)[next] = static_cast<int>(d);
    }
  }
  return std::all_of(out.begin() + next, out.end(), [](int64_t extent) { return extent == 1; });
}

bool IsReadThrough(const Node& reshape) {
  const Tensor &in = reshape.in(0), &out = reshape.out();
  if (WithoutOnes(in.shape) == WithoutOnes(out.shape)) return true;
  std::vector<int> part_of;
  return in.producer != nullptr && IsMovement(*in.producer) && SplitsDims(in.shape, out.shape, &part_of);
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
    *view = {&tensor, 0, RowMajorStrides(tensor.shape)};
    return true;
  }
  const Node& node = *tensor.producer;
  if (!IsMovement(node) || !ResolveView(node.in(0), view)) return false;
  if (node.op == "transpose") {
    std::vector<int64_t> strides;
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
