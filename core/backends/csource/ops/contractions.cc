// matmul, conv, conv_transpose: descriptions of a Gemm; convolutions with few channels a group, and gather_matmul, go
// row by row instead.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/backends/csource/gemm.h"
#include "core/backends/csource/op.h"
#include "core/backends/csource/windows.h"

namespace inlay::csource {
namespace {

using ir::DType;

struct Matrix {
  Shape shape;  // with rank 1 promoted
  bool transposed = false;
  int64_t row_stride = 0, column_stride = 0;
};

Matrix MatrixOf(const Tensor& t, bool is_a, bool transposed) {
  Matrix m;
  m.shape = t.shape;
  if (t.rank() == 1) {
    m.shape.insert(is_a ? m.shape.begin() : m.shape.end(), 1);
    transposed = false;
  }
  m.transposed = transposed;
  const int64_t last = m.shape.back();
  m.row_stride = transposed ? 1 : last;
  m.column_stride = transposed ? last : 1;
  return m;
}

int64_t Extent(const Matrix& m, int from_end) {
  const int64_t other = from_end == 1 ? 2 : 1;
  return m.shape[m.shape.size() - (m.transposed ? other : from_end)];
}

// The element of a matrix's batch: leading indices that broadcast to those of the result.
Index BatchIndex(const Matrix& m, const Index& batch) {
  Index index;
  const size_t own = m.shape.size() - 2;
  for (size_t i = 0; i < own; ++i) index.push_back(m.shape[i] == 1 ? Expr(0) : batch[batch.size() - own + i]);
  return index;
}

void Matmul(KernelEmitter& e, const Node& node) {
  const Tensor &a = node.in(0), &b = node.in(1), &out = node.out();
  const Matrix ma = MatrixOf(a, true, node.attrs().BoolOr("transpose_a", false));
  const Matrix mb = MatrixOf(b, false, node.attrs().BoolOr("transpose_b", false));
  const int batch_rank = out.rank() - (a.rank() > 1) - (b.rank() > 1);
  auto batch_index = std::make_shared<Index>(batch_rank, Expr(0));
  Gemm g;
  g.dtype = out.dtype;
  g.batch = Product(out.shape, 0, batch_rank);
  g.m = Extent(ma, 2);
  g.n = Extent(mb, 1);
  g.k = {{Extent(ma, 1), ma.column_stride}};
  g.a = &a;
  g.a_row_stride = ma.row_stride;
  g.begin_batch = [&e, &out, batch_index, batch_rank](const Expr& batch) {
    e.Unravel(batch, Singles(out.shape, 0, batch_rank), batch_index.get());
  };
  g.a_offset = [&](const Expr&) {
    const Shape strides = StridesOf(ma.shape);
    Expr offset = 0;
    const Index index = BatchIndex(ma, *batch_index);
    for (size_t i = 0; i < index.size(); ++i) offset = offset + index[i] * Expr(strides[i]);
    return offset;
  };
  g.b = [&](const std::vector<Expr>& k, const Expr&, const Expr& column) {
    Index index = BatchIndex(mb, *batch_index);
    if (b.rank() == 1) return e.Value(b, {k[0]});
    index.push_back(mb.transposed ? column : k[0]);
    index.push_back(mb.transposed ? k[0] : column);
    return e.Value(b, index);
  };
  g.store = [&](const Expr& row, const Expr& column, const Expr& value) {
    Index at = *batch_index;
    if (a.rank() > 1) at.push_back(row);
    if (b.rank() > 1) at.push_back(column);
    e.Store(out, at, value);
  };
  EmitGemm(e, g);
}

// Weights that are quantised in blocks, widened as they are packed.
void MatmulNbits(KernelEmitter& e, const Node& node) {
  const Tensor &a = node.in(0), &b = node.in(1), &out = node.out();
  const int64_t bits = node.attrs().Int("bits"), each = 8 / bits, block = b.shape[2] * each, k = a.shape.back();
  const Shape rows(a.shape.begin(), a.shape.end() - 1);
  Gemm g;
  g.dtype = out.dtype;
  g.m = Product(rows, 0, static_cast<int>(rows.size()));
  g.n = b.shape[0];
  g.k = {{k, 1}};
  g.a = &a;
  g.a_row_stride = k;
  g.a_offset = [](const Expr&) { return Expr(0); };
  g.begin_batch = [](const Expr&) {};
  g.b = [&](const std::vector<Expr>& k, const Expr&, const Expr& column) {
    const Index of_block = {column, k[0] / Expr(block)};
    const Expr byte = e.Load(b, {column, of_block[1], k[0] % Expr(block) / Expr(each)});
    const Expr number = Bits('&', ShiftRight(byte, k[0] % Expr(each) * Expr(bits)), Expr((1 << bits) - 1));
    Expr zero = Number(DType::kF32, static_cast<double>(1 << (bits - 1)));
    if (node.inputs.size() > 3) zero = CastTo("float", e.Value(node.in(3), of_block));
    return (CastTo("float", number) - zero) * e.Value(node.in(2), of_block);
  };
  g.store = [&](const Expr& row, const Expr& column, const Expr& value) {
    Index at(out.rank(), Expr(0));
    e.Unravel(row, Singles(out.shape, 0, out.rank() - 1), &at);
    at.back() = column;
    e.Store(out, at, value);
  };
  EmitGemm(e, g);
}

// Strips of a row's results, in accumulators side by side.
void GatherMatmul(KernelEmitter& e, const Node& node) {
  constexpr int64_t kStrip = 256;
  const Tensor &a = node.in(0), &b = node.in(1), &out = node.out();
  const bool transposed = node.attrs().BoolOr("transpose_b", false);
  const int64_t matrices = b.shape[0], k = a.shape[1], n = out.shape[1], width = std::min(n, kStrip);
  const int64_t strips = (n + kStrip - 1) / kStrip;
  const DType dtype = ComputeDType(out.dtype);
  e.Units(out.shape[0] * strips, 2.0 * static_cast<double>(k * width), [&](const Expr& unit) {
    const Expr row = e.LetIndex(unit / Expr(strips)), begin = e.LetIndex(unit % Expr(strips) * Expr(kStrip));
    const Expr columns = e.LetIndex(Smaller(Expr(n) - begin, Expr(width)));
    const Expr matrix = e.LetIndex(Call("inlay_index", {e.Value(node.in(2), {row}), matrices}));
    const Expr acc = e.Array("acc", dtype, width);
    e.For(0, columns, [&](const Expr& j) { e.c().Line(At(acc, j).text, " = ", Number(dtype, 0).text, ";"); });
    e.For(0, k, [&](const Expr& step) {
      const Expr factor = e.Value(a, {row, step});
      e.For(
          0, columns,
          [&](const Expr& j) {
            const Expr column = e.LetIndex(begin + j);
            const Expr weight = e.Value(b, transposed ? Index{matrix, column, step} : Index{matrix, step, column});
            e.c().Line(At(acc, j).text, " += ", (factor * weight).text, ";");
          },
          1, true);
    });
    e.For(0, columns, [&](const Expr& j) { e.Store(out, {row, e.LetIndex(begin + j)}, At(acc, j)); });
  });
}

Use UseOfMatmul(const Node& node, int arg) {
  if (arg == 0) return Use::kMemory;
  return node.out().size() / node.in(1).size() > 1 && node.out().rank() > node.in(1).rank() ? Use::kMany : Use::kOnce;
}

// Both kinds of convolution.
class Conv {
 public:
  Conv(KernelEmitter& e, const Node& node, bool transposed)
      : e_(e),
        node_(node),
        transposed_(transposed),
        x_(node.in(0)),
        w_(node.in(1)),
        out_(node.out()),
        windows_(WindowsOf(node.attrs(), Shape(w_.shape.begin() + 2, w_.shape.end()))),
        groups_(node.attrs().IntOr("groups", 1)),
        zero_(node.attrs().IntOr("x_zero", 0)),
        channels_(x_.shape[1] / groups_),
        filters_(out_.shape[1] / groups_) {}

  void Emit() {
    const int64_t width = windows_.kernel.back();
    const bool few = filters_ < 3 && width <= 16 && out_.shape.back() <= 2048;
    few && !transposed_ ? EmitRows() : EmitGemmOf();
  }

 private:
  Expr WithBias(const Expr& filter, const Expr& value) {
    if (node_.inputs.size() < 3) return value;
    return value + e_.Value(node_.in(2), {filter});
  }

  // x at spatial position low + tap * dilation where that is inside, else 0.
  Expr Tap(const Expr& image, const Expr& channel, const std::vector<Expr>& places, const Expr& inside) {
    Index at = {image, channel};
    at.insert(at.end(), places.begin(), places.end());
    const Expr value = LessZero(e_.Load(x_, at));
    return inside.text.empty() ? value : Select(inside, value, Number(x_.dtype, 0));
  }

  Expr LessZero(const Expr& element) const { return zero_ == 0 ? element : element - Expr(zero_); }

  Expr Inside(const Expr& place, int d) { return CastTo("inlay_uint", place) < Expr(x_.shape[d + 2]); }

  bool NeverPadded(int d) const {
    const int64_t reach = (windows_.kernel[d] - 1) * windows_.dilations[d];
    return windows_.pads[d] == 0 && (out_.shape[d + 2] - 1) * windows_.strides[d] + reach < x_.shape[d + 2];
  }

  // im2col: the columns are output positions; where each window begins is worked out once a strip.
  void EmitGemmOf() {
    const int rank = windows_.rank();
    const int64_t taps = windows_.taps();
    const std::vector<DimGroup> spatial = Singles(out_.shape, 2, rank + 2);
    Gemm g;
    g.dtype = out_.dtype;
    g.batch = x_.shape[0] * groups_;
    g.m = filters_;
    g.n = Product(out_.shape, 2, rank + 2);
    g.k = {{channels_, transposed_ ? filters_ * taps : taps}};
    int64_t stride = taps;
    for (int64_t extent : windows_.kernel) {
      stride /= extent;
      g.k.push_back({extent, stride});
    }
    g.a = &w_;
    g.a_row_stride = transposed_ ? taps : channels_ * taps;
    g.begin_batch = [&](const Expr& batch) {
      image_ = e_.LetIndex(batch / Expr(groups_));
      group_ = e_.LetIndex(batch % Expr(groups_));
    };
    g.a_offset = [&](const Expr&) { return group_ * Expr(channels_ * filters_ * taps); };
    std::vector<Expr> lows;
    g.begin_strip = [&](int64_t width) {
      lows.clear();
      for (int d = 0; d < rank; ++d) {
        lows.push_back(Expr::Name(e_.Fresh("low")));
        e_.c().Line(kIndexType, " ", lows.back().text, "[", width, "];");
      }
    };
    g.column_begins = [&](const Expr& j, const Expr& column) {
      Index at(rank + 2, Expr(0));
      e_.Unravel(column, spatial, &at);
      for (int d = 0; d < rank; ++d) {
        const Expr low = transposed_ ? at[d + 2] + Expr(windows_.pads[d])
                                     : at[d + 2] * Expr(windows_.strides[d]) - Expr(windows_.pads[d]);
        e_.c().Line(At(lows[d], j).text, " = ", low.text, ";");
      }
    };
    g.b = [&](const std::vector<Expr>& k, const Expr& j, const Expr&) {
      std::vector<Expr> places;
      Expr inside;
      auto require = [&](const Expr& condition) { inside = inside.text.empty() ? condition : inside && condition; };
      for (int d = 0; d < rank; ++d) {
        const Expr shift = k[d + 1] * Expr(windows_.dilations[d]);
        if (transposed_) {
          const Expr sum = e_.LetIndex(At(lows[d], j) - shift);
          places.push_back(e_.LetIndex(sum / Expr(windows_.strides[d])));
          if (windows_.strides[d] > 1) require(sum % Expr(windows_.strides[d]) == Expr(0));
          require(sum >= Expr(0)), require(Expr(x_.shape[d + 2]) > places[d]);
        } else {
          places.push_back(e_.LetIndex(At(lows[d], j) + shift));
          if (!NeverPadded(d)) require(Inside(places[d], d));
        }
      }
      const Expr channel = e_.LetIndex(group_ * Expr(channels_) + k[0]);
      return Tap(image_, channel, places, inside);
    };
    const bool merged = !e_.has_tail();
    g.store = [&](const Expr& row, const Expr& column, const Expr& value) {
      Index at(rank + 2, Expr(0));
      at[0] = image_;
      at[1] = e_.LetIndex(group_ * Expr(filters_) + row);
      if (merged) {
        at[rank + 1] = column;
      } else {
        const Tensor& root = e_.Root(out_);
        e_.Unravel(column, e_.TailGroups(root, 2, rank + 2), &at);
      }
      e_.Store(out_, at, WithBias(at[1], value));
    };
    EmitGemm(e_, g);
  }

  // A row of outputs at a time: each tap adds the part of a row of x that it meets. The bounds are numbers.
  void EmitRows() {
    const int rank = windows_.rank();
    const int64_t width = out_.shape.back(), stride = windows_.strides.back();
    const int64_t extent = x_.shape.back();
    const DType dtype = ComputeDType(out_.dtype);
    const std::vector<DimGroup> outer = Singles(out_.shape, 0, rank + 1);
    const double work = static_cast<double>(width * windows_.taps() * channels_) / 4;
    e_.Units(Product(out_.shape, 0, rank + 1), work, [&](const Expr& unit) {
      Index at(rank + 2, Expr(0));
      e_.Unravel(unit, outer, &at);
      const Expr group = e_.LetIndex(at[1] / Expr(filters_));
      const Expr acc = e_.Array("acc", dtype, width);
      const Expr bias = WithBias(at[1], Number(dtype, 0));
      const Expr start = e_.Let(StorageType(dtype), bias);
      e_.For(0, width, [&](const Expr& j) { e_.c().Line(At(acc, j).text, " = ", start.text, ";"); });
      e_.For(0, channels_, [&](const Expr& c) {
        Index from = {at[0], e_.LetIndex(group * Expr(channels_) + c)};
        Index weight = {at[1], c};
        OuterTaps(at, 0, &from, &weight, [&] {
          for (int64_t k = 0; k < windows_.kernel.back(); ++k) {
            const int64_t shift = k * windows_.dilations.back() - windows_.pads.back();
            const int64_t begin = shift >= 0 ? 0 : std::min(width, (-shift + stride - 1) / stride);
            const int64_t end = extent <= shift ? begin : std::min(width, (extent - shift + stride - 1) / stride);
            if (begin >= end) continue;
            Index here = weight;
            here.push_back(k);
            const Expr factor = e_.Value(w_, here);
            e_.For(
                begin, end,
                [&](const Expr& j) {
                  Index place = from;
                  place.push_back(e_.LetIndex(j * Expr(stride) + Expr(shift)));
                  e_.c().Line(At(acc, j).text, " += ", (factor * LessZero(e_.Value(x_, place))).text, ";");
                },
                1, true);
          }
        });
      });
      e_.For(
          0, width,
          [&](const Expr& j) {
            at[rank + 1] = j;
            e_.Store(out_, at, At(acc, j));
          },
          1, true);
    });
  }

  void OuterTaps(const Index& at, int d, Index* from, Index* weight, const std::function<void()>& body) {
    if (d + 1 == windows_.rank()) return body();
    const Expr low = e_.LetIndex(at[d + 2] * Expr(windows_.strides[d]) - Expr(windows_.pads[d]));
    const Expr first = e_.LetIndex(Call("inlay_first_tap", {low, windows_.dilations[d]}));
    const Expr last =
        e_.LetIndex(Call("inlay_last_tap", {low, windows_.dilations[d], windows_.kernel[d], x_.shape[d + 2]}));
    e_.For(first, last, [&](const Expr& k) {
      from->push_back(e_.LetIndex(low + k * Expr(windows_.dilations[d])));
      weight->push_back(k);
      OuterTaps(at, d + 1, from, weight, body);
      from->pop_back();
      weight->pop_back();
    });
  }

  KernelEmitter& e_;
  const Node& node_;
  const bool transposed_;
  const Tensor &x_, &w_, &out_;
  const Windows windows_;
  const int64_t groups_, zero_, channels_, filters_;
  Expr image_, group_;
};

}  // namespace

void AddContractions(OpTable* ops) {
  for (const char* name : {"matmul", "matmul_integer"}) {
    (*ops)[name].kernel = Matmul;
    (*ops)[name].use = UseOfMatmul;
  }
  (*ops)["matmul_nbits"].kernel = MatmulNbits;
  (*ops)["gather_matmul"].kernel = GatherMatmul;
  for (const char* name : {"matmul_nbits", "gather_matmul"}) {
    (*ops)[name].use = [](const Node&, int) { return Use::kMemory; };
  }
  for (const char* name : {"conv", "conv_integer"}) {
    (*ops)[name].kernel = [](KernelEmitter& e, const Node& node) { Conv(e, node, false).Emit(); };
  }
  (*ops)["conv_transpose"].kernel = [](KernelEmitter& e, const Node& node) { Conv(e, node, true).Emit(); };
  for (const char* name : {"conv", "conv_integer", "conv_transpose"}) {
    (*ops)[name].use = [](const Node&, int) { return Use::kMemory; };
  }
}

}  // namespace inlay::csource
