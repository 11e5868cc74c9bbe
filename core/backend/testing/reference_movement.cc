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

// Where a place of the grid is, in pixels of one axis; moved into x where padding says so.
double PlaceOf(const ir::Attrs& attrs, double g, double pixels) {
  const std::string &coordinate = attrs.String("coordinate"), &padding = attrs.String("padding");
  const bool aligned = coordinate == "align_corners";
  double at = aligned ? (g + 1) * (pixels - 1) / 2 : coordinate == "pixel" ? g : ((g + 1) * pixels - 1) / 2;
  if (padding == "zeros") return at;
  if (padding == "reflection") {
    const double low = aligned ? 0 : -0.5, high = pixels - 1 - low;
    while (high > low && (at < low || at > high)) at = at < low ? 2 * low - at : 2 * high - at;
  }
  return std::min(std::max(at, 0.0), pixels - 1);
}

void GridSample(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape(), grid = call.arg(1).type.Shape();
  const size_t axes = x.size() - 2;
  const bool nearest = call.attrs.String("mode") == "nearest";
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& at) {
    std::vector<double> places;
    for (size_t axis = 0; axis < axes; ++axis) {
      Index place(at.begin(), at.end() - 1);
      place.push_back(static_cast<int64_t>(axes - 1 - axis));
      places.push_back(PlaceOf(call.attrs, call.arg(1).values[Offset(grid, place)], static_cast<double>(x[axis + 1])));
    }
    double sum = 0;
    ForEach(Shape(x.begin() + 1, x.end() - 1), [&](const Index& pixel) {
      double weight = 1;
      for (size_t axis = 0; axis < axes; ++axis) {
        const double distance = std::abs((nearest ? std::nearbyint(places[axis]) : places[axis]) - pixel[axis]);
        weight *= nearest ? distance == 0 : std::max(0.0, 1 - distance);
      }
      Index from = {at[0]};
      from.insert(from.end(), pixel.begin(), pixel.end());
      from.push_back(at.back());
      sum += weight * call.arg(0).values[Offset(x, from)];
    });
    call.out->values[i++] = sum;
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
  (*ops)["grid_sample"] = GridSample;
}

}  // namespace inlay::backend::testing
