// Convolutions of images whose size is open, pixels as the rows of a product: of many steps, where what is left of an
// image's last panel would cost more than to bring the results back into rows of pixels.
//
// A task is some of the pixels of all images, and some of a group's channels. A block of k at a time it copies the
// pixels' taps from padded planes, and multiplies tiles of them with packed weights. Which runs of pixels follow each
// other in a plane it finds out once.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd_parts.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

// What the tile is chosen for: no multiple of any tile's.
constexpr int64_t kNominalPixels = 121;
// Of a task: pixels, so many that weights from L2 are used often, and channels, so many that pixels are; fewer where
// small images are to be work for several threads.
constexpr int64_t kTaskPixels = 64, kTaskChannels = 512, kSharedTaskChannels = 64;
// Of fewer steps, what the way back costs shows. Of few more, all at once.
constexpr int64_t kMinSteps = 128, kWholeSteps = 256;
// Pixels of an image (Zen 3, GFLOP/s by panels and by rows: 2048 channels of 7x7 to 512 72 -> 88; of 14x14 89 and 87,
// 28x28 92 and 85).
constexpr int64_t kFewPixels = 128;

class OpenPixelRows {
 public:
  OpenPixelRows(FunctionEmitter& f, const Node& n)
      : f_(f), n_(n), types_(f, n.in(0).dtype), planes_(n), pixels_(planes_.pixels()) {
    const Tensor& w = n.in(1);
    groups_ = n.attrs->IntOr("groups", 1);
    outputs_ = w.dims[0].value() / groups_;
    channels_ = w.dims[1].value();
    const int64_t taps = planes_.taps();
    plan_ = PlanTransposedGemm(f.cpu().core, types_.accumulator_bytes, 1, kNominalPixels, outputs_, channels_ * taps,
                               /*mr=*/0, /*step_bytes=*/2 * kLineBytes);
    plan_.nv_last = plan_.nv;
    const int64_t near = CeilDiv(plan_.kc, taps), whole = near > 4 ? near / 4 * 4 : near;  // channels
    plan_.kc = plan_.k <= kWholeSteps ? plan_.k : std::min(whole, channels_) * taps;
    task_pixels_ = RoundUp(kTaskPixels, plan_.mr);
    tile_pitch_ = RoundUp(plan_.kc * plan_.mr + plan_.lanes, plan_.lanes);
    is_blocked_ = plan_.kc < plan_.k;
    // Of a task: where runs of pixels begin, the pixels, a panel's sums or all of them, a square.
    auto reserve = [this](int64_t bytes) {
      const int64_t at = scratch_bytes_;
      scratch_bytes_ += RoundUp(bytes, kLineBytes);
      return at;
    };
    reserve(3 * task_pixels_ * kWordBytes);
    pixels_at_ = reserve(task_pixels_ / plan_.mr * tile_pitch_ * types_.accumulator_bytes);
    sums_at_ = reserve((is_blocked_ ? TaskPanels(kTaskChannels) : 1) * panel_sums() * types_.accumulator_bytes);
    square_at_ = reserve(plan_.lanes * plan_.lanes * types_.accumulator_bytes);
  }

  bool Pays() {
    if (planes_.NominalPixels() > kFewPixels) return false;
    const int64_t computed = RoundUp(outputs_, plan_.lanes);
    return types_.accumulator_dtype == ir::DType::kF32 && plan_.k >= kMinSteps && computed - outputs_ <= computed / 8 &&
           scratch_bytes_ <= kMaxScratchBytes && FlatPixels(f_, n_, &shapes_);
  }

  void Emit() {
    const Buffer weights =
        PackGroups(f_, n_, types_, plan_.k * plan_.packed_columns(), /*widened=*/true,
                   [&](Ops& o, const StridedMatrix& from, Value to) { EmitPackColumns(o, plan_, from, Float(o), to); });
    const Buffer planes = planes_.Emit(f_, n_.in(0), types_, plan_.lanes, plan_.lanes);
    const int64_t alone = TaskPanels(kTaskChannels), shared = TaskPanels(kSharedTaskChannels);
    auto one_thread = [&] { EmitProducts(planes, weights, alone); };
    if (alone == shared) return one_thread();
    f_.Either({{std::nullopt, 2, INT64_MAX}}, [&] { EmitProducts(planes, weights, shared); }, one_thread);
  }

 private:
  static constexpr int64_t kWordBytes = 8;

  struct Task {
    Kernel& k;
    Value planes, weights, scratch;
    Value group, panel, panels, first, count;  // pixels: of all images
    Value tiles = {}, whole = {};              // of pixels; the last have a row less
    Value runs = {};                           // how many
  };

  Type Float(Ops& o) const { return types_.Accumulator(o); }
  bool has_lower() const { return plan_.core.has_few_registers() && plan_.mr > 2; }
  int64_t panel_sums() const { return plan_.nr() * task_pixels_; }
  Value Scratch(const Task& t, int64_t offset) { return t.k.o.At(t.scratch, offset, t.k.o.b.getI8Type()); }

  // Of tasks of so many channels at most, as even as they can be.
  int64_t TaskPanels(int64_t channels) const {
    const int64_t most = std::max<int64_t>(channels / plan_.nr(), 1);
    return CeilDiv(plan_.panels(), CeilDiv(plan_.panels(), most));
  }

  void EmitProducts(const Buffer& planes, const Buffer& weights, int64_t task_panels) {
    const Extent all = n_.in(0).dims[0] * pixels_, pixel_blocks = CeilDiv(all, task_pixels_);
    const int64_t panel_blocks = CeilDiv(plan_.panels(), task_panels);
    const double multiply_adds = static_cast<double>(task_pixels_ * task_panels * plan_.nv * plan_.k);
    EmitTasks(f_, pixel_blocks * (panel_blocks * groups_), multiply_adds / plan_.core.multiply_adds, scratch_bytes_,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.shapes = shapes_;
                KernelBuilder& kb = k.o;
                kb.For(begin, end, 1, [&](Value item) {
                  Task t{k, k.Pointer(planes), k.Pointer(weights), scratch};
                  const Value outer = kb.Div(item, pixel_blocks);
                  t.group = kb.Div(outer, panel_blocks);
                  t.panel = kb.Mul(kb.Rem(outer, panel_blocks), task_panels);
                  t.panels = kb.Min(kb.Int(task_panels), kb.Sub(kb.Int(plan_.panels()), t.panel));
                  // Blocks are of equal size, but of whole tiles.
                  const Value share = kb.Div(kb.Add(kb.Int(all), kb.Add(kb.Int(pixel_blocks), -1)), pixel_blocks);
                  const Value most = kb.RoundUp(share, plan_.mr);
                  t.first = kb.Mul(kb.Rem(item, pixel_blocks), most);
                  t.count = kb.Min(most, kb.Sub(kb.Int(all), t.first));
                  EmitTask(t);
                });
              });
  }

  void EmitTask(Task t) {
    KernelBuilder& kb = t.k.o;
    const Type f32 = Float(t.k.o);
    t.tiles = kb.Div(kb.Add(t.count, plan_.mr - 1), plan_.mr);
    t.whole = t.tiles;
    if (has_lower()) {  // rather than pixels that are nobody's
      const Value missing = kb.Sub(kb.Mul(t.tiles, plan_.mr), t.count);
      t.whole = kb.Select(kb.Less(t.tiles, missing), t.tiles, kb.Sub(t.tiles, missing));
    }
    t.runs = FindRuns(t);
    const Value sums = Scratch(t, sums_at_);
    auto sums_of = [&](Value panel) { return is_blocked_ ? kb.At(sums, kb.Mul(panel, panel_sums()), f32) : sums; };
    if (is_blocked_) {
      const Type vector = KernelBuilder::Vector(plan_.lanes, f32);
      kb.For(kb.Int(0), kb.Mul(t.panels, panel_sums()), plan_.lanes,
             [&](Value i) { kb.Store(kb.Zero(vector), kb.At(sums, i, f32)); });
    }
    kb.For(kb.Int(0), kb.Int(plan_.k), plan_.kc, [&](Value begin) {
      const Value steps = is_blocked_ ? kb.Min(kb.Int(plan_.kc), kb.Sub(kb.Int(plan_.k), begin)) : kb.Int(plan_.k);
      CopyPixels(t, begin, steps);
      kb.For(kb.Int(0), t.panels, 1, [&](Value panel) {
        Multiply(t, panel, begin, steps, sums_of(panel));
        if (!is_blocked_) StorePanel(t, panel, sums_of(panel));
      });
    });
    if (is_blocked_) kb.For(kb.Int(0), t.panels, 1, [&](Value panel) { StorePanel(t, panel, sums_of(panel)); });
  }

  // Calls `run` for pixels that follow each other in an image, unless `most` allows fewer: so many of the task's,
  // `done`, are before them.
  using Run = std::function<void(Value number, Value done, Value image, Value pixel, Value length)>;
  void ForRuns(Ops& o, const Task& t, const std::function<Value(Value done, Value pixel)>& most, const Run& run) {
    KernelBuilder& kb = o;
    o.While(
        {kb.Int(0), kb.Int(0), kb.Div(t.first, pixels_), kb.Rem(t.first, pixels_)},
        [&](const Values& at) { return kb.Less(at[1], t.count); },
        [&](const Values& at) -> Values {
          Value length = kb.Min(kb.Sub(kb.Int(pixels_), at[3]), kb.Sub(t.count, at[1]));
          if (most) length = kb.Min(length, most(at[1], at[3]));
          run(at[0], at[1], at[2], at[3], length);
          const Value pixel = kb.Add(at[3], length), ends = kb.Equal(pixel, kb.Int(pixels_));
          return {kb.Add(at[0], 1), kb.Add(at[1], length), kb.Select(ends, kb.Add(at[2], 1), at[2]),
                  kb.Select(ends, kb.Int(0), pixel)};
        });
  }

  // Where a pixel lies in its tile, and what rows that has.
  struct Place {
    Value tile, row, rows;
  };
  Place PlaceOf(KernelBuilder& kb, const Task& t, Value pixel) {
    const int64_t mr = plan_.mr;
    Place place{kb.Div(pixel, mr), kb.Rem(pixel, mr), kb.Int(mr)};
    if (!has_lower()) return place;
    const Value before = kb.Mul(t.whole, mr), is_lower = kb.Less(kb.Add(before, -1), pixel);
    const Value further = kb.Max(kb.Sub(pixel, before), kb.Int(0));
    place.tile = kb.Select(is_lower, kb.Add(t.whole, kb.Div(further, mr - 1)), place.tile);
    place.row = kb.Select(is_lower, kb.Rem(further, mr - 1), place.row);
    place.rows = kb.Select(is_lower, kb.Int(mr - 1), place.rows);
    return place;
  }

  // Writes where the pixels lie that follow each other in a plane and in a tile: from the first channel's plane on, and
  // among the tiles.
  Value FindRuns(const Task& t) {
    Ops& o = t.k.o;
    KernelBuilder& kb = o;
    const Type word = kb.b.getI64Type();
    const bool adjoin = planes_.PixelsAdjoin();
    const Value count_at = Scratch(t, square_at_);  // before it is a square's
    auto most = [&](Value done, Value pixel) {
      const Place place = PlaceOf(kb, t, done);
      const Value in_tile = kb.Min(kb.Sub(place.rows, place.row), kb.Int(plan_.lanes));
      return adjoin ? in_tile : kb.Min(in_tile, kb.Sub(kb.Int(planes_.out[2]), kb.Rem(pixel, planes_.out[2])));
    };
    ForRuns(o, t, most, [&](Value number, Value done, Value image, Value pixel, Value length) {
      Value from = pixel;
      if (!adjoin) from = kb.Add(planes_.RowOffset(kb, kb.Div(pixel, planes_.out[2])), kb.Rem(pixel, planes_.out[2]));
      from = kb.Add(kb.Mul(kb.Mul(image, planes_.plane_elements()), groups_ * channels_), from);
      const Place place = PlaceOf(kb, t, done);
      const Value at = kb.At(t.scratch, kb.Mul(number, 3), word);
      kb.Store(from, at);
      kb.Store(kb.Add(kb.Mul(place.tile, tile_pitch_), place.row), kb.At(at, 1, word));
      kb.Store(length, kb.At(at, 2, word));
      kb.Store(kb.Add(number, 1), count_at);
    });
    return kb.Load(word, count_at);
  }

  // To the tiles, [k][row], steps [begin, begin + steps).
  void CopyPixels(const Task& t, Value begin, Value steps) {
    Ops& o = t.k.o;
    KernelBuilder& kb = o;
    const Type element = planes_.Element(o, types_), f32 = Float(o), word = kb.b.getI64Type();
    const Type vector = KernelBuilder::Vector(plan_.lanes, element);
    const Value to = Scratch(t, pixels_at_), channel = kb.Div(begin, planes_.taps());
    const Value first = kb.Add(kb.Mul(t.group, channels_), channel);
    const Value last =
        kb.Add(kb.Int(n_.in(0).dims[0] * (groups_ * channels_) * planes_.plane_elements()), -plan_.lanes);
    auto copy_runs = [&](Value plane, Value line) {
      kb.For(kb.Int(0), t.runs, 1, [&](Value run) {
        const Value at = kb.At(t.scratch, kb.Mul(run, 3), word), place = kb.Add(plane, kb.Load(word, at));
        const Value from = kb.At(t.planes, place, element);
        const Value into = kb.At(line, kb.Load(word, kb.At(at, 1, word)), f32);
        auto copy = [&](Type type, Value i) {
          kb.Store(kb.Widen(kb.Load(type, kb.At(from, i, element)), f32), kb.At(into, i, f32));
        };
        // What a vector has beyond its run's end is where the next run or the next step goes. But x may end there.
        auto copy_vector = [&] { copy(vector, kb.Int(0)); };
        if (!planes_.AreImages()) return copy_vector();
        kb.If(
            kb.Less(last, place),
            [&] { kb.For(kb.Int(0), kb.Load(word, kb.At(at, 2, word)), 1, [&](Value i) { copy(element, i); }); },
            copy_vector);
      });
    };
    const Value plane = kb.Mul(first, planes_.plane_elements());
    planes_.ForTaps(kb, kb.Div(steps, planes_.taps()), [&](Value step, Value offset) {
      copy_runs(kb.Add(plane, offset), kb.At(to, kb.Mul(step, plan_.mr), f32));
    });
  }

  // Adds the block's products with a panel to its sums, [vector][pixel][lane].
  void Multiply(const Task& t, Value panel, Value begin, Value steps, Value sums) {
    KernelBuilder& kb = t.k.o;
    const Type f32 = Float(t.k.o), vector = KernelBuilder::Vector(plan_.lanes, f32);
    const int64_t mr = plan_.mr, panel_weights = plan_.k * plan_.nr();
    const Value number = kb.Add(kb.Mul(t.group, plan_.panels()), kb.Add(t.panel, panel));
    const Value q = kb.At(t.weights, kb.Add(kb.Mul(number, panel_weights), kb.Mul(begin, plan_.nr())), f32);
    Value ask_step;
    if (plan_.prefetch) ask_step = ShareOfRow(kb, plan_.nr() * types_.accumulator_bytes, t.tiles);
    auto emit_tiles = [&](int64_t rows, Value first, Value before, Value count) {
      kb.For(kb.Int(0), count, 1, [&](Value tile) {
        const Value row = kb.Add(first, kb.Mul(tile, rows)), number = kb.Add(before, tile);
        RegisterTile r;
        r.rows = rows;
        r.vectors = plan_.nv;
        r.lanes = plan_.lanes;
        r.accumulator = r.p_element = r.q_element = f32;
        r.p = kb.At(Scratch(t, pixels_at_), kb.Mul(number, tile_pitch_), f32);
        r.p_row_stride = 1;
        r.p_k_stride = mr;
        r.q = q;
        r.q_k_stride = r.q_columns = plan_.nr();
        r.few_registers = plan_.core.has_few_registers();
        r.unrolled = plan_.unrolled_steps();
        if (ask_step) {
          const Value asked = kb.Mul(kb.Mul(number, ask_step), steps);
          r.prefetch = kb.At(kb.At(q, panel_weights, f32), asked, kb.b.getI8Type());
          r.prefetch_step = ask_step;
        }
        auto each = [&](const std::function<void(int64_t i, Value at)>& body) {
          for (int64_t i = 0; i < rows * plan_.nv; ++i) {
            const Value at =
                kb.Add(kb.Mul(row, plan_.lanes), (i % plan_.nv * task_pixels_ + i / plan_.nv) * plan_.lanes);
            body(i, kb.At(sums, at, f32));
          }
        };
        Values all(rows * plan_.nv, kb.Zero(vector));
        if (is_blocked_) each([&](int64_t i, Value at) { all[i] = kb.Load(vector, at); });
        all = EmitRegisterTile(kb, r, kb.Int(0), steps, all);
        each([&](int64_t i, Value at) { kb.Store(all[i], at); });
      });
    };
    emit_tiles(mr, kb.Int(0), kb.Int(0), t.whole);
    if (has_lower()) emit_tiles(mr - 1, kb.Mul(t.whole, mr), t.whole, kb.Sub(t.tiles, t.whole));
  }

  void StorePanel(const Task& t, Value panel, Value sums) {
    Ops& o = t.k.o;
    KernelBuilder& kb = o;
    const Epilogue store = StorePixels(t.k, n_, 1, /*flat=*/true, nullptr);
    kb.For(plan_.nv, [&](Value v) {
      const Value in_group = kb.Add(kb.Mul(kb.Add(t.panel, panel), plan_.nr()), kb.Mul(v, plan_.lanes));
      PanelChannels channels{kb.Add(kb.Mul(t.group, outputs_), in_group), kb.Int(plan_.lanes)};
      const Value left = kb.Max(kb.Sub(kb.Int(outputs_), in_group), kb.Int(0));
      if (plan_.packed_columns() > outputs_) channels.count = kb.Min(channels.count, left);
      const Value results = kb.At(sums, kb.Mul(v, task_pixels_ * plan_.lanes), Float(o));
      ForRuns(o, t, nullptr, [&](Value, Value done, Value image, Value pixel, Value length) {
        EmitPixelRun(kb, plan_.lanes, kb.At(results, kb.Mul(done, plan_.lanes), Float(o)), length, image, channels,
                     pixel, store, Scratch(t, square_at_));
      });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  GemmTypes types_;
  OpenPlanes planes_;
  Extent pixels_;
  ShapeMap shapes_;
  GemmPlan plan_;
  bool is_blocked_;
  int64_t groups_, outputs_, channels_;  // of a group
  int64_t task_pixels_, tile_pitch_;
  int64_t pixels_at_, sums_at_, square_at_, scratch_bytes_ = 0;
};

}  // namespace

bool EmitOpenPixelRows(FunctionEmitter& f, const Node& n) {
  OpenPixelRows rows(f, n);
  if (!rows.Pays()) return false;
  rows.Emit();
  return true;
}

}  // namespace inlay::native
