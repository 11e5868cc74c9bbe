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

// As ldtilecfg reads it: palette 1, eight registers of 64 bytes a row; a product takes as many cycles as P has rows.
std::string RegisterShapes(int64_t rows) {
  std::string shape(64, '\0');
  shape[0] = 1;
  for (int i = 0; i < 8; ++i) {
    shape[16 + 2 * i] = static_cast<char>(kLineBytes);
    shape[48 + i] = static_cast<char>(i < kFirstQ ? rows : kTileRows);
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

MatrixTiles::MatrixTiles(FunctionEmitter& f, int64_t rows)
    : rows_(rows), allowed_(f.State(4)), shape_(f.Data(RegisterShapes(rows))) {
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
  TileRows rows;
  rows.word = p.element;
  rows.at = [plan, p](KernelBuilder& kb, Value batch, Value tile, int64_t row) {
    const Value offset = p.tile_offset ? p.tile_offset(kb, tile) : kb.Mul(tile, plan.mr * p.row_stride);
    const Value first = kb.At(p.pointer, kb.Add(offset, row * p.row_stride), p.element);
    return p.batch_offset ? kb.At(first, p.batch_offset(kb, batch), p.element) : first;
  };
  rows.row_stride = p.row_stride;
  rows.run = plan.k;
  return Tile(k, plan, rows, product, multiply_add);
}

namespace {

// Emits one register tile of a product.
class TileProduct {
 public:
  TileProduct(KernelBuilder& kb, Ops& o, const GemmPlan& plan, const TileRows& p, int64_t register_rows,
              const TileRequest& t)
      : kb_(kb),
        o_(o),
        plan_(plan),
        p_(p),
        register_rows_(register_rows),
        t_(t),
        registers_(t.rows < register_rows ? 0 : CeilDiv(t.rows, register_rows)) {
    if (registers_ == 0) firsts_.push_back(p.at(kb, t.batch, t.tile, 0));
    for (int64_t i = 0; i < registers_; ++i) firsts_.push_back(p.at(kb, t.batch, t.tile, FirstRow(i)));
  }

  bool FillsRegisters() const { return registers_ > 0 && t_.q_columns >= t_.vectors * plan_.lanes; }

  void ByRegisters(const char* product) {
    ForRegisters([&](int64_t i, int64_t j) { o_.Intrinsic("llvm.x86.tilezero", {Accumulator(i, j)}); });
    ForRuns(0, kb_.Int(0), kb_.Int(0), [&](Value offset, Value run) { Run(product, offset, run); });
    ForRegisters([&](int64_t i, int64_t j) {
      o_.Intrinsic("llvm.x86.tilestored64",
                   {Accumulator(i, j), Slab(FirstRow(i), kb_.Int(0), j), kb_.Int(t_.vectors * kLineBytes)});
    });
  }

  void ByDots(const MultiplyAdd& multiply_add) {
    for (size_t i = 0; i < firsts_.size(); ++i) {
      const int64_t rows = registers_ == 0 ? t_.rows : register_rows_, whole = rows / kDotRows * kDotRows;
      auto dots = [&](Value row, int64_t count) { Dots(multiply_add, static_cast<int64_t>(i), row, count); };
      kb_.For(kb_.Int(0), kb_.Int(whole), kDotRows, [&](Value row) { dots(row, kDotRows); });
      if (rows > whole) dots(kb_.Int(whole), rows - whole);
    }
  }

 private:
  int64_t FirstRow(int64_t i) const {
    return registers_ == 0 ? 0 : std::min(i * register_rows_, t_.rows - register_rows_);
  }
  Value Accumulator(int64_t i, int64_t j) { return Register(kb_, static_cast<int>(2 * i + j)); }
  void ForRegisters(const std::function<void(int64_t i, int64_t j)>& body) {
    for (int64_t i = 0; i < registers_; ++i) {
      for (int64_t j = 0; j < t_.vectors; ++j) body(i, j);
    }
  }
  Value Slab(int64_t first, Value row, int64_t column) {
    const int64_t width = t_.vectors * plan_.lanes;
    return kb_.At(t_.slab, kb_.Add(kb_.Mul(row, width), first * width + column * plan_.lanes), p_.word);
  }

  // `offset`: of P, in words; `run`: how many there were.
  void ForRuns(size_t level, Value offset, Value run, const std::function<void(Value offset, Value run)>& body) {
    if (level == p_.loops.size()) return body(offset, run);
    const InnerLoop& loop = p_.loops[level];
    kb_.For(loop.extent, [&](Value i) {
      ForRuns(level + 1, kb_.Add(offset, loop.offset(kb_, i)), kb_.Add(kb_.Mul(run, loop.extent), i), body);
    });
  }

  void Run(const char* product, Value offset, Value run) {
    const int64_t steps = CeilDiv(p_.run, kTileWords), whole = steps / kStepsAwake * kStepsAwake;
    auto step = [&](Value i) {
      Step(product, kb_.Add(offset, kb_.Mul(i, kTileWords)), kb_.Add(kb_.Mul(run, steps), i));
    };
    auto stay_awake = [&] { o_.Intrinsic("llvm.x86.tilestored64", {Register(kb_, kFirstP), t_.slab, kb_.Int(0)}); };
    kb_.For(kb_.Int(0), kb_.Int(whole), kStepsAwake, [&](Value first) {
      for (int64_t i = 0; i < kStepsAwake; ++i) step(kb_.Add(first, i));
      stay_awake();
    });
    for (int64_t i = whole; i < steps; ++i) step(kb_.Int(i));
    if (whole == 0 && !p_.loops.empty()) stay_awake();
  }

  void Step(const char* product, Value offset, Value step) {
    const Value row_bytes = kb_.Int(p_.row_stride * plan_.element_bytes);
    const Value q_bytes = kb_.Int(t_.q_stride * plan_.element_bytes);
    const Value q = kb_.At(t_.q, kb_.Mul(step, kTileWords * t_.q_stride), p_.word);
    for (int j = 0; j < t_.vectors; ++j) {
      o_.Intrinsic("llvm.x86.tileloadd64", {Register(kb_, kFirstQ + j), kb_.At(q, j * plan_.lanes, p_.word), q_bytes});
    }
    for (int i = 0; i < registers_; ++i) {
      const Value rows = Register(kb_, kFirstP + i);
      o_.Intrinsic("llvm.x86.tileloadd64", {rows, kb_.At(firsts_[i], offset, p_.word), row_bytes});
      if (i == registers_ - 1) AskForNextPanel(kb_, t_, step);
      for (int j = 0; j < t_.vectors; ++j) {
        o_.Intrinsic(product, {Accumulator(i, j), rows, Register(kb_, kFirstQ + j)});
      }
    }
  }

  // Rows [row, row + count) of a register by multiply-adds.
  void Dots(const MultiplyAdd& multiply_add, int64_t i, Value row, int64_t count) {
    RegisterTile part;
    part.rows = count;
    part.vectors = t_.vectors;
    part.lanes = plan_.lanes;
    part.accumulator = part.p_element = part.q_element = p_.word;
    part.multiply_add = multiply_add;
    part.p = kb_.At(firsts_[i], kb_.Mul(row, p_.row_stride), p_.word);
    part.p_row_stride = p_.row_stride;
    part.q = t_.q;
    part.q_k_stride = t_.q_stride;
    part.q_columns = t_.q_columns;
    int64_t steps = p_.run;
    if (!p_.loops.empty()) {
      part.p_k_stride = 0;
      part.inner = p_.loops;
      part.inner.push_back({p_.run, [](KernelBuilder&, Value word) { return word; }});
      steps = 1;
    }
    const std::vector<Value> zeros(count * t_.vectors, kb_.Zero(KernelBuilder::Vector(plan_.lanes, p_.word)));
    const std::vector<Value> sums = EmitRegisterTile(kb_, part, kb_.Int(0), kb_.Int(steps), zeros);
    for (int64_t s = 0; s < count * t_.vectors; ++s) {
      kb_.Store(sums[s], Slab(FirstRow(i) + s / t_.vectors, row, s % t_.vectors));
    }
  }

  KernelBuilder& kb_;
  Ops& o_;
  const GemmPlan& plan_;
  const TileRows& p_;
  const int64_t register_rows_;
  const TileRequest& t_;
  const int64_t registers_;
  std::vector<Value> firsts_;
};

}  // namespace

TileEmitter MatrixTiles::Tile(Kernel& k, const GemmPlan& plan, const TileRows& p, const char* product,
                              const MultiplyAdd& multiply_add) const {
  return [&o = k.o, plan, p, register_rows = rows_, product, multiply_add, allowed = Allowed(k)](
             KernelBuilder& kb, const TileRequest& request, const std::vector<Value>&) {
    TileProduct tile(kb, o, plan, p, register_rows, request);
    if (tile.FillsRegisters()) {
      kb.If(allowed, [&] { tile.ByRegisters(product); }, [&] { tile.ByDots(multiply_add); });
    } else {
      tile.ByDots(multiply_add);
    }
    return std::vector<Value>();
  };
}

}  // namespace inlay::native
