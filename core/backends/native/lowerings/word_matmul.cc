// matmul_integer, and matmul of bf16: operands as words (word_products.h), the product as any matmul's.
#include <algorithm>
#include <optional>

#include "core/backends/native/gemm.h"
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

std::optional<WordProducts> ProductsOfMatmul(FunctionEmitter& f, const Tensor& a, const Tensor& b) {
  if (ir::IsFloat(a.dtype)) {
    const bool multiplies = a.dtype == ir::DType::kBF16 && f.cpu().brain_dots;
    return multiplies && IsConstantMatrix(f, b) ? std::optional<WordProducts>({Word::kBrains}) : std::nullopt;
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

PackedWords PackWords(FunctionEmitter& f, const Tensor& b, const WordProducts& products, bool transposed,
                      const GemmPlan& plan) {
  const Matrices m = *Matrices::Of(b, false, transposed);
  const int64_t elements = m.rows.value(), depth = products.depth(), lanes = plan.lanes;
  const int64_t columns = plan.packed_columns(), matrix = plan.k * columns;
  const bool k_last = m.column_stride != Extent(1);
  const Extent batch = Product(m.batch);
  PackedWords packed;
  const bool constant = IsConstantMatrix(f, b);
  auto allocate = [&](int64_t words) {
    return constant ? f.State(words * kWordBytes) : f.Temporary(words * kWordBytes);
  };
  packed.words = allocate(batch.value() * matrix + SlackWords(plan.nr()));
  if (products.excess() != 0) packed.excess = allocate(batch.value() * columns);
  f.ParallelEach(
      batch, 1e3,
      [&](Kernel& k, Value matrix_index) {
        Ops& o = k.o;
        const Type word = o.b.getI32Type(), element = o.StoredType(b.dtype);
        const Type vector = KernelBuilder::Vector(lanes, word);
        Value from = m.Pointer(k, element);
        if (const BatchOffset offset = m.OffsetOf(f, m.batch, m.batch_strides)) {
          from = o.At(from, offset(o, matrix_index), element);
        }
        const Value to = o.At(k.Pointer(packed.words), o.Mul(matrix_index, matrix), word);
        auto load = [&](Value row, Value column, Type type) {
          const Value at = o.Add(o.Mul(row, m.row_stride), o.Mul(column, m.column_stride));
          const Value x = o.Load(type, o.At(from, at, element));
          return products.of_floats() ? o.Widen(x, o.b.getF32Type()) : x;
        };
        // Word `row` of columns from `column` on; of the last word, `present` elements.
        auto joined = [&](Value row, Value column, Type type, int64_t present) {
          Values parts;
          for (int64_t i = 0; i < present; ++i) parts.push_back(load(o.Add(o.Mul(row, depth), i), column, type));
          return present == 0 ? o.Zero(Ops::WithElement(type, word)) : products.Join(o, parts, false);
        };
        auto pack = [&](Value row, int64_t present) {
          o.For(columns / lanes, [&](Value v) {
            const Value column = o.Mul(v, lanes), panel = o.Div(column, plan.nr());
            const Value width = o.KernelBuilder::Select(o.Equal(panel, o.Int(plan.panels() - 1)),
                                                        o.Int(plan.nv_last * lanes), o.Int(plan.nr()));
            const Value at = o.Add(o.Add(o.Mul(panel, plan.k * plan.nr()), o.KernelBuilder::Mul(row, width)),
                                   o.Rem(column, plan.nr()));
            const Value target = o.At(to, at, word);
            auto one_by_one = [&] {
              o.Store(o.Zero(vector), target);
              o.For(column, o.Min(o.Add(column, lanes), o.Int(plan.n)), 1,
                    [&](Value j) { o.Store(joined(row, j, element, present), o.At(target, o.Sub(j, column), word)); });
            };
            if (k_last) return one_by_one();
            o.If(o.Less(o.Int(plan.n), o.Add(column, lanes)), one_by_one,
                 [&] { o.Store(joined(row, column, KernelBuilder::Vector(lanes, element), present), target); });
          });
        };
        const int64_t whole = elements / depth, some = CeilDiv(elements, depth);
        o.For(whole, [&](Value row) { pack(row, depth); });
        if (whole < some) pack(o.Int(whole), elements % depth);
        o.For(o.Int(some), o.Int(plan.k), 1, [&](Value row) { pack(row, 0); });
        if (products.excess() == 0) return;
        const Value excess = o.At(k.Pointer(packed.excess), o.Mul(matrix_index, columns), word);
        o.For(columns, [&](Value j) { o.Store(o.Zero(word), o.At(excess, j, word)); });
        o.For(elements, [&](Value row) {
          o.For(plan.n, [&](Value j) {
            const Value at = o.At(excess, j, word);
            const Value x = o.MulI(o.ExtendI(load(row, j, element), word, true), o.ConstI(word, products.excess()));
            o.Store(o.AddI(o.Load(word, at), x), at);
          });
        });
      },
      constant ? Phase::kInit : Phase::kRun);
  return packed;
}

absl::Status EmitIntegerMatmul(FunctionEmitter& f, const Node& n) {
  return EmitWordMatmul(f, n, *ProductsOfMatmul(f, n.in(0), n.in(1)));
}

absl::Status EmitWordMatmul(FunctionEmitter& f, const Node& n, const WordProducts& products) {
  const Tensor &ta = n.in(0), &tb = n.in(1), &out = n.out();
  if (!ta.is_static()) return EmitOpenWordMatmul(f, n, products);
  if (out.NumElements() == 0) return absl::OkStatus();
  const bool vector_a = ta.rank() == 1, vector_b = tb.rank() == 1;
  const bool transpose_a = !vector_a && n.attrs->BoolOr("transpose_a", false);
  const bool transpose_b = !vector_b && n.attrs->BoolOr("transpose_b", false);
  const bool constant = IsConstantMatrix(f, tb);
  const int64_t k = products.words(ta.dims[ta.rank() - (transpose_a ? 2 : 1)].value());
  int64_t m = vector_a ? 1 : out.dims[out.rank() - (vector_b ? 1 : 2)].value();
  ProductShape shape(out, m, vector_a, vector_b);
  const bool one_b = tb.rank() <= 2 || Product(tb.dims, 0, tb.rank() - 2) == Extent(1);
  const Extent batches_of_a = ta.rank() > 2 ? Product(ta.dims, 0, ta.rank() - 2) : Extent(1);
  const bool as_rows = one_b && !vector_a && !transpose_a && batches_of_a == Product(shape.batch);
  if (as_rows) m *= shape.TakeBatchesForRows();
  const int64_t batch = Product(shape.batch).value(), columns = vector_b ? 1 : out.dims.back().value();
  const Core& core = f.cpu().core;
  std::optional<GemmPlan> tiles;
  if (products.has_tiles(f.cpu()) && constant && !transpose_a) {
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
  if (!constant) {
    const WordMatrices right = WordsOf(f, tb, products, false, transpose_b, k);
    b = right.as_matrices;
    words = right.words;
  }
  const ColumnSource source = SourceOf(core, b, constant, m, kWordBytes);
  GemmPlan plan = tiles ? *tiles : PlanGemm(core, source, kWordBytes, batch, m, columns, k);
  if (source != ColumnSource::kOnTheFly || b.column_stride == Extent(1)) CutForThreads(&plan);
  const std::optional<MatrixTiles> registers = tiles ? std::optional<MatrixTiles>(f) : std::nullopt;
  Buffer excess;
  if (constant) {
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
