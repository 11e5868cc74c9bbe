#include <algorithm>
#include <cmath>
#include <limits>

#include "core/backend/testing/reference_ops.h"

namespace inlay::backend::testing {
namespace {

using Fold = double (*)(double, double);

RefOp OfReduction(double start, Fold fold, bool mean = false) {
  return [=](const RefCall& call) {
    const Shape shape = call.arg(0).type.Shape();
    Shape axes = call.attrs.IntsOr("axes", {});
    if (axes.empty()) {
      for (size_t i = 0; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
    }
    Shape kept = shape;
    int64_t reduced = 1;
    for (int64_t axis : axes) {
      reduced *= shape[axis];
      kept[axis] = 1;
    }
    std::fill(call.out->values.begin(), call.out->values.end(), start);
    int64_t i = 0;
    ForEach(shape, [&](const Index& index) {
      Index to = index;
      for (int64_t axis : axes) to[axis] = 0;
      double& out = call.out->values[Offset(kept, to)];
      out = fold(out, call.arg(0).values[i++]);
    });
    if (mean) {
      for (double& value : call.out->values) value /= static_cast<double>(reduced);
    }
  };
}

// Calls f with the values along `axis`, to be changed in place.
void AlongAxis(const RefCall& call, int64_t axis, const std::function<void(std::vector<double>*)>& f) {
  const Shape shape = call.arg(0).type.Shape();
  Shape others = shape;
  others[axis] = 1;
  ForEach(others, [&](const Index& index) {
    std::vector<double> line;
    Index at = index;
    for (at[axis] = 0; at[axis] < shape[axis]; ++at[axis]) line.push_back(call.arg(0).values[Offset(shape, at)]);
    f(&line);
    for (at[axis] = 0; at[axis] < shape[axis]; ++at[axis]) call.out->values[Offset(shape, at)] = line[at[axis]];
  });
}

RefOp Softmax(bool log) {
  return [log](const RefCall& call) {
    AlongAxis(call, call.attrs.Int("axis"), [log](std::vector<double>* line) {
      const double most = *std::max_element(line->begin(), line->end());
      double sum = 0;
      for (double value : *line) sum += std::exp(value - most);
      for (double& value : *line) value = log ? value - most - std::log(sum) : std::exp(value - most) / sum;
    });
  };
}

void LayerNorm(const RefCall& call) {
  const Shape shape = call.arg(0).type.Shape();
  const int64_t axis = call.attrs.Int("axis");
  const int64_t columns = Count(Shape(shape.begin() + axis, shape.end()));
  const int64_t rows = Count(shape) / columns;
  const Shape inner(shape.begin() + axis, shape.end());
  for (int64_t row = 0; row < rows; ++row) {
    const double* x = &call.arg(0).values[row * columns];
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < columns; ++i) mean += x[i] / static_cast<double>(columns);
    for (int64_t i = 0; i < columns; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(columns);
    const double scale = 1 / std::sqrt(variance + call.attrs.Float("epsilon"));
    int64_t i = 0;
    ForEach(inner, [&](const Index& index) {
      call.out->values[row * columns + i] =
          (x[i] - mean) * scale * AtBroadcast(call.arg(1), index) + AtBroadcast(call.arg(2), index);
      ++i;
    });
  }
}

void BatchNorm(const RefCall& call) {
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& index) {
    const int64_t c = index[1];
    auto at = [&](int arg) { return call.arg(arg).values[c]; };
    call.out->values[i] =
        (call.arg(0).values[i] - at(3)) / std::sqrt(at(4) + call.attrs.Float("epsilon")) * at(1) + at(2);
    ++i;
  });
}

}  // namespace

void AddReductionOps(std::map<std::string, RefOp>* ops) {
  (*ops)["reduce_sum"] = OfReduction(0, [](double a, double b) { return a + b; });
  (*ops)["reduce_mean"] = OfReduction(0, [](double a, double b) { return a + b; }, true);
  (*ops)["reduce_prod"] = OfReduction(1, [](double a, double b) { return a * b; });
  (*ops)["reduce_max"] = OfReduction(-INFINITY, [](double a, double b) { return std::max(a, b); });
  (*ops)["reduce_min"] = OfReduction(INFINITY, [](double a, double b) { return std::min(a, b); });
  (*ops)["softmax"] = Softmax(false);
  (*ops)["log_softmax"] = Softmax(true);
  (*ops)["layer_norm"] = LayerNorm;
  (*ops)["batch_norm"] = BatchNorm;
}

}  // namespace inlay::backend::testing
