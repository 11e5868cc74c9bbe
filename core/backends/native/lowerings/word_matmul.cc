// matmul_integer, and matmul of bf16: operands as words (word_products.h), the product as any matmul's.
#include <algorithm>
#include <optional>

#include "core/backends/native/gemm.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/word_products.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

// Constant where it lies, transposed as it may be.
bool IsConstantMatrix(FunctionEmitter& f, const Tensor& tensor) {
  View view;
  return ResolveView(tensor, &view) && f.IsConstantParam(*view.base);
}

}  // namespace

std::optional<WordProducts> ProductsOfMatmul(FunctionEmitter& f, const Node& matmul) {
  const Tensor &a = matmul.in(0), &b = matmul.in(1), &out = matmul.out();
  if (ir::IsFloat(a.dtype)) {
    if (a.dtype != ir::DType::kBF16 || !f.cpu().brain_dots) return std::nullopt;
    // Packing is too much for a few rows.
    const bool pays =
        a.is_static() && b.is_static() && a.rank() > 1 && b.rank() > 1 && out.dims[out.rank() - 2].value() >= kTileRows;
    return pays || IsConstantMatrix(f, b) ? std::optional<WordProducts>({Word::kBrains}) : std::nullopt;
  }
  WordProducts products{Word::kShorts, a.dtype == ir::DType::kI8, b.dtype == ir::DType::kI8};
  const bool differ = products.x_signed != products.w_signed;
  if (f.cpu().byte_dots && (differ || (products.w_signed && f.IsConstantParam(b)))) products.word = Word::kBytes;
  return products;
}

WordMatrices WordsOf(FunctionEmitter& f, const Tensor& t, const WordProducts& products, bool left, bool transposed,
                     int64_t row_words) {
  const int rank = t.rank();
  const bool k_last = rank == 1 || left != transposed;
  const Extent other = rank == 1 ? Extent(1) : t.dims[rank - (k_last ? 2 : 1)];
  const int64_t k = products.words(t.dims[rank - (k_last ? 1 : 2)].value());
  WordMatrices result;
  result.words = k_last ? RowsOfWords(f, t, products, left, row_words) : Words(f, t, products, left, rank - 2, 1);
  Matrices& m = result.as_matrices;
  m.rows = left ? other : Extent(k);
  m.columns = left ? Extent(k) : other;
  const Extent k_stride = k_last ? Extent(1) : other, stride = k_last ? row_words : 1;
  m.row_stride = left ? stride : k_stride;
  m.column_stride = left ? k_stride : stride;
  if (rank > 2) m.batch.assign(t.dims.begin(), t.dims.end() - 2);
  m.batch_strides = RowMajorStrides(m.batch);
  for (Extent& s : m.batch_strides) s = s * other * Extent(k_last ? row_words : k);
  return result;
}

void EmitPackWords(Ops& o, const WordProducts& products, const GemmPlan& plan, const StridedMatrix& from,
                   int64_t elements, Value panel, Value to) {
  const Type word = o.b.getI32Type();
  const int64_t depth = products.depth(), lanes = plan.lanes, whole = elements / depth, some = CeilDiv(elements, depth);
  const bool are_words = products.words_lie_in_memory() && from.k_stride == Extent(1) && from.j_stride.is_static() &&
                         from.j_stride.value() % depth == 0;
  auto pack = [&](int64_t vectors, int64_t columns) {
    StridedMatrix part = from;
    part.pointer = o.At(from.pointer, o.Mul(panel, Extent(plan.nr()) * from.j_stride), from.element);
    const Value panel_words = o.At(to, o.Mul(panel, plan.k * plan.nr()), word);
    // Words `row` of `valid` columns from j on; of the last word, `present` elements.
    auto joined = [&](Type type, Value row, int64_t present, Value j, int64_t valid) {
      Values parts;
      for (int64_t i = 0; i < present; ++i) {
        const Value k = o.KernelBuilder::Add(o.Mul(row, depth), i);
        const Value at = o.At(part.pointer, o.Add(o.Mul(k, part.k_stride), o.Mul(j, part.j_stride)), part.element);
        const Value x = valid == 1 ? o.Load(type, at) : o.LoadFirst(type, at, valid);
        parts.push_back(products.of_floats() ? o.Widen(x, o.b.getF32Type()) : x);
      }
      return products.Join(o, parts, /*of_x=*/false);
    };
    auto pack_row = [&](Value row, int64_t present) {
      for (int64_t v = 0; v < vectors; ++v) {
        const Value target = o.At(panel_words, o.Add(o.Mul(row, vectors * lanes), v * lanes), word);
        const int64_t valid = std::clamp<int64_t>(columns - v * lanes, 0, lanes);
        const Type vector = KernelBuilder::Vector(lanes, part.element);
        if (present > 0 && valid > 1 && part.j_stride == Extent(1)) {
          o.Store(joined(vector, row, present, o.Int(v * lanes), valid), target);
          continue;
        }
        o.Store(o.Zero(KernelBuilder::Vector(lanes, word)), target);
        if (present == 0) continue;
        o.For(valid, [&](Value j) {
          o.Store(joined(part.element, row, present, o.Add(j, v * lanes), 1), o.At(target, j, word));
        });
      }
    };
    if (are_words) {
      const StridedMatrix words = {part.pointer, word, 1, from.j_stride / depth};
      EmitPackBlock(o, words, o.Int(whole), vectors, columns, lanes, word, panel_words);
    } else {
      o.For(whole, [&](Value row) { pack_row(row, depth); });
    }
    if (whole < some) pack_row(o.Int(whole), elements % depth);
    o.For(o.Int(some), o.Int(plan.k), 1, [&](Value row) { pack_row(row, 0); });
  };
  if (plan.n_last() == plan.nr()) return pack(plan.nv, plan.nr());
  o.If(
      o.Equal(panel, o.Int(plan.panels() - 1)), [&] { pack(plan.nv_last, plan.n_last()); },
      [&] {
        if (plan.panels() > 1) pack(plan.nv, plan.nr());
      });
}

PackedWords PackWords(FunctionEmitter& f, const Tensor& b, const WordProducts& products, bool transposed,
                      const GemmPlan& plan) {
  const Matrices m = *Matrices::Of(b, false, transposed);
  const int64_t elements = m.rows.value(), columns = plan.packed_columns();
  const Extent batch = Product(m.batch);
  PackedWords packed;
  const bool constant = IsConstantMatrix(f, b);
  const Phase phase = constant ? Phase::kInit : Phase::kRun;
  auto allocate = [&](int64_t words) {
    return constant ? f.State(words * kWordBytes) : f.Temporary(words * kWordBytes);
  };
  auto matrix = [&](Kernel& k, Value index) {
    const Type element = k.o.StoredType(b.dtype);
    const BatchOffset offset = m.OffsetOf(f, m.batch, m.batch_strides);
    const Value from = m.Pointer(k, element);
    return StridedMatrix{offset ? k.o.At(from, offset(k.o, index), element) : from, element, m.row_stride,
                         m.column_stride};
  };
  packed.words = allocate(batch.value() * plan.k * columns + SlackWords(plan.nr()));
  f.ParallelEach(
      batch * Extent(plan.panels()), static_cast<double>(plan.k * plan.nr()) / plan.lanes * 4,
      [&](Kernel& k, Value item) {
        const Value index = k.o.Div(item, plan.panels());
        const Value to = k.o.At(k.Pointer(packed.words), k.o.Mul(index, plan.k * columns), k.o.b.getI32Type());
        EmitPackWords(k.o, products, plan, matrix(k, index), elements, k.o.Rem(item, plan.panels()), to);
      },
      phase);
  if (products.excess() == 0) return packed;
  packed.excess = allocate(batch.value() * columns);
  f.ParallelEach(
      batch, static_cast<double>(elements * plan.n),
      [&](Kernel& k, Value index) {
        Ops& o = k.o;
        const Type word = o.b.getI32Type();
        const Value excess = o.At(k.Pointer(packed.excess), o.Mul(index, columns), word);
        const StridedMatrix from = matrix(k, index);
        o.For(columns, [&](Value j) { o.Store(o.Zero(word), o.At(excess, j, word)); });
        o.For(elements, [&](Value row) {
          o.For(plan.n, [&](Value j) {
            const Value offset = o.Add(o.Mul(row, from.k_stride), o.Mul(j, from.j_stride));
            const Value weight = o.ExtendI(o.Load(from.element, o.At(from.pointer, offset, from.element)), word, true);
            const Value at = o.At(excess, j, word);
            const Value x = o.MulI(weight, o.ConstI(word, products.excess()));
            o.Store(o.AddI(o.Load(word, at), x), at);
          });
        });
      },
      phase);
  return packed;
}

absl::Status EmitIntegerMatmul(FunctionEmitter& f, const Node& n) {
  return EmitWordMatmul(f, n, *ProductsOfMatmul(f, n));
}

absl::Status EmitWordMatmul(FunctionEmitter& f, const Node& n, const WordProducts& products) {
  const Tensor &ta = n.in(0), &tb = n.in(1), &out = n.out();
  if (!ta.is_static()) return EmitOpenWordMatmul(f, n, products);
  if (out.NumElements() == 0) return absl::OkStatus();
  const bool vector_a = ta.rank() == 1, vector_b = tb.rank() == 1;
  const bool transpose_a = !vector_a && n.attrs->BoolOr("transpose_a", false);
  const bool transpose_b = !vector_b && n.attrs->BoolOr("transpose_b", false);
  const bool packs = products.of_floats() || IsConstantMatrix(f, tb);
  const int64_t k = products.words(ta.dims[ta.rank() - (transpose_a ? 2 : 1)].value());
  int64_t m = vector_a ? 1 : out.dims[out.rank() - (vector_b ? 1 : 2)].value();
  ProductShape shape(out, m, vector_a, vector_b);
  const bool one_b = tb.rank() <= 2 || Product(tb.dims, 0, tb.rank() - 2) == Extent(1);
  const Extent batches_of_a = ta.rank() > 2 ? Product(ta.dims, 0, ta.rank() - 2) : Extent(1);
  const bool as_rows = one_b && !vector_a && !transpose_a && batches_of_a == Product(shape.batch);
  if (as_rows) m *= shape.TakeBatchesForRows().value();
  const int64_t batch = Product(shape.batch).value(), columns = vector_b ? 1 : out.dims.back().value();
  const Core& core = f.cpu().core;
  std::optional<GemmPlan> tiles;
  if (products.has_tiles(f.cpu()) && packs && !transpose_a) {
    tiles = PlanTiles(core, ColumnSource::kPacked, batch, m, columns, products.words_of_tiles(k));
  }
  WordMatrices left = WordsOf(f, ta, products, true, transpose_a, tiles ? RoundUp(k, kTileWords) : k);
  Matrices& a = left.as_matrices;
  if (as_rows) {
    a.batch.clear();
    a.batch_strides.clear();
  }
  Matrices b;
  Buffer words;
  if (!packs) {
    const WordMatrices right = WordsOf(f, tb, products, false, transpose_b, k);
    b = right.as_matrices;
    words = right.words;
  }
  const ColumnSource source = SourceOf(core, b, packs, m, kWordBytes);
  GemmPlan plan = tiles ? *tiles : PlanGemm(core, source, kWordBytes, batch, m, columns, k);
  if (source != ColumnSource::kOnTheFly || b.column_stride == Extent(1)) CutForThreads(&plan);
  const std::optional<MatrixTiles> registers = tiles ? std::optional<MatrixTiles>(f) : std::nullopt;
  Buffer excess;
  if (packs) {
    const PackedWords packed = PackWords(f, tb, products, transpose_b, plan);
    words = packed.words;
    excess = packed.excess;
    if (tb.rank() > 2) b.batch.assign(tb.dims.begin(), tb.dims.end() - 2);
    b.batch_strides = RowMajorStrides(b.batch);
    for (Extent& s : b.batch_strides) s = s * Extent(plan.k * plan.packed_columns());
  }
  Shape excess_strides = RowMajorStrides(b.batch);
  for (Extent& s : excess_strides) s = s * Extent(plan.packed_columns());
  const double cost = EstimateCycles(plan) / std::max<int64_t>(plan.tasks(), 1) + 50;
  EmitTasks(f, plan.tasks(), cost, plan.scratch_bytes(), [&](Kernel& kernel, Value begin, Value end, Value scratch) {
    const Type word = kernel.o.StoredType(products.type());
    if (registers) registers->Begin(kernel);
    GemmKernel gemm;
    gemm.plan = plan;
    gemm.accumulator = word;
    gemm.multiply_add = products.multiply_add(kernel.o, /*p_is_x=*/true);
    gemm.p.pointer = kernel.Pointer(left.words);
    gemm.p.element = word;
    gemm.p.row_stride = a.row_stride.value();
    gemm.p.k_stride = a.column_stride.value();
    gemm.p.batch_offset = a.OffsetOf(f, shape.batch, a.batch_strides);
    gemm.q.pointer = kernel.Pointer(words);
    gemm.q.element = word;
    gemm.q.k_stride = b.row_stride.value();
    gemm.q.column_stride = b.column_stride.value();
    gemm.q.batch_offset = b.OffsetOf(f, shape.batch, b.batch_strides);
    StoreProduct(f, kernel, n, shape, &gemm);
    SubtractExcess(kernel, products, excess, b.OffsetOf(f, shape.batch, excess_strides), &gemm);
    if (registers) {
      gemm.tile = registers->Tile(kernel, plan, gemm.p, products.tile_product(/*p_is_x=*/true), gemm.multiply_add);
      gemm.inline_epilogue = false;
    }
    EmitGemmTasks(kernel.o, gemm, begin, end, scratch);
    if (registers) registers->End(kernel);
  });
  return absl::OkStatus();
}

}  // namespace inlay::native
