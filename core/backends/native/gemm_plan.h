// GemmPlan: how a contraction C[i, j] = sum_k P[i, k] * Q[k, j] is cut into tiles, decided by rule from its shape and
// the instruction set alone. Plain values, no MLIR: the packer, the kernel and the workspace size all follow from one
// plan.
//
// P is the operand read one element at a time and broadcast (a matmul's a, a convolution's weights), Q the one read a
// vector at a time (a matmul's b, a convolution's pixels). Columns are cut into panels of nv vectors, rows into
// register tiles of mr rows; a tile keeps its mr * nv accumulators in registers while it walks over k.
#ifndef INLAY_CORE_BACKENDS_NATIVE_GEMM_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_GEMM_PLAN_H_

#include <cstdint>

#include "core/backends/native/rounding.h"

namespace inlay::native {

// What of a processor's core decides how kernels are cut: its vectors, and what its nearest caches hold.
struct Core {
  int64_t vector_bytes = 64;
  int64_t registers = 32;
  int64_t l1_bytes = 48 << 10;
  int64_t l2_bytes = 1 << 20;
  int64_t multiply_adds = 2;  // vectors a cycle
  bool far_caches = false;    // see below
  bool slow_starts = false;   // of wide tiles (Zen 3)

  int64_t l1_panel_bytes() const { return l1_bytes * 2 / 3; }  // of Q, beside what else a tile meets
  // Of AVX2 and below: with AVX-512's, tiles have rows enough that one of a few is no loss.
  bool has_few_registers() const { return registers <= 16; }
  bool has_small_l1() const { return l1_bytes <= 32 << 10; }
  // Such cores (Zen 3) are also slow to read L2, and sustain fewer loads and longer chains. Not so Zen 4 with AVX-512:
  // its steps take twice the cycles for as many instructions, so that it has twice the time under way.
  bool waits_for_l2() const { return has_small_l1() && multiply_adds > 1; }
  // Where a step's operands are late from L2, a block of k has both in L1. Zen 5's L2 gives all that a tile wants, that
  // of Intel's servers (`far_caches`) less.
  bool blocks_k_for_l1() const { return has_small_l1() || far_caches; }
  // What L2 does not hold comes late (Intel's: 30 GB/s a core, from L3 as from memory).
  bool waits_for_l3() const { return waits_for_l2() || far_caches; }
  // Whether tiles ask for what comes late a line or two at a time, beside their multiply-adds: what is asked for all at
  // once waits for fill buffers. Not with Zen 5's caches, with which it was not timed.
  bool asks_in_steps() const { return far_caches || multiply_adds == 1 || waits_for_l2(); }
  int64_t near_bytes() const { return l2_bytes * 5 / 8; }   // of L2, beside all else
  int64_t row_block_bytes() const { return l2_bytes / 2; }  // of P, which all panels read
};

// Of L1: what lies a multiple of kL1WayBytes apart shares a set of kL1Ways lines.
inline constexpr int64_t kL1Ways = 8, kL1WayBytes = 4 << 10;
// How many lines that are `stride_bytes` apart L1 holds.
int64_t L1LinesHeld(int64_t stride_bytes);

// The plans' scratch fits a task's stack.
inline constexpr int64_t kMaxScratchBytes = 240 << 10;

// Where the kernel finds Q's panels.
enum class ColumnSource {
  kPacked,    // packed once, in the state: panel after panel of [k][panel columns], the last one padded with zeros
  kDirect,    // where it lies: rows are contiguous
  kOnTheFly,  // packed by the task into its scratch, a k block at a time
};

// Where the rows are no multiple of a tile's. A tile of few rows takes as long as one of twice as many, whose chains
// are as long (Zen 3, GFLOP/s of 102, weights from memory, by the best tiles with a tail of their own and by 6x2 that
// share it: 21x512x512 90.5 -> 95, 37 rows 93 -> 96.5, 43 93.5 -> 98, 62 94 -> 98, 49 97 -> 99; only 31 97 -> 94.5;
// pixels, 320 channels of 7x7 to 1280 94 -> 96.5, 512 to 2048 96 -> 97.5; outputs, 192 channels of 28x28 to 32 90 ->
// 95).
enum class TailRows {
  kOneTile,  // the last tile has those that are left
  kShared,   // or the last tiles have one row less each, if that is sooner
};

struct GemmPlan {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t element_bytes = 4;  // of the accumulators, and of packed Q
  ColumnSource source = ColumnSource::kPacked;

  int64_t lanes = 16;        // of a vector
  Core core;                 // for the estimate
  int64_t mr = 8;            // rows of a register tile
  int64_t nv = 2;            // vectors of a panel
  int64_t nv_last = 2;       // vectors of the last panel
  int64_t kc = 0;            // k of a block; k itself: one block
  int64_t k_unit = 0;        // where a kernel's panels have steps of their own (GemmKernel::steps): these begin and end
                             // at multiples of it
  int64_t mc = 0;            // rows of a task, a multiple of mr unless all; fewer where it has tiles of a row less
  bool shares_tail = false;  // see TailRows

  bool transpose_output = false;  // C is wanted with vectors along i
  bool prefetch = false;          // a panel's tiles prefetch the next panel (not what a task packs by code of its own)
  bool rows_fastest = false;      // of tasks: a panel's row blocks follow each other

  // Whether a tile prefetches the next tile's P: of pixels, of which a step meets a line, and of rows that follow each
  // other without a gap.
  bool prefetch_p() const;
  int64_t nr() const { return nv * lanes; }
  int64_t panels() const { return CeilDiv(n, nr()); }
  int64_t n_last() const { return n - (panels() - 1) * nr(); }  // columns of the last panel
  // Rows are cut into tiles of mr, then those of a row less or one of what is left.
  int64_t tiles() const { return CeilDiv(m, mr); }
  int64_t lower_tiles() const;
  int64_t whole_tiles() const { return lower_tiles() > 0 ? tiles() - lower_tiles() : m / mr; }
  int64_t m_tail() const { return lower_tiles() > 0 ? 0 : m % mr; }
  int64_t tiles_of_block() const { return CeilDiv(mc, mr); }
  int64_t k_blocks() const { return kc == 0 ? 0 : CeilDiv(k, kc); }
  int64_t row_blocks() const { return mc == 0 ? 0 : CeilDiv(m, mc); }
  // Steps of the loop on k that share its counter, of tiles that are no tail, where nothing else is in a step.
  int64_t unrolled_steps() const;
  // The unit that parallel_for hands out: one panel of one row block of one batch element; panels vary fastest, unless
  // rows_fastest.
  int64_t tasks() const { return batch * row_blocks() * panels(); }

  int64_t packed_columns() const { return (panels() - 1) * nr() + nv_last * lanes; }
  int64_t packed_elements() const { return batch * k * packed_columns(); }
  // Of P, where it is packed as tiles read it, [tile][k][mr]: of a batch element.
  int64_t packed_row_elements() const { return RoundUp(m, mr) * k; }
  // Scratch of one worker: the accumulators of a tile, or of a row block when k is blocked or the output transposed
  // (and then a square of vectors); then Q's packed block.
  int64_t slab_elements() const;
  int64_t accumulator_elements() const;
  int64_t scratch_bytes() const;
};

// `batch`, `m`, `n` >= 1; k may be 0 (the result is zero). `tail`: kShared only for what EmitGemmTasks computes from a
// P that lies as a plain matrix or as EmitPackRows packs it.
GemmPlan PlanGemm(const Core& core, ColumnSource source, int64_t element_bytes, int64_t batch, int64_t m, int64_t n,
                  int64_t k, TailRows tail = TailRows::kOneTile);

// kPacked with transpose_output. `mr` > 0 fixes the rows of a tile, else tiles may share the tail. `step_bytes`: of P
// that a step on k brings to L1 and that other tiles, or other steps, use again; 0 where L2 gives a tile all that it
// wants in time.
GemmPlan PlanTransposedGemm(const Core& core, int64_t element_bytes, int64_t batch, int64_t m, int64_t n, int64_t k,
                            int64_t mr, int64_t step_bytes);

// Whether a tile's accumulators, a row of Q and a broadcast element of P have registers.
bool FitsRegisters(const Core& core, int64_t rows, int64_t vectors);

// Whether a product's results, with what is added to them, are so large that they come late, and so few steps stand
// before each line of them, that its tiles ask for them.
bool ResultsComeLate(const GemmPlan& plan, int64_t bytes);

// Bytes of an image's results, with what is added to them, from which on the tiles of its convolution ask for them.
int64_t LateImageBytes(const Core& core);

// Whether P is more than a part of L2 where what L2 does not hold comes late.
bool HasFarRows(const GemmPlan& plan);
// Then cuts the rows into blocks, each of which all panels of Q meet in L2. For kOnTheFly whose first tiles pack: each
// block packs anew.
void BlockFarRows(GemmPlan* plan);

// Cuts the rows further where there are few tasks: of three panels one of two threads would compute two.
void CutForThreads(GemmPlan* plan);

// Whether tasks better copy Q's panels, whose rows are contiguous and `stride_bytes` apart, than read them there:
// kOnTheFly or kDirect.
bool CopiesRows(const Core& core, int64_t m, int64_t k, int64_t stride_bytes);

// Whether Q's rows, which lie apart, are of so many bytes that tiles better ask for the next panel's.
bool RowsComeLate(const Core& core, int64_t bytes);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_GEMM_PLAN_H_
