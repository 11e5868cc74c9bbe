// Convolutions of images whose size is open: right everywhere, tuned for nothing in particular.
//
// A task is a block of pixels of one group of one image. A tile's patches are copied to the stack, zero where they are
// padding, and multiplied with panel after panel of the weights, which lie packed as a matmul's.
#include <algorithm>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/windows.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kTilesOfTask = 8;
constexpr int64_t kNominalPixels = 1024;

class OpenConvolution {
 public:
  OpenConvolution(FunctionEmitter& f, const Node& n)
      : f_(f), n_(n), x_(n.in(0)), w_(n.in(1)), types_(f, x_.dtype), windows_(*n.attrs, KernelOf(w_)) {
    groups_ = n.attrs->IntOr("groups", 1);
    channels_ = w_.dims[1].value();
    columns_ = w_.dims[0].value() / groups_;
    depth_ = channels_;
    for (int64_t taps : windows_.kernel) depth_ *= taps;
    pixels_ = Product(n.out().dims, 2, n.out().rank());
    plan_ =
        PlanGemm(f.cpu().core, ColumnSource::kPacked, types_.accumulator_bytes, 1, kNominalPixels, columns_, depth_);
    plan_.nv_last = plan_.nv;
    patches_bytes_ = RoundUp(plan_.mr * depth_ * types_.accumulator_bytes, kLineBytes);
  }

  absl::Status Emit() {
    int64_t scratch_bytes = patches_bytes_ + plan_.mr * plan_.nr() * types_.accumulator_bytes;
    if (scratch_bytes > Kernel::kMaxStackBytes) {
      return absl::UnimplementedError("native: a convolution of open size whose patches don't fit the stack");
    }
    PackWeights();
    Extent blocks = CeilDiv(pixels_, plan_.mr * kTilesOfTask);
    double cost = static_cast<double>(plan_.mr * kTilesOfTask) * depth_ * (3 + columns_ / (2.0 * plan_.lanes));
    f_.Parallel(x_.dims[0] * groups_ * blocks, cost, [&](Kernel& k, Value begin, Value end) {
      Value scratch = k.Scratch(scratch_bytes);
      k.o.For(begin, end, 1, [&](Value item) {
        Value block = k.o.Rem(item, blocks), rest = k.o.Div(item, blocks);
        Task(k, k.o.Div(rest, groups_), k.o.Rem(rest, groups_), k.o.Mul(block, plan_.mr * kTilesOfTask), scratch);
      });
    });
    return absl::OkStatus();
  }

 private:
  static std::vector<int64_t> KernelOf(const Tensor& w) {
    std::vector<int64_t> taps;
    for (int i = 2; i < w.rank(); ++i) taps.push_back(w.dims[i].value());
    return taps;
  }
  int Spatial() const { return x_.rank() - 2; }
  int64_t packed_group() const { return depth_ * plan_.packed_columns(); }

  void PackWeights() {
    bool constant = f_.IsConstantParam(w_);
    int64_t bytes = groups_ * packed_group() * types_.accumulator_bytes;
    weights_ = constant ? f_.State(bytes) : f_.Temporary(bytes);
    auto pack = [&](Kernel& k, Value group) {
      mlir::Type acc = types_.Accumulator(k.o), stored = types_.Stored(k.o);
      Value from = k.o.At(k.Pointer(w_), k.o.Mul(group, columns_ * depth_), stored);
      Value to = k.o.At(k.Pointer(weights_), k.o.Mul(group, packed_group()), acc);
      EmitPackColumns(k.o, plan_, {from, stored, 1, depth_}, acc, to);
    };
    f_.ParallelEach(groups_, 1e3, pack, constant ? Phase::kInit : Phase::kRun);
  }

  void Task(Kernel& k, Value image, Value group, Value first, Value scratch) {
    Ops& o = k.o;
    Value end = o.Min(o.Int(pixels_), o.Add(first, plan_.mr * kTilesOfTask));
    o.For(first, end, plan_.mr, [&](Value pixel) {
      o.For(plan_.mr, [&](Value r) {
        // Those beyond the last are the last.
        Value which = o.Min(o.KernelBuilder::Add(pixel, r), o.Sub(o.Int(pixels_), o.Int(1)));
        Patch(k, image, group, which, o.At(scratch, o.Mul(r, depth_), types_.Accumulator(o)));
      });
      Value rows = o.Min(o.Int(plan_.mr), o.Sub(end, pixel));
      o.For(plan_.panels(), [&](Value panel) { Panel(k, image, group, pixel, rows, panel, scratch); });
    });
  }

  Indices PixelAt(Ops& o, Value pixel) {
    const Shape& out = n_.out().dims;
    return Delinearise(o, pixel, Shape(out.begin() + 2, out.end()));
  }

  // to[channel][tap...] of one pixel.
  void Patch(Kernel& k, Value image, Value group, Value pixel, Value to) {
    Ops& o = k.o;
    mlir::Type acc = types_.Accumulator(o), stored = types_.Stored(o);
    Shape strides = RowMajorStrides(x_.dims);
    Indices at = PixelAt(o, pixel);
    Value base = o.KernelBuilder::Add(o.Mul(image, strides[0]), o.Mul(o.Mul(group, channels_), strides[1]));
    Value from = o.At(k.Pointer(x_), base, stored);
    o.For(channels_, [&](Value channel) {
      std::function<void(int, Value, Value, Value)> nest = [&](int i, Value offset, Value inside, Value number) {
        if (i == Spatial()) {
          Value value = o.IfElse(
              inside, {acc}, [&] { return Values{o.Widen(o.Load(stored, o.At(from, offset, stored)), acc)}; },
              [&] { return Values{o.Zero(acc)}; })[0];
          o.Store(value, o.At(to, number, acc));
          return;
        }
        Value start = o.Add(o.Mul(at[i].base, windows_.strides[i]), -windows_.pads_begin[i]);
        o.For(windows_.kernel[i], [&](Value tap) {
          Value position = o.KernelBuilder::Add(start, o.Mul(tap, windows_.dilations[i]));
          // Unsigned: what is negative is large.
          Value here = o.CompareI(Compare::kLt, position, o.Int(x_.dims[i + 2]), false);
          nest(i + 1, o.KernelBuilder::Add(offset, o.Mul(position, strides[i + 2])),
               inside ? o.And(inside, here) : here, o.KernelBuilder::Add(o.Mul(number, windows_.kernel[i]), tap));
        });
      };
      nest(0, o.Mul(channel, strides[1]), nullptr, channel);
    });
  }

  void Panel(Kernel& k, Value image, Value group, Value pixel, Value rows, Value panel, Value scratch) {
    Ops& o = k.o;
    mlir::Type acc = types_.Accumulator(o), vector = KernelBuilder::Vector(plan_.lanes, acc);
    RegisterTile t;
    t.rows = plan_.mr;
    t.vectors = plan_.nv;
    t.lanes = plan_.lanes;
    t.accumulator = t.p_element = t.q_element = acc;
    t.p = scratch;
    t.p_row_stride = depth_;
    t.q = o.At(o.At(k.Pointer(weights_), o.Mul(group, packed_group()), acc), o.Mul(panel, depth_ * plan_.nr()), acc);
    t.q_k_stride = t.q_columns = plan_.nr();
    Values sums = EmitRegisterTile(o, t, o.Int(0), o.Int(depth_), Values(plan_.mr * plan_.nv, o.Zero(vector)));
    Value slab = o.At(scratch, patches_bytes_, o.b.getI8Type());
    for (size_t i = 0; i < sums.size(); ++i) o.Store(sums[i], o.At(slab, i * plan_.lanes, acc));
    Value first = o.Mul(panel, plan_.nr());
    Value columns = o.Min(o.Int(plan_.nr()), o.Sub(o.Int(columns_), first));
    o.For(o.Int(0), rows, 1, [&](Value r) {
      Indices at = PixelAt(o, o.KernelBuilder::Add(pixel, r));
      o.For(o.Int(0), columns, 1, [&](Value c) {
        Value channel = o.KernelBuilder::Add(o.Mul(group, columns_), o.KernelBuilder::Add(first, c));
        Value sum = o.Load(acc, o.At(slab, o.KernelBuilder::Add(o.Mul(r, plan_.nr()), c), acc));
        if (n_.inputs.size() > 2) {
          Eval e(k, 1);
          sum = o.AddF(sum, e.At(n_.in(2), {channel}));
        }
        Indices all = {image, channel};
        all.insert(all.end(), at.begin(), at.end());
        k.StoreResult(n_.out(), all, sum);
      });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  const Tensor &x_, &w_;
  GemmTypes types_;
  Windows windows_;
  int64_t groups_, channels_, columns_, depth_, patches_bytes_;
  Extent pixels_;
  GemmPlan plan_;
  Buffer weights_;
};

}  // namespace

absl::Status EmitOpenConvolution(FunctionEmitter& f, const Node& n) { return OpenConvolution(f, n).Emit(); }

}  // namespace inlay::native
