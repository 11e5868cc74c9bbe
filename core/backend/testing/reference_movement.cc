#include <algorithm>
#include <cmath>

#include "core/backend/testing/reference_ops.h"

namespace inlay::backend::testing {
namespace {

void Copy(const RefCall& call) { call.out->values = call.arg(0).values; }

void Transpose(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape();
  const Shape& perm = call.attrs.Ints("perm");
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    Index from(at.size());
    for (size_t axis = 0; axis < at.size(); ++axis) from[perm[axis]] = at[axis];
    call.out->values[i++] = call.arg(0).values[Offset(x, from)];
  });
}

void Concat(const RefCall& call) {
  const int64_t axis = call.attrs.Int("axis");
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    Index from = at;
    size_t arg = 0;
    while (from[axis] >= call.arg(static_cast<int>(arg)).type.Shape()[axis]) {
      from[axis] -= call.arg(static_cast<int>(arg++)).type.Shape()[axis];
    }
    const RefTensor& source = call.arg(static_cast<int>(arg));
    call.out->values[i++] = source.values[Offset(source.type.Shape(), from)];
  });
}

void Expand(const RefCall& call) {
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) { call.out->values[i++] = AtBroadcast(call.arg(0), at); });
}

void Pad(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape();
  const Shape& pads = call.attrs.Ints("pads");
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    Index from = at;
    bool inside = true;
    for (size_t axis = 0; axis < x.size(); ++axis) {
      from[axis] -= pads[axis];
      inside &= from[axis] >= 0 && from[axis] < x[axis];
    }
    call.out->values[i++] = inside ? call.arg(0).values[Offset(x, from)] : call.attrs.FloatOr("value", 0);
  });
}

void Slice(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape();
  const Shape &begins = call.attrs.Ints("begins"), &steps = call.attrs.Ints("steps");
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    Index from = at;
    for (size_t axis = 0; axis < at.size(); ++axis) from[axis] = begins[axis] + at[axis] * steps[axis];
    call.out->values[i++] = call.arg(0).values[Offset(x, from)];
  });
}

void Gather(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape(), indices = call.arg(1).type.Shape();
  const int64_t axis = call.attrs.Int("axis");
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    const Index which(at.begin() + axis, at.begin() + axis + indices.size());
    int64_t picked = static_cast<int64_t>(call.arg(1).values[Offset(indices, which)]);
    if (picked < 0) picked += x[axis];
    Index from(at.begin(), at.begin() + axis);
    from.push_back(std::clamp<int64_t>(picked, 0, x[axis] - 1));
    from.insert(from.end(), at.begin() + axis + indices.size(), at.end());
    call.out->values[i++] = call.arg(0).values[Offset(x, from)];
  });
}

}  // namespace

void AddMovementOps(std::map<std::string, RefOp>* ops) {
  (*ops)["reshape"] = Copy;
  (*ops)["transpose"] = Transpose;
  (*ops)["concat"] = Concat;
  (*ops)["expand"] = Expand;
  (*ops)["slice"] = Slice;
  (*ops)["pad"] = Pad;  // of mode "constant"
  (*ops)["gather"] = Gather;
}

}  // namespace inlay::backend::testing
