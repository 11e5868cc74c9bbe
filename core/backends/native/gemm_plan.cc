#include "core/backends/native/gemm_plan.h"

#include <algorithm>
#include <numeric>

#include "core/backends/native/gemm_cost.h"

namespace inlay::native {
namespace {

// A tile of 6x2 has 25 instructions for a step's six cycles, of which the counter, its jump and a prefetch are five
// (Zen 3, 197x384x384 and 3136x64x256: 98 -> 100.5 GFLOP/s of 102; of panels that tasks copy, 512 channels of 28x28 to
// 256 and 128 to 512 94 -> 95 to 96% of the peak, narrower images level; of pixels as P, 384 channels of 14x14 to 64
// and 160 of 7x7 to 960 90 -> 93 and 83 -> 87, others 0 to 2; of other tiles, and of Q where it lies, nothing. Emerald
// Rapids, any tile, per cent of the peak: 3136x64x256 90 -> 94, 64x768x768 99 -> 101; by AVX2 128x768x768 94 -> 97.
// Granite Rapids, GFLOP/s: x86-64-v3, 4x3, 128x768x768 112 -> 121, 128x768x3072 111 -> 120, 64x768x768 111 -> 123, and
// the core's clock is a twelfth faster with them; AVX-512, Q where it lies, 128x784x512 165 -> 186, 1024x196x256 176 ->
// 190, 2048x49x512 125 -> 141, but by AVX2, whose registers do not hold the rows' addresses, 103 -> 91).
constexpr int64_t kUnrolled = 4;
// Rows of a block of a product's whose results go far, so that what all panels write of them lies in L2 together: panel
// by panel, their lines would come and go a few at a time, and where rows are 1 KiB apart share few sets (3136x256x64
// by 13x2: 74 in one block, 90 in blocks of 65 rows).
constexpr int64_t kFarRows = 64;
// Of P: tiles of more than four vectors are for no more rows (Zen 4, 16 channels of 10x10 to 32 by 2x7 84 GFLOP/s, by
// 11x2 91).
constexpr int64_t kRowsOfWidePanels = 8;

// Parts of L2.
int64_t PackedBlockBytes(const Core& core) { return std::min<int64_t>(core.l2_bytes * 3 / 16, 96 << 10); }
// Of a panel that is not cut for it: sums that go to scratch and back cost more where steps wait for L2 (Zen 3, 3x3/2
// of 128 channels of 56x56, by blocks of 576 and whole: 88 -> 91 GFLOP/s, of 256 of 28x28, by 1152, 88 -> 89).
int64_t WholePackedBytes(const Core& core) {
  return core.waits_for_l2() ? std::min<int64_t>(core.l2_bytes * 5 / 16, 160 << 10) : PackedBlockBytes(core);
}
int64_t SlabBytes(const Core& core) { return std::min<int64_t>(core.l2_bytes / 4, 128 << 10); }
int64_t TransposedPanelBytes(const Core& core) { return core.l2_bytes / 4; }
int64_t TransposedSlabBytes(const Core& core) { return core.l2_bytes / 16; }

// Of weights, where L2 gives a tile what it wants (Zen 4, GFLOP/s, in blocks for L1, of 256, 512 and 1024: 1024
// channels of 14x14 to 256 113.3, 112.0, 113.8, 114.3, 2048 of 7x7 to 512 111.8, 113.4, 114.1, 113.4, 512 to 2048
// 111.3, 111.8, 114.0, 114.1, 960 to 160 114.0, 114.9, 115.6, 116.0).
int64_t TimelyPanelBytes(const Core& core) { return core.l2_bytes / 16; }

// Of P. With one multiply-add a cycle, P may come from L3, so that fewer blocks read a Q that comes from afar (Zen 4,
// weights from memory: 128x768x3072 in one block for three 110.1 -> 113.6 GFLOP/s of 117, 64x768x3072 112.3 -> 113.6).
int64_t RowBlockBytes(const Core& core, int64_t q_bytes) {
  return core.multiply_adds == 1 && q_bytes > core.l2_bytes ? 2 * core.l2_bytes : core.row_block_bytes();
}

// Of P and two panels, this one and the one that is asked for: what a block of k has where near_bytes() are less
// (Emerald Rapids, 2 MiB, weights from memory, per cent of the peak: 128x768x3072 92 -> 96, 64x768x3072 91 -> 96,
// 256x1024x4096 90 -> 96; 197x384x1536, whose 1.05 MB fit, 98, in blocks of 1024 93). Of few rows, of which a second
// tile reads the panel, in blocks of kStepsOfLateRows (the same, AVX-512, GFLOP/s by all k and by 512: 25x960x5632 58
// and 101, 28x1024x4096 84 and 135, 20x1408x5632 64 and 90, 24x768x3072 96 and 122, 16x768x3072 63 and 87, 17x256x2816
// 75 and 88, 16x1024x2048, whose 0.9 MB fit, 83 and 90; one tile, 12x1024x4096 and 8x768x3072, level).
int64_t NearBlockBytes(const Core& core) { return core.l2_bytes / 4; }

// Of weights, which no cache holds between two calls, so that tiles ask for the next panel's; fewer were not timed
// (GFLOP/s of weights from memory, without and with. Zen 4 by AVX-512: 16x128x48 77 and 108, 16x256x256 95 and 112,
// 64x192x192 110 and 115, 7x7 pixels of 128 channels to 512 92 and 108; by AVX2 8x512x128 54 and 106, 16x256x256 77 and
// 113. Emerald Rapids, per cent of the peak: 64x192x192 73 and 103, 16x256x256 45 and 84. Zen 5: 128x768x768 232 and
// 252, 64x768x3072 195 and 247. From L2: level to 3% less).
constexpr int64_t kPrefetchBytes = 8 << 10;

// The same where a panel has one tile only, which reads each line of Q once and asks for what lies further on. One row
// has enough under way. Intel: what lies in L2 is read faster if nobody asks for it (Granite Rapids, 2 rows by 256x1024
// 7.2 and 10.8 us, 4 rows 10.2 and 13.8), what comes from memory up to twice as fast if all of it is asked for
// (768x3072 by 2, 4, 8, 12 rows 761, 1011, 1135, 1277 us, and 633, 770, 807, 838; reading it alone takes 630; by AVX2
// 752, 1034, 791, 927, and 581, 694, 751, 889). Zen 4 reads as fast as it can without, unless a line's multiply-adds
// fill its window (768x768 from memory, GFLOP/s without and with: 2 rows 31 and 20, 5 rows 75 and 58, 7 rows 100 and
// 99, 8 rows 102 and 107, 13 rows by 1024x1024 59 and 88; by AVX2 29 and 21, 39 and 61, 62 and 83, 69 and 102, 58 and
// 96).
bool AsksAhead(const Core& core, int64_t rows, int64_t q_bytes) {
  if (core.multiply_adds == 1) return rows >= 7 && q_bytes > kPrefetchBytes;
  if (core.waits_for_l2()) return rows >= 5 && q_bytes > kPrefetchBytes;
  return rows > 1 && q_bytes > core.l2_bytes / 4;
}

// Tiles of a panel for each byte of its row: more ask far more often than it has lines, and waiting for those costs
// less (Zen 3, by 5x2: 628 tiles of 3136x256x64 98.0 -> 99.5 GFLOP/s without, from memory too; 157 of 784x512x128
// level).
constexpr int64_t kMostTilesAByte = 2;

bool AsksForWeights(const GemmPlan& plan) {
  const int64_t q_bytes = plan.k * plan.n * plan.element_bytes;
  // A panel that stays in L2 is waited for once, whatever the row blocks.
  const int64_t rows = q_bytes <= plan.core.l2_bytes / 2 ? plan.m : plan.mc;
  if (CeilDiv(rows, plan.mr) > kMostTilesAByte * plan.nr() * plan.element_bytes) return false;
  return plan.m <= plan.mr ? AsksAhead(plan.core, plan.m, q_bytes) : q_bytes > kPrefetchBytes;
}

// Of P, whose rows are then better asked for: a tile's rows are too many streams for a prefetcher (Emerald Rapids, per
// cent of the peak: 3136x64x256 95 -> 102, 3136x256x64 95 -> 98, 3136x64x64 97 -> 100; 393 KB of 128x768x768 level).
int64_t PrefetchRowsBytes(const Core& core) { return core.l2_bytes / 4; }

// Of a panel that a task copies beside rows of P that are few enough for L2 (Granite Rapids, pointwise, weights from
// memory, per cent of the peak, all rows together and in blocks of 128: 1024 channels of 28x28 to 512 65 and 87, 512 of
// 38x38 to 1024 72 and 89, 768 of 24x24 75 and 90, 512 of 28x28 83 and 89, 384 of 28x28 89 and 95, 728 of 19x19 68 and
// 80; in blocks of k of 256 and 512 4 to 10 less).
constexpr int64_t kFarBlockBytes = 144 << 10;

constexpr int64_t kManyRows = 128;  // of P in L2

// Of P in blocks that L1 and L2 hold (Zen 3, weights from memory, GFLOP/s with 128 rows by 512 and so: 128x768x3072 97
// -> 99, 64x768x3072 97.5 -> 99, 128x768x1536, in blocks of 44 rows before, 97 -> 99, 32x768x3072 97 -> 99.5,
// 197x768x3072 95 -> 96.5). Fewer than kFewRows have longer ones: L2 holds what is asked for beside this panel, and
// sums go to scratch and back less often.
constexpr int64_t kRowsOfLateBlock = 64, kStepsOfLateBlock = 256, kStepsOfLateRows = 512;

// Of a product: fewer may be cut for few threads' sake; at most so many are made; and the work below which a task is
// not cut.
constexpr int64_t kMinTasks = 16, kEnoughTasks = 64;
constexpr double kMinTaskCycles = 4000;
// Of P: fewer do not pay for a copy of Q's panels (Zen 3, pointwise convolutions: 24 rows 91 GFLOP/s of 97 where pixels
// lie, 84 copied; 64 rows 93 either way; 128 rows 92, in worse moments of the machine 79, and 97, then 94).
constexpr int64_t kMinCopiedRows = 48;
constexpr int64_t kMinCopiedFarRows = 16;  // where L1 holds less than half of the pixels
// Where it does not hold all (Zen 3, us where they lie and copied: 48 channels of 80x80 to 40 296, 262, of 112x112 576,
// 531, 240 of 56x56 to 40 642, 625; 144 of 56x56 to 32 326, 306, but 40 of 80x80 to 32 180, 187).
constexpr int64_t kMinCopiedLateRows = 40;
constexpr int64_t kL2WayBytes = 64 << 10;
constexpr int64_t kMinPackedRows = 96;  // of a part whose panel is packed once more; not measured

}  // namespace

int64_t GemmPlan::unrolled_steps() const {
  bool counts = false;
  if (core.waits_for_l2()) {
    counts = nv > 1 && source != ColumnSource::kDirect;
  } else if (core.far_caches) {
    counts = !transpose_output && (source != ColumnSource::kDirect || core.vector_bytes == 64);
  } else if (core.asks_in_steps()) {
    counts = !transpose_output && source == ColumnSource::kOnTheFly;
  }
  return counts && kc % kUnrolled == 0 && k % kUnrolled == 0 && k_unit % kUnrolled == 0 ? kUnrolled : 1;
}

int64_t GemmPlan::lower_tiles() const {
  const int64_t missing = tiles() * mr - m;
  return shares_tail && mr > 1 && missing <= tiles() ? missing : 0;
}

bool GemmPlan::prefetch_p() const {
  if (!core.asks_in_steps()) return false;
  if (transpose_output) return !core.waits_for_l2();
  if (k_blocks() != 1) return false;
  // Of a Q that nobody packed, P is as many products' (Emerald Rapids, us without and with: 32 of 1024x64x128 4390 and
  // 3420, 48 of 197x64x64 528 and 493, 16 of 512x512x64 4070 and 3860, 12 of 512x64x512 2720 and 2790; where one
  // multiply-add a cycle is all there is, not timed).
  constexpr int64_t kFarBytes = 1 << 20;
  const bool packed = source == ColumnSource::kPacked;
  const int64_t bytes = (packed ? 1 : batch) * m * k * element_bytes;
  if (!core.waits_for_l2()) return packed ? bytes > PrefetchRowsBytes(core) : core.far_caches && bytes > kFarBytes;
  // Zen 3, GFLOP/s without and with: 3136x64x256 level to 1% more, 3136x64x64 99.3 and 97.3; of what lies beyond L2
  // also shorter rows, 784x512x128 98.8 and 99.2, 4096x128x128 96 and 98, 8192x64x128 84 and 97, 6272x192x192 82 and
  // 97, 32768x256x128 84 and 97, 12544x64x80 98.7 and 97.6; 32 products of 1024x64x128 60 and 87, 64 of 256x64x128 55
  // and 82, 12 of 512x64x512 66 and 87.5, 48 of 197x64x64 96 and 94.
  constexpr int64_t kManySteps = 256, kStepsFromFar = 96;
  return (packed && k >= kManySteps && bytes > PrefetchRowsBytes(core)) || (k >= kStepsFromFar && bytes > kFarBytes);
}

int64_t GemmPlan::slab_elements() const {
  const int64_t block = std::min(mc, RoundUp(m, mr));
  // Rows of a square that is not complete, and two tiles.
  if (transpose_output && k_blocks() <= 1) return std::min(block, RoundUp(lanes - 1 + 2 * mr, lanes)) * nr();
  return (k_blocks() > 1 ? block : mr) * nr();
}

int64_t GemmPlan::accumulator_elements() const { return slab_elements() + (transpose_output ? lanes * lanes : 0); }

int64_t GemmPlan::scratch_bytes() const {
  int64_t packed = source == ColumnSource::kOnTheFly ? kc * nr() : 0;
  return RoundUp(accumulator_elements() * element_bytes, kLineBytes) + RoundUp(packed * element_bytes, kLineBytes);
}

// With the last register, LLVM keeps an accumulator of wide tiles on the stack (2x5: 36 GFLOP/s of 100), and of any
// where the row's last vector is masked by a register.
bool FitsRegisters(const Core& core, int64_t rows, int64_t vectors) {
  if (vectors == 1) return true;
  const int64_t needed = rows * vectors + vectors + 1;
  return needed < core.registers || (needed == core.registers && vectors <= 4);
}

namespace {

bool LastPanelFitsRegisters(const Core& core, const GemmPlan& plan) {
  const bool is_masked = plan.source == ColumnSource::kDirect && plan.n % plan.lanes != 0;
  const int64_t vectors = plan.nv_last;
  // AVX-512 has registers for masks.
  return !is_masked || vectors == 1 || core.vector_bytes >= 64 || plan.mr * vectors + vectors + 1 < core.registers;
}

// The cheapest tile; `fixed_mr` > 0: of those with so many rows.
void ChooseTile(const Core& core, int64_t fixed_mr, TailRows tail, GemmPlan* plan) {
  const bool may_share = tail == TailRows::kShared && core.has_few_registers();
  GemmPlan best = *plan;
  double best_cycles = -1;
  const int64_t most = core.far_caches ? 14 : 13;  // not timed on others
  const int64_t low = fixed_mr > 0 ? fixed_mr : 1, high = fixed_mr > 0 ? fixed_mr : std::min(plan->m, most);
  for (int64_t mr = low; mr <= high; ++mr) {
    for (int64_t nv = 1; nv <= 8; ++nv) {
      if (!FitsRegisters(core, mr, nv) || (nv > 4 && (mr > 2 || plan->m > kRowsOfWidePanels))) continue;
      plan->mr = mr;
      plan->nv = nv;
      plan->nv_last = RoundUp(plan->n_last(), plan->lanes) / plan->lanes;
      if (plan->panels() == 1 && plan->nv != plan->nv_last) continue;  // the same as a smaller nv
      if (!LastPanelFitsRegisters(core, *plan)) continue;
      for (const bool shares : {false, true}) {
        plan->shares_tail = shares;
        if (shares && (!may_share || plan->lower_tiles() == 0)) continue;
        const double cycles = TileCost(*plan);
        if (best_cycles >= 0 && cycles >= best_cycles) continue;
        best_cycles = cycles;
        best = *plan;
      }
    }
  }
  *plan = best;
}

GemmPlan Problem(const Core& core, ColumnSource source, int64_t element_bytes, int64_t batch, int64_t m, int64_t n,
                 int64_t k) {
  GemmPlan plan;
  plan.batch = batch;
  plan.m = m;
  plan.n = n;
  plan.k = k;
  plan.source = source;
  plan.element_bytes = element_bytes;
  plan.lanes = core.vector_bytes / element_bytes;
  plan.core = core;
  return plan;
}

// Row blocks of about `rows` rows.
void BlockRows(int64_t rows, GemmPlan* plan) {
  plan->mc = plan->m;
  rows = std::max(RoundUp(rows, plan->mr), 4 * plan->mr);
  if (rows >= plan->m) return;
  int64_t row_blocks = CeilDiv(plan->m, rows);
  plan->mc = RoundUp(CeilDiv(plan->m, row_blocks), plan->mr);
}

// So many blocks of k at most, of whole groups of unrolled steps.
void BlockSteps(int64_t blocks, GemmPlan* plan) {
  plan->kc = CeilDiv(plan->k, blocks);
  if (plan->core.waits_for_l2() && plan->k % kUnrolled == 0) plan->kc = RoundUp(plan->kc, kUnrolled);
}

}  // namespace

GemmPlan PlanTransposedGemm(const Core& core, int64_t element_bytes, int64_t batch, int64_t m, int64_t n, int64_t k,
                            int64_t mr, int64_t step_bytes) {
  GemmPlan plan = Problem(core, ColumnSource::kPacked, element_bytes, batch, m, n, k);
  plan.transpose_output = true;
  ChooseTile(core, mr, mr > 0 ? TailRows::kOneTile : TailRows::kShared, &plan);
  const int64_t panel_bytes = plan.nr() * element_bytes;
  int64_t kc = TransposedPanelBytes(core) / panel_bytes;
  if (step_bytes == 0 && core.waits_for_l2()) {
    // Of pixels copied as tiles read them (Zen 3, weights from memory, GFLOP/s by 512 and whole: 1024 channels of 14x14
    // to 256 92.0 -> 93.5, to 512 92.7 -> 95.4, 1536 to 384 92.8 -> 94.4, of 10x10 to 2048 96.7 -> 98.4, 2048 of 7x7 to
    // 512 level).
    kc = WholePackedBytes(core) / panel_bytes;
  } else if (step_bytes == 0) {
    kc = std::min(kc, TimelyPanelBytes(core) / panel_bytes);
  } else if (core.blocks_k_for_l1()) {
    // Else L2 would give less than a tile wants: pixels and weights of a block of k are both in L1 (Zen 3, GFLOP/s: 49
    // pixels of 960 channels to 160 65 -> 92, 3x3 of 256 channels at 14x14 76 -> 98; Emerald Rapids, per cent of the
    // peak: 196 pixels of 1024 channels to 256 81 -> 92, 3x3 of 128 channels at 28x28 83 -> 100).
    kc = std::min(kc, core.l1_bytes * 3 / 4 / (panel_bytes + step_bytes));
  }
  kc = std::max<int64_t>(kc, 64);
  int64_t blocks = std::max<int64_t>(CeilDiv(k, kc), 1);
  BlockSteps(blocks, &plan);
  BlockRows(TransposedSlabBytes(core) / (plan.nr() * element_bytes), &plan);
  plan.prefetch = AsksForWeights(plan);
  return plan;
}

GemmPlan PlanGemm(const Core& core, ColumnSource source, int64_t element_bytes, int64_t batch, int64_t m, int64_t n,
                  int64_t k, TailRows tail) {
  GemmPlan plan = Problem(core, source, element_bytes, batch, m, n, k);
  ChooseTile(core, 0, tail, &plan);

  // A panel that streams from L2 or L3 feeds the tiles as well as one in L1 does (128x768x3072: 252 GFLOP/s unblocked,
  // 246 with blocks of 768). What a task packs itself is blocked, so that it never leaves the near caches; and k that
  // is so long that L2 would have few of P's rows, for each block of which all of Q comes from afar (128x768x3072 on
  // Zen 3: 87 to 93 GFLOP/s in blocks of 24 rows, 93 to 97 with k in blocks of 512).
  const int64_t rows = RowBlockBytes(core, k * n * element_bytes) / std::max<int64_t>(k * element_bytes, 1);
  int64_t blocks = 1;
  if (source == ColumnSource::kOnTheFly) {
    const int64_t kc = std::max<int64_t>(PackedBlockBytes(core) / (plan.nr() * element_bytes), 64);
    blocks = k * plan.nr() * element_bytes <= WholePackedBytes(core) ? 1 : CeilDiv(k, kc);
    // Where k is blocked, all rows have their accumulators in scratch; each block of rows packs anew.
    BlockRows(blocks > 1 ? SlabBytes(core) / (plan.nr() * element_bytes) / plan.mr * plan.mr : m, &plan);
  } else if (BlockComesLate(plan)) {
    BlockRows(kRowsOfLateBlock, &plan);
    blocks = CeilDiv(k, m < kFewRows ? kStepsOfLateRows : kStepsOfLateBlock);
  } else if (source == ColumnSource::kPacked && rows < std::min(m, kFewRows)) {
    BlockRows(kManyRows, &plan);
    blocks = CeilDiv(k, core.row_block_bytes() / (plan.mc * element_bytes));
  } else if (source == ColumnSource::kPacked && ResultsGoFar(plan) && k * n * element_bytes <= core.l2_bytes / 2) {
    BlockRows(std::min(rows, kFarRows), &plan);
  } else {
    BlockRows(rows, &plan);
    const int64_t step_bytes = (plan.mc + 2 * plan.nr()) * element_bytes;
    if (core.far_caches && source == ColumnSource::kPacked && m > plan.mr && k * step_bytes > core.near_bytes()) {
      blocks = CeilDiv(k, m < kFewRows ? kStepsOfLateRows : NearBlockBytes(core) / step_bytes);
    }
  }
  BlockSteps(blocks, &plan);
  plan.prefetch = source == ColumnSource::kPacked && AsksForWeights(plan);
  return plan;
}

bool ResultsComeLate(const GemmPlan& plan, int64_t bytes) {
  // Granite Rapids, GFLOP/s, without and with: 12544x64x64 178 and 199, 3136x64x64 190 and 199, 3136x64x256 190 and
  // 196, 3136x384x96 206 and 218; 128x3072x768 203 and 186.
  constexpr int64_t kFewSteps = 256;
  return plan.core.asks_in_steps() && !plan.core.waits_for_l2() && plan.k <= kFewSteps &&
         bytes > plan.core.l2_bytes / 4;
}

int64_t LateImageBytes(const Core& core) {
  // What comes late does so though L2 could hold it: other layers were there in between (Granite Rapids, 64 channels of
  // 56x56 to 64, inside ResNet-50: 282 -> 212 us).
  return core.asks_in_steps() ? core.l2_bytes / 8 : core.l2_bytes;
}

bool HasFarRows(const GemmPlan& plan) {
  return plan.core.far_caches && plan.m * plan.k * plan.element_bytes > plan.core.l2_bytes / 4;
}

void BlockFarRows(GemmPlan* plan) {
  if (!HasFarRows(*plan)) return;
  BlockRows(kManyRows, plan);
  plan->kc = CeilDiv(plan->k, CeilDiv(plan->k * plan->nr() * plan->element_bytes, kFarBlockBytes));
}

// How many lines `stride_bytes` apart a cache holds, of `way_bytes` a way.
static int64_t LinesHeld(int64_t stride_bytes, int64_t way_bytes, int64_t ways) {
  return way_bytes / std::gcd(stride_bytes, way_bytes) * ways;
}

int64_t L1LinesHeld(int64_t stride_bytes) { return LinesHeld(stride_bytes, kL1WayBytes, kL1Ways); }

// A panel's rows come line by line: more of them than the sets they fall into can hold (images of 64x64: 4 of L2's)
// come from afar for every tile (Zen 3, 512 channels of 32x32 to 256: 43 to 55 GFLOP/s, copied 92), and where a panel
// exceeds what a small L1 has room for they are late, too (256x196x1024: 28 and 93).
bool CopiesRows(const Core& core, int64_t m, int64_t k, int64_t stride_bytes) {
  if (core.waits_for_l3()) {
    // Rows that share their sets of L1 come from L2 for every tile (Zen 3, 16 channels of 64x64 to 40: 41 GFLOP/s,
    // copied 74; 3 x 40 of 32x32 to as many: 50 and 65).
    const int64_t held = L1LinesHeld(stride_bytes);
    const bool late = core.waits_for_l2() && k > held;
    return m >= (k >= 2 * held ? kMinCopiedFarRows : late ? kMinCopiedLateRows : kMinCopiedRows);
  }
  if (m < kMinCopiedRows) return false;
  // Where they come from behind L2, the copy asks for the next panel's (Zen 4, busy minutes, GFLOP/s where they lie,
  // copied, copied and asked for: 256 channels of 56x56 to 64 91, 83, 103, to 128 94, 94, 106, 512 of 28x28 to 128 101,
  // 102, 105).
  if (core.asks_in_steps() && k * stride_bytes > core.l2_bytes) return true;
  return stride_bytes % kLineBytes == 0 && k * 2 > LinesHeld(stride_bytes, kL2WayBytes, core.l2_bytes / kL2WayBytes);
}

bool RowsComeLate(const Core& core, int64_t bytes) {
  // What L2 does not hold beside the rest.
  return (core.waits_for_l3() || core.asks_in_steps()) && bytes > core.l2_bytes / 2;
}

// The largest of `threads` shares of the tasks, equal in number, as a part of all.
static double LargestShare(const GemmPlan& plan, int64_t threads) {
  const int64_t blocks = plan.row_blocks(), panels = plan.panels(), tasks = plan.tasks();
  auto size = [&](int64_t task) {
    const int64_t panel = (plan.rows_fastest ? task / blocks : task) % panels;
    const int64_t block = (plan.rows_fastest ? task : task / panels) % blocks;
    const int64_t rows = block + 1 < blocks ? plan.mc : plan.m - block * plan.mc;
    return static_cast<double>(rows * (panel + 1 < panels ? plan.nv : plan.nv_last));
  };
  double largest = 0, all = 0;
  for (int64_t thread = 0, task = 0; thread < threads; ++thread) {
    double share = 0;
    const int64_t end = task + tasks / threads + (thread < tasks % threads ? 1 : 0);
    for (; task < end; ++task) share += size(task);
    largest = std::max(largest, share);
    all += share;
  }
  return largest / all;
}

// The cuts that make the most even shares, for few threads before many.
void CutForThreads(GemmPlan* plan) {
  const int64_t panels = plan->batch * plan->panels();
  const bool few = plan->tasks() < kMinTasks, packs = plan->source == ColumnSource::kOnTheFly;
  // Whether tasks of a panel may follow each other: one thread then does what it would without cuts.
  const bool is_free =
      plan->row_blocks() == 1 && !plan->transpose_output && !packs && (!few || plan->source == ColumnSource::kPacked);
  // Or nearly: a task copies again a panel that lies in L2 (Zen 3, pointwise, 128 channels of 28x28 to 512, 512 to 256,
  // 256 of 56x56 to 512 by 1x1/2: level).
  const bool is_cheap = is_free || (packs && !few && plan->k_blocks() == 1);
  const int64_t enough = is_cheap ? kEnoughTasks : kMinTasks;
  int64_t most = std::min<int64_t>(CeilDiv(enough, panels), EstimateCycles(*plan) / (panels * kMinTaskCycles));
  // What a task packs itself is packed again.
  if (packs) most = std::min(most, plan->m / kMinPackedRows);
  // Rows of a block that fill no square of vectors are stored one by one (49 pixels in blocks of 28 and 21: 3% slower
  // with one thread).
  const int64_t fewest = plan->transpose_output ? 2 * plan->lanes : plan->mr;
  // What each block does anew.
  const double block_cost = plan->transpose_output || packs ? 0.01 : 0.001;
  auto shares = [&](const GemmPlan& cut) {
    double sum = 0;
    for (int64_t threads : {2, 4, 8, 16}) sum += LargestShare(cut, threads);
    return sum * (1 + block_cost * cut.row_blocks());
  };
  GemmPlan best = *plan;
  double least = shares(best);
  for (int64_t cuts = 2; cuts <= most; ++cuts) {
    GemmPlan cut = *plan;
    cut.mc = RoundUp(CeilDiv(plan->m, cuts), plan->mr);
    const int64_t last = (plan->m - 1) % cut.mc + 1;
    if (cut.mc >= plan->mc || cut.mc < fewest || last < cut.mc / 2) continue;
    // Then the next task finds the panel in the near caches, and each thread reads its panels alone. Where Q is
    // activations, P is the weights, and of few panels a thread better keeps to its part of those. A convolution's
    // pixels are fewer for each thread if it keeps to its part of them (MobileNetV2 with two threads 1%, with its CPUs
    // far apart 2 to 5%).
    cut.rows_fastest = is_cheap;
    const double cost = shares(cut);
    if (cost >= least) continue;
    least = cost;
    best = cut;
  }
  *plan = best;
}

}  // namespace inlay::native
