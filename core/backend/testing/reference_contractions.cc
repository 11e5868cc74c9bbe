#include <algorithm>
#include <cmath>

#include "core/backend/testing/reference_ops.h"

namespace inlay::backend::testing {
namespace {

void Matmul(const RefCall& call) {
  Shape a = call.arg(0).type.Shape(), b = call.arg(1).type.Shape(), out = call.out->type.Shape();
  if (b.size() == 1) out.push_back(1);
  if (a.size() == 1) out.insert(out.end() - 1, 1);
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const bool ta = call.attrs.Bool("transpose_a"), tb = call.attrs.Bool("transpose_b");
  const int64_t k = ta ? a[a.size() - 2] : a.back();
  RefTensor wide_a{ir::MakeTensorType(ir::DType::kF64, a), call.arg(0).values};
  RefTensor wide_b{ir::MakeTensorType(ir::DType::kF64, b), call.arg(1).values};
  int64_t i = 0;
  ForEach(out, [&](const Index& index) {
    Index at_a = index, at_b = index;
    double sum = 0;
    const size_t row = index.size() - 2, column = index.size() - 1;
    for (int64_t j = 0; j < k; ++j) {
      at_a[row] = ta ? j : index[row];
      at_a[column] = ta ? index[row] : j;
      at_b[row] = tb ? index[column] : j;
      at_b[column] = tb ? j : index[column];
      sum += AtBroadcast(wide_a, at_a) * AtBroadcast(wide_b, at_b);
    }
    call.out->values[i++] = sum;
  });
}

void MatmulNbits(const RefCall& call) {
  const RefTensor &a = call.arg(0), &b = call.arg(1);
  const int64_t n = b.type.dims[0].value(), blocks = b.type.dims[1].value(), bytes = b.type.dims[2].value();
  const int64_t k = a.type.Shape().back(), bits = call.attrs.Int("bits"), each = 8 / bits;
  const bool has_zero = call.args.size() > 3;
  for (size_t i = 0; i < call.out->values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / n, column = static_cast<int64_t>(i) % n;
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t block = column * blocks + j / (bytes * each);
      const int64_t byte = static_cast<int64_t>(b.values[column * blocks * bytes + j / each]);
      const int64_t number = (byte >> (j % each * bits)) & ((1 << bits) - 1);
      const double zero = has_zero ? call.arg(3).values[block] : static_cast<double>(1 << (bits - 1));
      sum += a.values[row * k + j] * (static_cast<double>(number) - zero) * call.arg(2).values[block];
    }
    call.out->values[i] = sum;
  }
}

void GatherMatmul(const RefCall& call) {
  const RefTensor &a = call.arg(0), &b = call.arg(1), &which = call.arg(2);
  const Shape out = call.out->type.Shape();
  const int64_t k = a.type.Shape()[1], n = out[1], matrices = b.type.Shape()[0];
  const bool transposed = call.attrs.Bool("transpose_b");
  for (int64_t row = 0; row < out[0]; ++row) {
    int64_t matrix = static_cast<int64_t>(which.values[row]);
    matrix = std::clamp<int64_t>(matrix < 0 ? matrix + matrices : matrix, 0, matrices - 1);
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = transposed ? column * k + j : j * n + column;
        sum += a.values[row * k + j] * b.values[matrix * k * n + at];
      }
      call.out->values[row * n + column] = sum;
    }
  }
}

struct Windows {
  explicit Windows(const ir::Attrs& attrs)
      : strides(attrs.Ints("strides")), dilations(attrs.Ints("dilations")), pads(attrs.Ints("pads")) {}
  // Where element `tap` of the window at `out` lies in the input, by spatial axis.
  int64_t At(int axis, int64_t out, int64_t tap) const {
    return out * strides[axis] + tap * dilations[axis] - pads[axis];
  }
  Shape strides, dilations, pads;
};

void Conv(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape(), w = call.arg(1).type.Shape(), out = call.out->type.Shape();
  const Windows windows(call.attrs);
  const int64_t m_per_group = w[0] / call.attrs.Int("groups");
  const Shape taps(w.begin() + 1, w.end());                                // channel, then the window
  const double zero = static_cast<double>(call.attrs.IntOr("x_zero", 0));  // of integers
  int64_t i = 0;
  ForEach(out, [&](const Index& at) {
    double sum = call.args.size() > 2 ? call.arg(2).values[at[1]] : 0;
    const int64_t first_channel = at[1] / m_per_group * w[1];
    ForEach(taps, [&](const Index& tap) {
      Index from = {at[0], first_channel + tap[0]};
      Index weight = {at[1]};
      weight.insert(weight.end(), tap.begin(), tap.end());
      for (size_t s = 0; s + 2 < x.size(); ++s) {
        from.push_back(windows.At(static_cast<int>(s), at[s + 2], tap[s + 1]));
        if (from.back() < 0 || from.back() >= x[s + 2]) return;
      }
      sum += (call.arg(0).values[Offset(x, from)] - zero) * call.arg(1).values[Offset(w, weight)];
    });
    call.out->values[i++] = sum;
  });
}

// Every input element spreads over a window of the result.
void ConvTranspose(const RefCall& call) {
  const Shape x = call.arg(0).type.Shape(), w = call.arg(1).type.Shape(), out = call.out->type.Shape();
  const Windows windows(call.attrs);
  const int64_t groups = call.attrs.Int("groups"), c_per_group = x[1] / groups;
  int64_t i = 0;
  ForEach(out, [&](const Index& at) { call.out->values[i++] = call.args.size() > 2 ? call.arg(2).values[at[1]] : 0; });
  i = 0;
  const Shape taps(w.begin() + 1, w.end());
  ForEach(x, [&](const Index& at) {
    const double value = call.arg(0).values[i++];
    ForEach(taps, [&](const Index& tap) {
      Index to = {at[0], at[1] / c_per_group * w[1] + tap[0]};
      Index weight = {at[1]};
      weight.insert(weight.end(), tap.begin(), tap.end());
      for (size_t s = 0; s + 2 < x.size(); ++s) {
        to.push_back(windows.At(static_cast<int>(s), at[s + 2], tap[s + 1]));
        if (to.back() < 0 || to.back() >= out[s + 2]) return;
      }
      call.out->values[Offset(out, to)] += value * call.arg(1).values[Offset(w, weight)];
    });
  });
}

RefOp Pool(bool average) {
  return [average](const RefCall& call) {
    const Shape x = call.arg(0).type.Shape();
    const Shape& kernel = call.attrs.Ints("kernel");
    const Windows windows(call.attrs);
    const bool include = average && call.attrs.BoolOr("count_include_pad", false);
    int64_t i = 0;
    ForEach(call.out->type.Shape(), [&](const Index& at) {
      double sum = 0, most = -INFINITY, count = 0;
      ForEach(kernel, [&](const Index& tap) {
        Index from = {at[0], at[1]};
        bool inside = true, in_pads = true;
        for (size_t s = 0; s < kernel.size(); ++s) {
          from.push_back(windows.At(static_cast<int>(s), at[s + 2], tap[s]));
          inside &= from.back() >= 0 && from.back() < x[s + 2];
          in_pads &= from.back() < x[s + 2] + windows.pads[s + kernel.size()];
        }
        if (include ? in_pads : inside) ++count;
        if (!inside) return;
        const double value = call.arg(0).values[Offset(x, from)];
        sum += value;
        most = std::isnan(value) || std::isnan(most) ? NAN : std::max(most, value);
      });
      call.out->values[i++] = average ? sum / count : most;
    });
  };
}

}  // namespace

void AddContractionOps(std::map<std::string, RefOp>* ops) {
  (*ops)["matmul"] = Matmul;
  (*ops)["conv"] = Conv;
  (*ops)["matmul_integer"] = Matmul;
  (*ops)["matmul_nbits"] = MatmulNbits;
  (*ops)["gather_matmul"] = GatherMatmul;
  (*ops)["conv_integer"] = Conv;
  (*ops)["conv_transpose"] = ConvTranspose;
  (*ops)["max_pool"] = Pool(false);
  (*ops)["avg_pool"] = Pool(true);
}

}  // namespace inlay::backend::testing
