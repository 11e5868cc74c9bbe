#include "core/backends/native/lowerings/matrix_tiles.h"

#include <algorithm>
#include <string>

#include "core/backends/native/microkernel.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

// Registers 0 to 3 are accumulators, of row tile i and column tile j number 2 * i + j.
constexpr int kFirstP = 4, kFirstQ = 6;
constexpr int64_t kRows = 2 * kTileRows, kVectors = 2;
// Rows of a register tile of dot products, beside two vectors.
constexpr int64_t kDotRows = 8;
constexpr int64_t kFewestWords = 16;  // in k: one step
// The core puts what stores tiles to sleep when it has stored none for 0.6 us, and needs 0.3 us to wake it (Granite
// Rapids; a loop of 24 steps with operands in L2 25% longer). So every fourth step stores one, wherever that is.
constexpr int64_t kStepsAwake = 4;
// Of a task: results of more lie on more pages than the nearest TLB has (512x3072x768 to i32 1.75 -> 1.43 ms).
constexpr int64_t kBlockRows = 128;

Value Register(KernelBuilder& kb, int number) {
  return kb.b.create<mlir::LLVM::ConstantOp>(kb.loc, kb.b.getI8Type(), kb.b.getI8IntegerAttr(number));
}

// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), by number: there is no libc to call.
Value AskLinux(KernelBuilder& kb) {
  constexpr int64_t kArchPrctl = 158, kRequestPermission = 0x1023, kTileData = 18;
  return kb.b
      .create<mlir::LLVM::InlineAsmOp>(
          kb.loc, kb.b.getI64Type(),
          mlir::ValueRange{kb.Int(kArchPrctl), kb.Int(kRequestPermission), kb.Int(kTileData)}, "syscall",
          "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}",
          /*has_side_effects=*/true, /*is_align_stack=*/false, mlir::LLVM::AsmDialectAttr(), mlir::ArrayAttr())
      .getResult(0);
}

// As ldtilecfg reads it: palette 1, eight registers of 16 rows of 64 bytes.
std::string RegisterShapes() {
  std::string shape(64, '\0');
  shape[0] = 1;
  for (int i = 0; i < 8; ++i) {
    shape[16 + 2 * i] = static_cast<char>(kLineBytes);
    shape[48 + i] = static_cast<char>(kTileRows);
  }
  return shape;
}

// How long a tile of so many rows takes beside a whole one, four products of 16 cycles for 16 words in k: 8 rows of dot
// products are 16 multiply-adds of two a cycle for each word, and no chain of them is shorter than 5 cycles a word.
double TileCost(int64_t rows) {
  if (rows >= kTileRows) return rows > kTileRows ? 1 : 0.5;
  auto dots = [](int64_t count) { return count == 0 ? 0 : std::max(1.25, static_cast<double>(count) * 0.25); };
  return static_cast<double>(rows / kDotRows) * dots(kDotRows) + dots(rows % kDotRows);
}

// Rows of a register tile, so that what is left of m is many or none.
int64_t RowsOfTile(int64_t m) {
  auto cost = [&](int64_t rows) { return static_cast<double>(m / rows) * TileCost(rows) + TileCost(m % rows); };
  int64_t best = std::min(kRows, m);
  for (int64_t rows = best - 1; rows >= kTileRows; --rows) {
    if (cost(rows) < cost(best)) best = rows;
  }
  return best;
}

// The lines that a step has to ask for, of as many words. Behind its loads, which would wait for a fill buffer (a C
// program of this loop, weights from L3, 128x768x768: 157 us before them, 141 behind).
void AskForNextPanel(KernelBuilder& kb, const TileRequest& t, Value step) {
  if (!t.prefetch) return;
  const Value bytes = kb.Mul(t.prefetch_step, kTileWords);
  const Value from = kb.At(t.prefetch, kb.Mul(step, bytes), kb.b.getI8Type());
  kb.For(kb.Int(0), bytes, kLineBytes, [&](Value at) { kb.Prefetch(kb.At(from, at, kb.b.getI8Type())); });
}

}  // namespace

std::optional<GemmPlan> PlanTiles(const Core& core, ColumnSource source, int64_t batch, int64_t m, int64_t n,
                                  int64_t k) {
  if (m < kTileRows || k < kFewestWords || n < kTileWords) return std::nullopt;
  GemmPlan plan = PlanGemm(core, source, 4, batch, m, n, k);
  plan.mr = RowsOfTile(m);
  plan.nv = n > kTileWords ? kVectors : 1;
  plan.nv_last = CeilDiv(plan.n_last(), plan.lanes);
  plan.kc = RoundUp(k, kTileWords);  // the room of what a task packs
  const int64_t rows = core.row_block_bytes() / (k * plan.element_bytes) / plan.mr * plan.mr;
  plan.mc = std::min({m, std::max(rows, plan.mr), kBlockRows / plan.mr * plan.mr});
  plan.prefetch &= source == ColumnSource::kPacked;
  plan.rows_fastest = false;
  if (plan.scratch_bytes() > kMaxScratchBytes) return std::nullopt;
  return plan;
}

MatrixTiles::MatrixTiles(FunctionEmitter& f) : allowed_(f.State(4)), shape_(f.Data(RegisterShapes())) {
  f.Parallel(
      1, 0,
      [&](Kernel& k, Value, Value) {
        Ops& o = k.o;
        o.Store(o.ExtendI(o.Equal(AskLinux(o), o.Int(0)), o.b.getI32Type(), false), k.Pointer(allowed_));
      },
      Phase::kInit);
}

Value MatrixTiles::Allowed(Kernel& k) const {
  const Type i32 = k.o.b.getI32Type();
  return k.o.CompareI(Compare::kNe, k.o.Load(i32, k.Pointer(allowed_)), k.o.ConstI(i32, 0), false);
}

void MatrixTiles::Begin(Kernel& k) const {
  k.o.If(Allowed(k), [&] { k.o.Intrinsic("llvm.x86.ldtilecfg", {k.Pointer(shape_)}); });
}

void MatrixTiles::End(Kernel& k) const {
  k.o.If(Allowed(k), [&] { k.o.Intrinsic("llvm.x86.tilerelease", {}); });
}

TileEmitter MatrixTiles::Tile(Kernel& k, const GemmPlan& plan, const RowOperand& p, const char* product,
                              const MultiplyAdd& multiply_add) const {
  const Value allowed = Allowed(k);
  return [&o = k.o, plan, p, product, multiply_add, allowed](KernelBuilder& kb, const TileRequest& t,
                                                             const std::vector<Value>&) {
    const Type word = p.element;
    const int64_t row_words = p.row_stride;
    Value rows =
        kb.At(p.pointer, p.tile_offset ? p.tile_offset(kb, t.tile) : kb.Mul(t.tile, plan.mr * row_words), word);
    if (p.batch_offset) rows = kb.At(rows, p.batch_offset(kb, t.batch), word);
    auto slab = [&](Value row, int64_t column) {
      return kb.At(t.slab, kb.Add(kb.Mul(row, t.vectors * plan.lanes), column * plan.lanes), word);
    };
    auto few_dots = [&](Value row, int64_t count) {
      RegisterTile part;
      part.rows = count;
      part.vectors = t.vectors;
      part.lanes = plan.lanes;
      part.accumulator = part.p_element = part.q_element = word;
      part.multiply_add = multiply_add;
      part.p = kb.At(rows, kb.Mul(row, row_words), word);
      part.p_row_stride = row_words;
      part.q = t.q;
      part.q_k_stride = t.q_stride;
      part.q_columns = t.q_columns;
      const std::vector<Value> zeros(count * t.vectors, kb.Zero(KernelBuilder::Vector(plan.lanes, word)));
      const std::vector<Value> sums = EmitRegisterTile(kb, part, kb.Int(0), kb.Int(plan.k), zeros);
      for (int64_t i = 0; i < count * t.vectors; ++i) {
        kb.Store(sums[i], slab(kb.Add(row, i / t.vectors), i % t.vectors));
      }
    };
    auto dots = [&] {
      const int64_t whole = t.rows / kDotRows * kDotRows;
      kb.For(kb.Int(0), kb.Int(whole), kDotRows, [&](Value row) { few_dots(row, kDotRows); });
      if (t.rows > whole) few_dots(kb.Int(whole), t.rows - whole);
    };
    // The last tile ends where the rows do, and computes some of the tile before once more.
    const int tiles = t.rows < kTileRows ? 0 : static_cast<int>(CeilDiv(t.rows, kTileRows));
    const int columns = static_cast<int>(t.vectors);
    auto first_row = [&](int i) { return std::min(i * kTileRows, t.rows - kTileRows); };
    auto products = [&] {
      const Value row_bytes = kb.Int(row_words * plan.element_bytes), q_bytes = kb.Int(t.q_stride * plan.element_bytes);
      auto accumulator = [&](int i, int j) { return Register(kb, 2 * i + j); };
      for (int i = 0; i < tiles; ++i) {
        for (int j = 0; j < columns; ++j) o.Intrinsic("llvm.x86.tilezero", {accumulator(i, j)});
      }
      auto multiply = [&](Value step) {
        const Value at = kb.At(rows, kb.Mul(step, kTileWords), word);
        const Value q = kb.At(t.q, kb.Mul(step, kTileWords * t.q_stride), word);
        for (int j = 0; j < columns; ++j) {
          o.Intrinsic("llvm.x86.tileloadd64", {Register(kb, kFirstQ + j), kb.At(q, j * plan.lanes, word), q_bytes});
        }
        for (int i = 0; i < tiles; ++i) {
          const Value from = kb.At(at, first_row(i) * row_words, word);
          o.Intrinsic("llvm.x86.tileloadd64", {Register(kb, kFirstP + i), from, row_bytes});
          if (i == tiles - 1) AskForNextPanel(kb, t, step);
          for (int j = 0; j < columns; ++j) {
            o.Intrinsic(product, {accumulator(i, j), Register(kb, kFirstP + i), Register(kb, kFirstQ + j)});
          }
        }
      };
      const int64_t steps = CeilDiv(plan.k, kTileWords), whole = steps / kStepsAwake * kStepsAwake;
      kb.For(kb.Int(0), kb.Int(whole), kStepsAwake, [&](Value step) {
        for (int64_t i = 0; i < kStepsAwake; ++i) multiply(kb.Add(step, i));
        o.Intrinsic("llvm.x86.tilestored64", {Register(kb, kFirstP), t.slab, kb.Int(0)});
      });
      kb.For(kb.Int(whole), kb.Int(steps), 1, multiply);
      for (int i = 0; i < tiles; ++i) {
        for (int j = 0; j < columns; ++j) {
          o.Intrinsic("llvm.x86.tilestored64",
                      {accumulator(i, j), slab(kb.Int(first_row(i)), j), kb.Int(t.vectors * kLineBytes)});
        }
      }
    };
    const bool whole = t.q_columns >= t.vectors * plan.lanes;
    if (tiles > 0 && whole) {
      kb.If(allowed, products, dots);
    } else {
      dots();
    }
    return std::vector<Value>();
  };
}

}  // namespace inlay::native
