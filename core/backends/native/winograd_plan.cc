#include "core/backends/native/winograd_plan.h"

#include <algorithm>
#include <functional>

#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBlockScratchBytes = 512 << 10;  // lies on a task's stack
constexpr int64_t kMaxBlockTiles = 64;
constexpr int64_t kMinBlockColumns = 24;
// Whole blocks are handed to threads only where there are enough of them.
constexpr int64_t kMinFusedBlocks = 6;
// Both estimates are rough, and the direct way's error is smaller.
constexpr double kClearly = 0.9;
// For which finer blocks are made.
constexpr int64_t kManyThreads = 16;
// Cycles, measured on Zen 5: a tile of a group of channels there and back, a square of vectors transposed and stored.
constexpr double kInputTileCycles[2] = {70, 150};
constexpr double kOutputTileCycles[2] = {50, 120};
// Bytes a cycle at which transformed weights come from L2, and from what lies behind it: of cores with far caches less
// (Emerald Rapids: 256 channels of 14x14, whose weights are 9.4 MB, by F(4) 1.09 ms, by F(2), 4.2 MB, 0.65; 512 of 7x7
// by F(2), 16.8 MB, 1.9, direct 1.2).
constexpr double kNearBytes = 24;
double FarBytes(const Core& core) { return core.far_caches ? 3.5 : 7; }
// A register tile's cycles for a vector of weights, above those that its multiplications hide.
constexpr double kReadCycles = 0.35;

// Stays in L2 beside the weights.
int64_t FusedScratchBytes(const Core& core) { return core.l2_bytes * 7 / 16; }

double SquareCycles(int64_t lanes) { return 0.6 * lanes * lanes; }

double Cycles(const Core& core, const WinogradPlan& plan) {
  const int64_t near = core.l2_bytes / 2;
  const ConvShape& s = plan.shape;
  const GemmPlan& g = plan.gemm;
  const double far_bytes = FarBytes(core), blocks = static_cast<double>(plan.blocks());
  double weight_bytes = static_cast<double>(plan.packed_weight_elements()) * kFloatBytes;
  double tiles_in = static_cast<double>(plan.inputs() * plan.input_tiles());
  double input_bytes = tiles_in * plan.products() * plan.tile_channels() * kFloatBytes;
  // What comes from beyond L2 is not quite hidden; the first time weights do: the other layers' lie in L2 then.
  double again = plan.panels_outer ? 0 : (blocks - 1) * weight_bytes;
  double weights = weight_bytes / far_bytes + again / (weight_bytes > near ? far_bytes : kNearBytes);
  double inputs = plan.panels() * s.kernel[0] * input_bytes /
                  (plan.panels_outer && input_bytes > near ? 2 * far_bytes : 8 * kNearBytes);
  double tiles_of_product = static_cast<double>(CeilDiv(g.m, g.mr));
  double reading = blocks * g.batch * tiles_of_product * g.k * g.nv * kReadCycles;
  double products = std::max(EstimateCycles(g) * blocks + reading, weights) + inputs;
  double tiles = blocks * plan.block_tiles();
  int kind = plan.m == 4 ? 1 : 0;
  double groups_out = static_cast<double>(plan.panels()) * g.nv;
  double squares_in = CeilDiv(s.in[2], plan.lanes) * s.in[1] * s.in[0] * plan.channel_groups() * s.n;
  double squares_out = static_cast<double>(s.pixels()) / plan.lanes * groups_out * s.n;
  double spread = plan.fused ? 1 : 1.3;  // what is not fused goes by way of a farther cache
  return products + tiles_in * plan.channel_groups() * kInputTileCycles[kind] * spread +
         tiles * groups_out * kOutputTileCycles[kind] + (squares_in + squares_out) * SquareCycles(plan.lanes);
}

struct Vectors {
  int64_t least, most;  // of a panel
};

// The register tile for the plan's blocks with which `threads` are soonest done.
void ChooseTile(const Core& core, const Vectors& of_panel, int64_t threads, WinogradPlan* plan,
                std::optional<WinogradPlan>* best) {
  const ConvShape& s = plan->shape;
  int64_t vectors = CeilDiv(s.m, plan->lanes);
  GemmPlan& g = plan->gemm;
  g.core = core;
  g.lanes = plan->lanes;
  g.element_bytes = kFloatBytes;
  g.source = ColumnSource::kPacked;
  g.m = g.mc = plan->block_tiles();
  g.k = g.kc = s.c * s.kernel[0];
  g.prefetch = true;
  for (int64_t nv = of_panel.least; nv <= std::min(vectors, of_panel.most); ++nv) {
    for (int64_t mr = 1; mr <= std::min<int64_t>(g.m, 12); ++mr) {
      if (!FitsRegisters(core, mr, nv)) continue;
      g.mr = mr;
      g.nv = g.nv_last = nv;
      g.n = g.nr();
      g.batch = CeilDiv(vectors, nv) * plan->products();
      for (int option = 0; option < 3; ++option) {
        plan->fused = option == 1;
        plan->panels_outer = option == 2;
        if (plan->fused &&
            (plan->is_deep() || plan->blocks() < kMinFusedBlocks || plan->scratch_bytes() > FusedScratchBytes(core)))
          continue;
        if (plan->scratch_bytes() > kBlockScratchBytes || (plan->panels_outer && plan->blocks() == 1)) {
          continue;
        }
        plan->cycles = Cycles(core, *plan);
        if (!best->has_value() || plan->CyclesWith(threads) < (*best)->CyclesWith(threads)) *best = *plan;
      }
    }
  }
}

// Every way to cut the results into blocks of tiles of m x m.
void ForEachBlocking(const Core& core, const ConvShape& shape, int64_t m,
                     const std::function<void(WinogradPlan* plan)>& consider) {
  WinogradPlan plan;
  plan.shape = shape;
  plan.lanes = core.vector_bytes / kFloatBytes;
  plan.m = m;
  plan.tile_rows = CeilDiv(shape.out[1], m);
  plan.tile_columns = CeilDiv(shape.out[2], m);
  // Narrower blocks than need be, where only those leave room in L2 for a fused task.
  int64_t least = CeilDiv(plan.tile_columns, kMaxBlockTiles);
  int64_t most = std::max(least, CeilDiv(plan.tile_columns, kMinBlockColumns));
  for (int64_t column_blocks = least; column_blocks <= most; ++column_blocks) {
    plan.block_columns = CeilDiv(plan.tile_columns, column_blocks);
    if (plan.column_blocks() != column_blocks) continue;
    // A block of deep ones has its input in one image.
    int64_t rows = (shape.kernel[0] > 1 ? 1 : shape.n) * shape.out[0] * plan.tile_rows;
    for (int64_t r = 1; r <= rows && (r == 1 || r * plan.block_columns <= kMaxBlockTiles); ++r) {
      if (r > 1 && plan.split_columns()) break;
      // Blocks of equal size.
      if (r > 1 && CeilDiv(rows, CeilDiv(rows, r)) != r) continue;
      if (plan.is_deep() && shape.n > 1 && rows % r != 0) continue;
      plan.block_rows = r;
      consider(&plan);
    }
  }
}

}  // namespace

int64_t WinogradPlan::scratch_bytes() const {
  int64_t elements = product_elements() + result_elements() + lanes * lanes + (fused ? input_elements() : 0);
  return elements * kFloatBytes + 4 * 64;
}

bool IsWinogradShape(const ConvShape& s) {
  const Spatial ones{1, 1, 1};
  return s.kernel[1] == 3 && s.kernel[2] == 3 && s.stride == ones && s.dilation == ones && s.input_dilation == ones &&
         !s.reversed && s.groups == 1;
}

std::optional<WinogradPlan> PlanWinograd(const Core& core, const ConvShape& shape, int64_t only_m) {
  std::optional<WinogradPlan> best;
  if (!IsWinogradShape(shape)) return best;
  for (int64_t m : {2, 4}) {
    if (only_m != 0 && m != only_m) continue;
    ForEachBlocking(core, shape, m, [&](WinogradPlan* plan) { ChooseTile(core, {1, 6}, 1, plan, &best); });
  }
  return best;
}

std::optional<FinerWinograd> FinerBlocks(const WinogradPlan& plan) {
  const GemmPlan& g = plan.gemm;
  std::optional<WinogradPlan> best;
  ForEachBlocking(g.core, plan.shape, plan.m, [&](WinogradPlan* finer) {
    if (finer->block_columns != plan.block_columns) return;
    ChooseTile(g.core, {g.nv, g.nv}, kManyThreads, finer, &best);
  });
  if (!best.has_value()) return std::nullopt;
  FinerWinograd finer{*best, kManyThreads + 1};
  while (finer.threads > 2 &&
         finer.plan.CyclesWith(finer.threads - 1) < kClearly * plan.CyclesWith(finer.threads - 1)) {
    --finer.threads;
  }
  if (finer.threads > kManyThreads) return std::nullopt;
  return finer;
}

std::optional<WinogradPlan> ChooseWinograd(const Core& core, const ConvPlan& direct, WinogradChoice choice) {
  if (choice.m == WinogradChoice::kNever) return std::nullopt;
  if (choice.m != WinogradChoice::kByRule) return PlanWinograd(core, direct.shape, choice.m);
  std::optional<WinogradPlan> plan = PlanWinograd(core, direct.shape);
  if (plan.has_value() && plan->cycles > kClearly * direct.cycles) plan.reset();
  return plan;
}

}  // namespace inlay::native
