// Convolutions of images whose size is open.
//
// A task is a panel of pixels of one group of one image, and a block of its channels, as in conv.h's kPanels: the task
// copies the panel's pixels, tap by tap, from padded planes, and multiplies them with the weights, which lie packed.
// The last panel of an image begins earlier instead of being smaller.
#include <algorithm>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// What the tile is chosen for.
constexpr int64_t kNominalPixels = 1024;
// Of fewer steps, what a tile's sums cost on their way through L1 shows: code for images that fill panels alone.
constexpr int64_t kFewSteps = 64;

class OpenConvolution {
 public:
  OpenConvolution(FunctionEmitter& f, const Node& n)
      : f_(f), n_(n), x_(n.in(0)), types_(f, x_.dtype), planes_(n), pixels_(planes_.pixels()) {
    const Tensor& w = n.in(1);
    groups_ = n.attrs->IntOr("groups", 1);
    channels_ = w.dims[1].value();
    const int64_t taps = planes_.taps();
    plan_ = PlanGemm(f.cpu().core, ColumnSource::kOnTheFly, types_.accumulator_bytes, 1, w.dims[0].value() / groups_,
                     kNominalPixels, channels_ * taps, TailRows::kShared);
    // A panel is a product of its own: where it lies is ours to say.
    plan_.n = plan_.nr();
    plan_.nv_last = plan_.nv;
    plan_.kc = std::min(CeilDiv(plan_.kc, taps), channels_) * taps;
    panels_ = CeilDiv(pixels_, plan_.nr());
  }

  void Emit() {
    const Buffer weights =
        PackGroups(f_, n_, types_, plan_.packed_row_elements(), /*widened=*/false,
                   [&](Ops& o, const StridedMatrix& from, Value to) { EmitPackRows(o, plan_, from, to); });
    // Rows of a panel are copied in whole vectors, also those at the end of the last plane.
    const Buffer planes = planes_.Emit(f_, x_, types_, plan_.lanes, plan_.nr() + plan_.lanes);
    ShapeMap shapes;
    const bool flat = FlatPixels(f_, n_, &shapes);
    const bool inlines = flat && plan_.k <= kFewSteps && InlineEpilogue(f_, n_);
    const int64_t row_blocks = plan_.row_blocks();
    // Behind the products' own scratch: what a panel's last rows hold beyond it, then sums that are stored one by one.
    const int64_t spilled = plan_.scratch_bytes() + RoundUp(plan_.nr() * types_.accumulator_bytes, kLineBytes);
    const int64_t scratch_bytes = spilled + kSpilledVectors * plan_.lanes * types_.accumulator_bytes;
    const double cycles = static_cast<double>(plan_.mc * plan_.k) * plan_.nv / plan_.core.multiply_adds + 100;
    EmitTasks(f_, x_.dims[0] * groups_ * panels_ * row_blocks, cycles, scratch_bytes,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.shapes = shapes;
                KernelBuilder& kb = k.o;
                kb.For(begin, end, 1, [&](Value item) {
                  Value block = kb.Rem(item, row_blocks), rest = kb.Div(item, row_blocks);
                  const Value panel = kb.Rem(rest, panels_);
                  rest = kb.Div(rest, panels_);
                  Task task{k, kb.Div(rest, groups_), kb.Rem(rest, groups_), {}, k.Pointer(planes)};
                  const Value last = kb.Max(kb.Sub(kb.Int(pixels_), kb.Int(plan_.nr())), kb.Int(0));
                  task.first = kb.Min(kb.Mul(panel, plan_.nr()), last);
                  task.spilled = kb.At(scratch, spilled, kb.b.getI8Type());
                  auto emit = [&](bool fills) {
                    EmitGemmTasks(kb, KernelOf(task, k.Pointer(weights), flat, fills), block, kb.Add(block, 1),
                                  scratch);
                  };
                  if (!inlines) return emit(false);
                  kb.If(FillsPanel(kb), [&] { emit(true); }, [&] { emit(false); });
                });
              });
  }

 private:
  static constexpr int64_t kSpilledVectors = 2;  // that an epilogue takes at a time

  struct Task {
    Kernel& k;
    Value image, group, first;  // first: pixel of the panel
    Value planes, spilled;
  };

  // `fills`: the image is known to have pixels for the panel.
  GemmKernel KernelOf(const Task& task, Value weights, bool flat, bool fills) {
    KernelBuilder& kb = task.k.o;
    GemmKernel g;
    g.plan = plan_;
    g.accumulator = types_.Accumulator(task.k.o);
    g.p.element = types_.Stored(task.k.o);
    g.p.pointer = kb.At(weights, kb.Mul(task.group, plan_.packed_row_elements()), g.p.element);
    g.p.row_stride = 1;
    g.p.k_stride = plan_.mr;
    g.p.tile_stride = plan_.mr * plan_.k;
    g.q.element = g.accumulator;
    g.q.pack = [this, task](KernelBuilder& kb, const PackRequest& request) { PackPanel(kb, task, request); };
    g.inline_epilogue = fills;
    const Epilogue store = StorePixels(task.k, n_, groups_, flat, task.image);
    const double bytes = planes_.NominalPixels() * n_.out().dims[1].value() * types_.accumulator_bytes;
    if (const Ahead ahead = PrefetchPixels(task.k, n_, plan_.core, groups_, flat, task.image, plan_.lanes, bytes)) {
      g.ahead = [=](KernelBuilder& kb, Value, Value row, Value column) {
        ahead(kb, task.group, row, kb.Add(task.first, column));
      };
    }
    g.epilogue = [=, this](KernelBuilder& kb, Value, Value row, Value column, Value sums) {
      const Value pixel = kb.Add(task.first, column);
      fills ? store(kb, task.group, row, pixel, sums) : StoreSums(kb, task, flat, row, pixel, sums, store);
    };
    return g;
  }

  // Whether an image has pixels for a panel.
  Value FillsPanel(KernelBuilder& kb) const { return kb.Less(kb.Int(plan_.nr() - 1), kb.Int(pixels_)); }

  // to[k][column] = plane(channel)[pixel(column) + offset(tap)].
  void PackPanel(KernelBuilder& kb, const Task& task, const PackRequest& request) {
    Ops& o = task.k.o;
    const Type element = planes_.Element(o, types_), accumulator = types_.Accumulator(o);
    const Type vector = KernelBuilder::Vector(plan_.lanes, element);
    const Value first_plane = kb.Add(kb.Mul(task.image, groups_ * channels_), kb.Mul(task.group, channels_));
    const Value channel = kb.Div(request.k_begin, planes_.taps());
    const Value planes = kb.At(task.planes, kb.Mul(kb.Add(first_plane, channel), planes_.plane_elements()), element);
    const Value channels = kb.Sub(kb.Div(request.k_end, planes_.taps()), channel);
    auto for_taps = [&](const std::function<void(Value plane, Value at)>& copy) {
      planes_.ForTaps(kb, channels, [&](Value step, Value offset) {
        copy(kb.At(planes, offset, element), kb.At(request.to, kb.Mul(step, plan_.nr()), accumulator));
      });
    };
    auto copy_vectors = [&](Value from, Value to) {
      for (int64_t v = 0; v < plan_.nv; ++v) {
        const Value pixels = kb.Load(vector, kb.At(from, v * plan_.lanes, element));
        kb.Store(kb.Widen(pixels, accumulator), kb.At(to, v * plan_.lanes, accumulator));
      }
    };
    if (planes_.PixelsAdjoin()) {
      const Value last = kb.Min(kb.Int(plan_.nr()), kb.Int(pixels_));
      auto copy_elements = [&](Value plane, Value at) {
        kb.For(kb.Int(0), last, 1, [&](Value i) {
          const Value pixel = kb.Load(element, kb.At(plane, i, element));
          kb.Store(kb.Widen(pixel, accumulator), kb.At(at, i, accumulator));
        });
      };
      auto pack = [&](const std::function<void(Value, Value)>& copy) {
        for_taps([&](Value plane, Value at) { copy(kb.At(plane, task.first, element), at); });
      };
      // x may end with its last pixel.
      if (!planes_.AreImages()) return pack(copy_vectors);
      kb.If(FillsPanel(kb), [&] { pack(copy_vectors); }, [&] { pack(copy_elements); });
      return;
    }
    // One row of the image after another: what a row's last vector holds beyond its end is overwritten by the next
    // row's first, or by the next tap's.
    const Value row = kb.Div(task.first, planes_.out[2]), column = kb.Rem(task.first, planes_.out[2]);
    const Value last_pixel = kb.Min(kb.Add(task.first, plan_.nr() - 1), kb.Add(kb.Int(pixels_), -1));
    const Value rows = kb.Sub(kb.Div(last_pixel, planes_.out[2]), row);
    const Value first_row = kb.Add(planes_.RowOffset(kb, row), column);
    for_taps([&](Value plane, Value at) {
      copy_vectors(kb.At(plane, first_row, element), at);
      kb.For(kb.Int(0), rows, 1, [&](Value i) {
        const Value next = kb.Add(i, 1);
        copy_vectors(kb.At(plane, planes_.RowOffset(kb, kb.Add(row, next)), element),
                     kb.At(at, kb.Sub(kb.Mul(next, planes_.out[2]), column), accumulator));
      });
    });
  }

  // Pixel by pixel where the tail does not number them through, and where the panel has more of them than the image.
  void StoreSums(KernelBuilder& kb, const Task& task, bool flat, Value row, Value pixel, Value sums,
                 const Epilogue& store) {
    const int64_t lanes = Ops::Lanes(sums);
    auto one_by_one = [&] {
      kb.Store(sums, task.spilled);
      const Value count = kb.Min(kb.Int(lanes), kb.Sub(kb.Int(pixels_), pixel));
      const Type element = types_.Accumulator(task.k.o);
      kb.For(kb.Int(0), count, 1, [&](Value i) {
        store(kb, task.group, row, kb.Add(pixel, i), kb.Load(element, kb.At(task.spilled, i, element)));
      });
    };
    if (!flat) return one_by_one();
    kb.If(FillsPanel(kb), [&] { store(kb, task.group, row, pixel, sums); }, one_by_one);
  }

  FunctionEmitter& f_;
  const Node& n_;
  const Tensor& x_;
  GemmTypes types_;
  OpenPlanes planes_;
  Extent pixels_, panels_;
  int64_t groups_, channels_;
  GemmPlan plan_;
};

}  // namespace

absl::Status EmitOpenConvolution(FunctionEmitter& f, const Node& n) {
  if (n.out().rank() > 5) return absl::UnimplementedError("native: a convolution of open size of more than three axes");
  if (EmitOpenChannels(f, n) || EmitOpenDepthwise(f, n) || EmitOpenWinograd(f, n) || EmitOpenPixelRows(f, n)) {
    return absl::OkStatus();
  }
  OpenConvolution(f, n).Emit();
  return absl::OkStatus();
}

}  // namespace inlay::native
