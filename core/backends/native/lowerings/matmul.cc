// Matmul on the kernels of gemm.h: operands as strided views, packing, and the epilogue that stores.
#include <algorithm>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/lowerings/dot_products.h"
#include "core/backends/native/lowerings/few_rows.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/word_products.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

// A cycle. In a whole model weights come from behind L2, at a third of this, but threads that sleep first have to wake
// (Emerald Rapids, one row by 1 MB in an LSTM, 27 us by one of two threads, as its multiply-adds alone say, 15 by both;
// 0.5 MB between calls a millisecond apart 37 and 62).
constexpr double kWeightBytes = 40;

// Weights of f16 and bf16 stay as narrow as they are for so many rows, which wait for them, and are widened each time
// they are read. More rows have them widened once, when they are packed.
constexpr int64_t kMostNarrowRows = 8;

}  // namespace

absl::Status EmitMatmul(FunctionEmitter& f, const Node& n) {
  const Tensor &ta = n.in(0), &tb = n.in(1), &out = n.out();
  // Integers' sums are of their own type here.
  const bool fits = ta.dims.back().is_static() && (ta.is_static() || !n.attrs->BoolOr("transpose_a", false));
  if (ir::IsFloat(ta.dtype) && fits) {
    if (const std::optional<WordProducts> products = ProductsOfMatmul(f, n)) {
      return EmitWordMatmul(f, n, *products);
    }
  }
  if (!ta.is_static() || !tb.is_static()) return EmitOpenMatmul(f, n);
  if (out.NumElements() == 0) return absl::OkStatus();
  bool vector_a = ta.rank() == 1, vector_b = tb.rank() == 1;
  auto a_of = Matrices::Of(ta, true, !vector_a && n.attrs->BoolOr("transpose_a", false));
  auto b_of = Matrices::Of(tb, false, !vector_b && n.attrs->BoolOr("transpose_b", false));
  if (!a_of.ok()) return a_of.status();
  if (!b_of.ok()) return b_of.status();
  Matrices &a = *a_of, &b = *b_of;
  ProductShape shape(out, a.rows, vector_a, vector_b);
  shape.MergeBatches(&a, &b);
  int64_t m = a.rows.value(), k = a.columns.value(), columns = b.columns.value();
  int64_t batch = Product(shape.batch).value();
  GemmTypes types(f, ta.dtype);
  bool constant = f.IsConstantParam(*b.view.base);
  ColumnSource source = SourceOf(f.cpu().core, b, constant, m, ir::ByteSize(ta.dtype));
  GemmPlan plan = PlanGemm(f.cpu().core, source, types.accumulator_bytes, batch, m, columns, k, TailRows::kShared);
  if (const auto dots = PlanDotProducts(plan, types, a, b, constant)) {
    EmitDotProducts(f, n, *dots, types, a, b, shape);
    return absl::OkStatus();
  }
  if (!constant) {
    if (const auto few = PlanFewRows(f.cpu().core, types, a.rows, a.column_stride, b)) {
      EmitFewRowsMatmul(f, n, *few, types, a, b, shape);
      return absl::OkStatus();
    }
  }
  const bool copies_rows = source == ColumnSource::kOnTheFly && b.column_stride == Extent(1);
  // Not of blocks of k, which follow each other in a panel.
  if (copies_rows && plan.k_blocks() == 1) {
    plan.prefetch = RowsComeLate(f.cpu().core, k * columns * ir::ByteSize(ta.dtype));
  }
  // Transposing is too much to do twice.
  if (source != ColumnSource::kOnTheFly || copies_rows) CutForThreads(&plan);

  const bool widens = types.dtype != types.accumulator_dtype && plan.panels() > 1;
  Buffer wide;
  if (widens) wide = Widened(f, types, &a);
  Buffer packed;
  int64_t packed_matrix = plan.k * plan.packed_columns();
  if (constant && m <= kMostNarrowRows) types.KeepNarrow(f.cpu());
  if (constant) packed = PackConstant(f, b, plan, types);
  const double cycles =
      std::max(EstimateCycles(plan), constant ? plan.packed_elements() * types.packed_bytes() / kWeightBytes : 0);
  const double cost = cycles / std::max<int64_t>(plan.tasks(), 1) + 50;
  EmitTasks(f, plan.tasks(), cost, plan.scratch_bytes(), [&](Kernel& kernel, Value begin, Value end, Value scratch) {
    mlir::Type stored = types.Stored(kernel.o);
    GemmKernel gemm;
    gemm.plan = plan;
    gemm.accumulator = types.Accumulator(kernel.o);
    gemm.p.pointer = widens ? kernel.Pointer(wide) : a.Pointer(kernel, stored);
    gemm.p.element = widens ? gemm.accumulator : stored;
    gemm.p.row_stride = a.row_stride.value();
    gemm.p.k_stride = a.column_stride.value();
    gemm.p.batch_offset = a.OffsetOf(f, shape.batch, a.batch_strides);
    Shape q_strides = b.batch_strides;
    if (constant) {
      q_strides = RowMajorStrides(b.batch);
      for (Extent& s : q_strides) s = s * packed_matrix;
    }
    gemm.q.batch_offset = b.OffsetOf(f, shape.batch, q_strides);
    gemm.q.pointer = constant ? kernel.Pointer(packed) : b.Pointer(kernel, stored);
    gemm.q.element = constant ? types.Packed(kernel.o) : stored;
    gemm.q.k_stride = b.row_stride.value();
    gemm.q.column_stride = b.column_stride.value();
    StoreProduct(f, kernel, n, shape, &gemm);
    EmitGemmTasks(kernel.o, gemm, begin, end, scratch);
  });
  return absl::OkStatus();
}

}  // namespace inlay::native
