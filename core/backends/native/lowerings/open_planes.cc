#include "core/backends/native/lowerings/open_planes.h"

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/native/conv_planes.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/windows.h"
#include "core/ir/dim_expr.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

constexpr int64_t kMaxUnrolledTaps = 8;
constexpr int64_t kNominalSide = 224;

// A row of x with its padding, split by the stride: element q of phase p is x[start + q * stride + p] where that
// exists, else zero.
struct PaddedRow {
  std::vector<Value> to;  // by phase: all of them, or the first
  Type stored, accumulator;
  int64_t lanes = 0, stride = 1;
  Value start, columns, width;  // columns: of x; width: of a phase
};

// `exists`: else all of it is padding, and x is not read.
void EmitPaddedRow(KernelBuilder& kb, const PaddedRow& row, Value exists, Value x) {
  const int64_t stride = row.stride, lanes = row.lanes;
  const Value width = row.width, zero = kb.Zero(row.accumulator);
  auto pad = [&](Value to, Value begin, Value end) {
    kb.For(begin, end, 1, [&](Value q) { kb.Store(zero, kb.At(to, q, row.accumulator)); });
  };
  auto pad_all = [&] {
    const Value vector = kb.Zero(KernelBuilder::Vector(lanes, row.accumulator));
    const Value whole = kb.Mul(kb.Div(width, lanes), lanes);
    for (Value to : row.to) {
      kb.For(kb.Int(0), whole, lanes, [&](Value q) { kb.Store(vector, kb.At(to, q, row.accumulator)); });
      pad(to, whole, width);
    }
  };
  // How many elements of a phase there are before x's element `end`, at most all.
  auto before = [&](Value end, int64_t phase) {
    const Value there = kb.Max(kb.Add(kb.Sub(end, row.start), stride - 1 - phase), kb.Int(0));
    return kb.Min(kb.Div(there, stride), width);
  };
  auto copy = [&] {
    // Vectors from `first` on whose elements are all there; the last one begins earlier.
    const Value first = before(kb.Int(0), 0);
    Value vectors_end = first;
    if ((stride & (stride - 1)) == 0 && stride <= lanes) {
      const Value there = kb.Div(kb.Max(kb.Sub(row.columns, row.start), kb.Int(0)), stride);
      const Value end = kb.Min(there, width), last = kb.Sub(end, kb.Int(lanes));
      vectors_end = kb.Select(kb.Less(last, first), first, end);
      kb.For(first, vectors_end, lanes, [&](Value at) {
        const Value q = kb.Min(at, last);
        const Value from = kb.At(x, kb.Add(kb.Mul(q, stride), row.start), row.stored);
        std::vector<Value> run;
        for (int64_t i = 0; i < stride; ++i) {
          run.push_back(kb.Load(KernelBuilder::Vector(lanes, row.stored), kb.At(from, i * lanes, row.stored)));
        }
        run = Deinterleave(kb, run);
        for (size_t phase = 0; phase < row.to.size(); ++phase) {
          kb.Store(kb.Widen(run[phase], row.accumulator), kb.At(row.to[phase], q, row.accumulator));
        }
      });
    }
    for (size_t phase = 0; phase < row.to.size(); ++phase) {
      const Value to = row.to[phase], begin = before(kb.Int(0), phase);
      const Value end = kb.Max(begin, before(row.columns, phase));
      auto elements = [&](Value from, Value until) {
        kb.For(from, until, 1, [&](Value q) {
          const Value at = kb.Add(kb.Add(kb.Mul(q, stride), row.start), static_cast<int64_t>(phase));
          const Value element = kb.Load(row.stored, kb.At(x, at, row.stored));
          kb.Store(kb.Widen(element, row.accumulator), kb.At(to, q, row.accumulator));
        });
      };
      pad(to, kb.Int(0), begin);
      elements(begin, kb.Min(first, end));
      elements(kb.Max(begin, vectors_end), end);
      pad(to, kb.Max(end, vectors_end), width);
    }
  };
  kb.If(exists, copy, pad_all);
}

}  // namespace

OpenPlanes::OpenPlanes(const Node& conv) {
  const Tensor &x = conv.in(0), &result = conv.out();
  const Windows windows(*conv.attrs, Numbers(conv.in(1), 2));
  in = out = padded = {1, 1, 1};
  const int spatial = result.rank() - 2;
  for (int i = 0; i < spatial; ++i) {
    const int axis = 3 - spatial + i;
    in[axis] = x.dims[i + 2];
    out[axis] = result.dims[i + 2];
    kernel[axis] = windows.kernel[i];
    strides[axis] = windows.strides[i];
    dilations[axis] = windows.dilations[i];
    pads[axis] = windows.pads_begin[i];
    are_images_ &= windows.strides[i] == 1 && windows.pads_begin[i] == 0 && windows.pads_end[i] == 0;
  }
  for (int axis = 0; axis < 3; ++axis) {
    phases[axis] = kernel[axis] == 1 ? 1 : strides[axis];
    padded[axis] = out[axis] + (kernel[axis] - 1) * dilations[axis] / strides[axis];
  }
  are_images_ &= PixelsAdjoin();
}

double OpenPlanes::NominalOut(int axis) const {
  const Extent& e = out[axis];
  if (e.is_static()) return static_cast<double>(e.value());
  if (e.kind() != Extent::Kind::kPolynomial) return kNominalSide;
  std::map<std::string, int64_t> values;
  for (const std::string& name : ir::PlainNames(e.polynomial())) values[name] = kNominalSide;
  const absl::StatusOr<int64_t> side = ir::EvaluateDim(e.polynomial(), values);
  return static_cast<double>(side.ok() ? *side : kNominalSide);
}

bool OpenPlanes::PixelsAdjoin() const {
  const bool rows_adjoin = padded[2] == out[2], slices_adjoin = rows_adjoin && padded[1] == out[1];
  return (out[0] == Extent(1) || slices_adjoin) && (out[0] * out[1] == Extent(1) || rows_adjoin);
}

Value OpenPlanes::TapOffset(KernelBuilder& kb, Value d, Value h, Value w) const {
  const Value tap[3] = {d, h, w};
  Value phase = kb.Int(0), at = kb.Int(0);
  for (int i = 0; i < 3; ++i) {
    const Value coordinate = kb.Mul(tap[i], dilations[i]);
    phase = kb.Mul(phase, phases[i]);
    if (phases[i] > 1) phase = kb.Add(phase, kb.Rem(coordinate, strides[i]));
    at = kb.Add(kb.Mul(at, padded[i]), kb.Div(coordinate, strides[i]));
  }
  return kb.Add(kb.Mul(phase, phase_elements()), at);
}

void OpenPlanes::ForTaps(KernelBuilder& kb, Value channels,
                         const std::function<void(Value step, Value offset)>& body) const {
  kb.For(kb.Int(0), channels, 1, [&](Value c) {
    const Value plane = kb.Mul(c, plane_elements());
    kb.For(kernel[0], [&](Value d) {
      kb.For(kernel[1], [&](Value h) {
        const Value row = kb.Add(kb.Mul(kb.Add(kb.Mul(c, kernel[0]), d), kernel[1]), h);
        auto tap = [&](Value w) { body(kb.Add(kb.Mul(row, kernel[2]), w), kb.Add(plane, TapOffset(kb, d, h, w))); };
        if (kernel[2] > kMaxUnrolledTaps) return kb.For(kernel[2], tap);
        for (int64_t w = 0; w < kernel[2]; ++w) tap(kb.Int(w));
      });
    });
  });
}

Value OpenPlanes::RowOffset(KernelBuilder& kb, Value row) const {
  if (out[0] == Extent(1)) return kb.Mul(row, padded[2]);
  const Value slice = kb.Div(row, out[1]);
  return kb.Mul(kb.Add(kb.Mul(slice, padded[1]), kb.Rem(row, out[1])), padded[2]);
}

Buffer OpenPlanes::Emit(FunctionEmitter& f, const Tensor& x, const GemmTypes& types, int64_t lanes,
                        int64_t slack) const {
  if (are_images_) return f.BufferOf(x);
  const Extent planes = x.dims[0] * x.dims[1];
  const Buffer copy = f.Temporary((planes * plane_elements() + slack) * types.accumulator_bytes);
  const Extent rows = padded[0] * padded[1] * (phases[0] * phases[1]);
  f.ParallelEach(planes * rows, Cycles(padded[2]) * (1.0 * phases[2] / lanes) + 20, [&](Kernel& k, Value item) {
    KernelBuilder& kb = k.o;
    const Value plane = kb.Div(item, rows), row = kb.Rem(item, rows);
    const Value h = kb.Rem(row, padded[1]), slice = kb.Div(row, padded[1]);
    const Value d = kb.Rem(slice, padded[0]), phase = kb.Div(slice, padded[0]);
    auto coordinate = [&](Value q, int axis, Value phase) {
      return kb.Add(kb.Add(kb.Mul(q, strides[axis]), phase), -pads[axis]);
    };
    const Value in_d = coordinate(d, 0, kb.Div(phase, phases[1])), in_h = coordinate(h, 1, kb.Rem(phase, phases[1]));
    const Value inside = kb.And(kb.IsWithin(in_d, in[0]), kb.IsWithin(in_h, in[1]));
    PaddedRow out;
    out.stored = types.Stored(k.o);
    out.accumulator = types.Accumulator(k.o);
    out.lanes = lanes;
    out.stride = strides[2];
    out.start = kb.Int(-pads[2]);
    out.columns = kb.Int(in[2]);
    out.width = kb.Int(padded[2]);
    const Value first = kb.Mul(kb.Add(kb.Mul(plane, phases[0] * phases[1]), phase), phase_elements() * phases[2]);
    const Value line = kb.Add(first, kb.Mul(kb.Add(kb.Mul(d, padded[1]), h), padded[2]));
    const Value to = kb.At(k.Pointer(copy), line, out.accumulator);
    for (int64_t i = 0; i < phases[2]; ++i) out.to.push_back(kb.At(to, phase_elements() * i, out.accumulator));
    const Value number = kb.Add(kb.Mul(kb.Add(kb.Mul(plane, in[0]), in_d), in[1]), in_h);
    EmitPaddedRow(kb, out, inside, kb.At(k.Pointer(x), kb.Mul(number, in[2]), out.stored));
  });
  return copy;
}

}  // namespace inlay::native
