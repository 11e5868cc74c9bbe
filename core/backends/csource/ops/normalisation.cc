// softmax, log_softmax, layer_norm: the argument is read once, a row (or a strip of columns) stays in the cache.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/lane_fold.h"
#include "core/backends/csource/op.h"

namespace inlay::csource {
namespace {

using ir::DType;

Expr Maximum(DType dtype, const Expr& a, const Expr& b) {
  return Call(absl::StrCat("inlay_maximum_", std::string(ir::Name(dtype))), {a, b});
}
Expr Exp(DType dtype, const Expr& x) { return Call(absl::StrCat("inlay_exp_", std::string(ir::Name(dtype))), {x}); }
Expr Sum(const Expr& a, const Expr& b) { return a + b; }

void Assign(KernelEmitter& e, const Expr& to, const Expr& value) { e.c().Line(to.text, " = ", value.text, ";"); }

// A row of `n` values that belongs to this task.
Expr Row(KernelEmitter& e, DType dtype, int64_t n) { return e.Scratch(StorageType(dtype), n * ir::ByteSize(dtype)); }

// Softmax over n values, of which value(j) is the j-th, kept in `row`; `store` gets each result.
void SoftmaxRow(KernelEmitter& e, DType dtype, bool log, int64_t n, const Expr& row,
                const std::function<Expr(const Expr&)>& value,
                const std::function<void(const Expr&, const Expr&)>& store) {
  LaneFold most(&e, dtype, n, Number(dtype, -INFINITY),
                [&](const Expr& a, const Expr& b) { return Maximum(dtype, a, b); });
  most.Run(n, [&](const Expr& j) {
    const Expr x = value(j);
    Assign(e, At(row, j), x);
    return x;
  });
  const Expr max = most.Total();
  LaneFold sum(&e, dtype, n, Number(dtype, 0), Sum);
  sum.Run(n, [&](const Expr& j) {
    const Expr shifted = At(row, j) - max;
    if (log) {
      const Expr kept = e.Let(StorageType(dtype), shifted);
      Assign(e, At(row, j), kept);
      return Exp(dtype, kept);
    }
    const Expr power = e.Let(StorageType(dtype), Exp(dtype, shifted));
    Assign(e, At(row, j), power);
    return power;
  });
  const Expr total = sum.Total();
  const Expr last = e.Let(StorageType(dtype), log ? CallMath("log", dtype, {total}) : Number(dtype, 1) / total);
  e.For(0, n, [&](const Expr& j) { store(j, log ? At(row, j) - last : At(row, j) * last); }, 1, true);
}

void Softmax(KernelEmitter& e, const Node& node) {
  const Tensor& x = node.in(0);
  const DType dtype = ComputeDType(x.dtype);
  const int axis = static_cast<int>(node.attrs().Int("axis"));
  const int64_t n = x.shape[axis];
  // Rows along an axis that is not the last have gaps: the row in scratch has none.
  const Expr row = Row(e, dtype, n);
  std::vector<DimGroup> others;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != axis && x.shape[d] != 1) others.push_back({d, d + 1, x.shape[d]});
  }
  e.Units(x.size() / n, static_cast<double>(20 * n), [&](const Expr& unit) {
    Index at(x.rank(), Expr(0));
    e.Unravel(unit, others, &at);
    SoftmaxRow(
        e, dtype, node.op == "log_softmax", n, row,
        [&](const Expr& j) {
          at[axis] = j;
          return e.Value(x, at);
        },
        [&](const Expr& j, const Expr& y) {
          at[axis] = j;
          e.Store(node.out(), at, y);
        });
  });
}

// Mean, then the variance about it, then the result: three passes over a row in the cache.
void LayerNorm(KernelEmitter& e, const Node& node) {
  const Tensor &x = node.in(0), &scale = node.in(1), &bias = node.in(2);
  const DType dtype = ComputeDType(x.dtype);
  const int axis = static_cast<int>(node.attrs().Int("axis"));
  const int64_t n = Product(x.shape, axis, x.rank());
  const Expr row = Row(e, dtype, n);
  std::vector<DimGroup> inner =
      e.has_tail() ? Singles(x.shape, axis, x.rank()) : e.Groups({&x, &scale, &bias}, x.shape, axis, x.rank());
  const DimGroup last = inner.back();
  inner.pop_back();
  // The place in the row of an index within the last group.
  auto place = [&](const Index& at, const Expr& j) {
    Expr offset = j;
    for (const DimGroup& group : inner)
      offset = offset + at[group.end - 1] * Expr(Product(x.shape, group.end, x.rank()));
    return offset;
  };
  e.Units(x.size() / n, static_cast<double>(8 * n), [&](const Expr& unit) {
    Index at(x.rank(), Expr(0));
    e.Unravel(unit, Singles(x.shape, 0, axis), &at);
    LaneFold sum(&e, dtype, last.extent, Number(dtype, 0), Sum);
    e.Nest(inner, &at, false, [&] {
      sum.Run(last.extent, [&](const Expr& j) {
        at[last.end - 1] = j;
        const Expr value = e.Value(x, at);
        Assign(e, At(row, place(at, j)), value);
        return value;
      });
    });
    const Expr count = Number(dtype, static_cast<double>(n));
    const Expr mean = e.Let(StorageType(dtype), sum.Total() / count);
    LaneFold squares(&e, dtype, n, Number(dtype, 0), Sum);
    squares.Run(n, [&](const Expr& j) {
      const Expr distance = e.Let(StorageType(dtype), At(row, j) - mean);
      return distance * distance;
    });
    const Expr epsilon = Number(dtype, node.attrs().FloatOr("epsilon", 1e-5));
    const Expr variance = squares.Total() / count;
    const Expr factor = e.Let(StorageType(dtype), Number(dtype, 1) / CallMath("sqrt", dtype, {variance + epsilon}));
    std::vector<DimGroup> all = inner;
    all.push_back(last);
    e.Nest(all, &at, true, [&] {
      const Expr normal = (At(row, place(at, at[last.end - 1])) - mean) * factor;
      e.Store(node.out(), at, normal * e.BroadcastValue(scale, at) + e.BroadcastValue(bias, at));
    });
  });
}

// ONNX's: x / (bias + alpha / size * sum of squares over `size` channels around)^beta.
void Lrn(KernelEmitter& e, const Node& node) {
  const Tensor& x = node.in(0);
  const DType dtype = ComputeDType(x.dtype);
  const int64_t size = node.attrs().Int("size"), channels = x.shape[1];
  const int64_t before = (size - 1) / 2, after = size - 1 - before;
  std::vector<DimGroup> outer = {{0, 1, x.shape[0]}, {1, 2, channels}};
  const std::vector<DimGroup> inner =
      e.has_tail() ? Singles(x.shape, 2, x.rank()) : e.Groups({&x}, x.shape, 2, x.rank());
  const Expr beta = Number(dtype, node.attrs().FloatOr("beta", 0.75)),
             bias = Number(dtype, node.attrs().FloatOr("bias", 1));
  const Expr alpha = Number(dtype, node.attrs().FloatOr("alpha", 1e-4) / static_cast<double>(size));
  e.Units(x.shape[0] * channels, static_cast<double>(Product(x.shape, 2, x.rank()) * (size + 40)),
          [&](const Expr& unit) {
            Index at(x.rank(), Expr(0));
            e.Unravel(unit, outer, &at);
            const Expr c = at[1];
            const Expr begin = e.LetIndex(Call("inlay_clamp", {c - Expr(before), 0, channels}));
            const Expr end = e.LetIndex(Call("inlay_clamp", {c + Expr(after + 1), 0, channels}));
            e.Nest(inner, &at, false, [&] {
              const Expr sum = Expr::Name(e.Fresh("sum"));
              e.c().Line(StorageType(dtype), " ", sum.text, " = 0;");
              e.For(begin, end, [&](const Expr& k) {
                at[1] = k;
                const Expr v = e.Value(x, at);
                e.c().Line(sum.text, " += ", v.text, " * ", v.text, ";");
              });
              at[1] = c;
              const Expr power = Call(dtype == DType::kF32 ? "powf" : "pow", {bias + alpha * sum, beta});
              e.Store(node.out(), at, e.Value(x, at) / power);
            });
          });
}

}  // namespace

void AddNormalisation(OpTable* ops) {
  for (const char* name : {"softmax", "log_softmax"}) (*ops)[name].kernel = Softmax;
  (*ops)["layer_norm"].kernel = LayerNorm;
  (*ops)["layer_norm"].use = [](const Node&, int arg) { return arg == 0 ? Use::kOnce : Use::kMany; };
  (*ops)["lrn"].kernel = Lrn;
  (*ops)["lrn"].use = [](const Node&, int) { return Use::kMemory; };
}

}  // namespace inlay::csource
