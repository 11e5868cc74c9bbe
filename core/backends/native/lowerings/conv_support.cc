#include "core/backends/native/lowerings/conv_support.h"

#include <utility>

#include "core/backends/native/conv_shape.h"

namespace inlay::native {

using mlir::Value;

std::vector<int64_t> Numbers(const Tensor& t, int first) {
  std::vector<int64_t> numbers;
  for (int i = first; i < t.rank(); ++i) numbers.push_back(t.dims[i].value());
  return numbers;
}

ConvShape ConvShapeOf(const Node& n, bool transposed) {
  Shape x = n.in(0).dims;
  if (!x[0].is_static()) x[0] = Extent(1);
  std::vector<int64_t> in;
  for (const Extent& extent : x) in.push_back(extent.value());
  return ConvShapeOf(*n.attrs, in, Numbers(n.in(1), 0), Numbers(n.out(), 1), transposed);
}

bool FlatPixels(FunctionEmitter& f, const Node& n, ShapeMap* shapes) {
  if (f.MergeDims(n, {1, 1, n.out().rank() - 2}, shapes)) return true;
  shapes->clear();
  return false;
}

namespace {

std::pair<Value, Value> ImageAndChannel(Ops& o, const Node& conv, int64_t groups, Value open_image, Value batch,
                                        Value row) {
  const int64_t channels = conv.out().dims[1].value() / groups;
  return {open_image ? open_image : o.Div(batch, groups), o.Add(o.Mul(o.Rem(batch, groups), channels), row)};
}

}  // namespace

Ahead PrefetchPixels(Kernel& k, const Node& n, const Core& core, int64_t groups, bool flat, Value open_image,
                     int64_t lanes, double bytes) {
  if (!flat || bytes <= static_cast<double>(LateImageBytes(core))) return nullptr;
  return [&k, &n, groups, open_image, lanes](KernelBuilder&, Value batch, Value row, Value column) {
    const auto [image, channel] = ImageAndChannel(k.o, n, groups, open_image, batch, row);
    k.PrefetchResult(n.out(), {image, channel, Index(column, 1)}, lanes);
  };
}

Epilogue StorePixels(Kernel& k, const Node& n, int64_t groups, bool flat, Value open_image) {
  return [&k, &n, groups, flat, open_image](KernelBuilder&, Value batch, Value row, Value column, Value acc) {
    Ops& o = k.o;
    const Tensor& out = n.out();
    const auto [image, channel] = ImageAndChannel(o, n, groups, open_image, batch, row);
    if (n.inputs.size() > 2) {
      Eval e(k, Ops::Lanes(acc));
      acc = o.AddF(acc, e.At(n.in(2), {channel}));
    }
    if (flat) {
      k.StoreResult(out, {image, channel, Index(column, Ops::Lanes(acc) == 1 ? 0 : 1)}, acc);
      return;
    }
    // A tail that broadcasts within the image: pixel by pixel.
    const Shape pixels(out.dims.begin() + 2, out.dims.end());
    for (int64_t lane = 0; lane < Ops::Lanes(acc); ++lane) {
      Indices at = {image, channel};
      for (const Index& i : Delinearise(o, o.Add(column, lane), pixels)) at.push_back(i);
      k.StoreResult(out, at, o.Extract(acc, lane));
    }
  };
}

Buffer PackGroups(FunctionEmitter& f, const Node& conv, const GemmTypes& types, int64_t elements, bool widened,
                  const std::function<void(Ops&, const StridedMatrix& from, Value to)>& pack) {
  const Tensor& w = conv.in(1);
  const int64_t groups = conv.attrs->IntOr("groups", 1), group = w.Elements().value() / groups;
  const int64_t steps = Product(w.dims, 1, w.rank()).value();
  const bool constant = f.IsConstantParam(w);
  const int64_t bytes = groups * elements * types.accumulator_bytes + f.cpu().core.vector_bytes;
  const Buffer packed = constant ? f.State(bytes) : f.Temporary(bytes);
  auto pack_group = [&](Kernel& k, Value i) {
    Ops& o = k.o;
    const mlir::Type stored = types.Stored(o), element = widened ? types.Accumulator(o) : stored;
    const StridedMatrix from{o.At(k.Pointer(w), o.KernelBuilder::Mul(i, group), stored), stored, 1, steps};
    pack(o, from, o.At(k.Pointer(packed), o.KernelBuilder::Mul(i, elements), element));
  };
  f.ParallelEach(groups, static_cast<double>(group), pack_group, constant ? Phase::kInit : Phase::kRun);
  return packed;
}

}  // namespace inlay::native
