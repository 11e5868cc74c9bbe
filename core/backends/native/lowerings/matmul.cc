// Matmul on the kernels of gemm.h: operands as strided views, packing, and the epilogue that stores.
#include <algorithm>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;

// A cycle. In a whole model weights come from behind L2, at a third of this, but threads that sleep first have to wake
// (Emerald Rapids, one row by 1 MB in an LSTM, 27 us by one of two threads, as its multiply-adds alone say, 15 by both;
// 0.5 MB between calls a millisecond apart 37 and 62).
constexpr double kWeightBytes = 40;

// Few enough rows that packing a panel of b would cost more than reading it where it lies.
constexpr int64_t kFewRows = 16;
// From here on, rows that far apart strain the TLB.
constexpr int64_t kFarBytes = 2048;

ColumnSource SourceOf(const Core& core, const Matrices& b, bool constant, int64_t m, int64_t element_bytes) {
  if (constant) return ColumnSource::kPacked;
  const int64_t k = b.rows.value(), stride = b.row_stride.value() * element_bytes;
  const bool is_far = stride >= kFarBytes && k * stride >= 64 * kFarBytes;
  // A panel's part of a row is in two lines then (Zen 3, GFLOP/s: 24x196x1024 33 where it lies and 78 copied, 20x50x512
  // 55 and 65; 24x64x1024 91 and 86).
  const bool is_split = core.waits_for_l2() && stride % kLineBytes != 0 && k * 2 * kLineBytes > core.l1_bytes;
  const bool copies = m > kFewRows && (is_far || is_split || CopiesRows(core, m, k, stride));
  return b.column_stride == Extent(1) && !copies ? ColumnSource::kDirect : ColumnSource::kOnTheFly;
}

}  // namespace

absl::Status EmitMatmul(FunctionEmitter& f, const Node& n) {
  const Tensor &ta = n.in(0), &tb = n.in(1), &out = n.out();
  if (!ta.is_static() || !tb.is_static()) return EmitOpenMatmul(f, n);
  if (out.NumElements() == 0) return absl::OkStatus();
  bool vector_a = ta.rank() == 1, vector_b = tb.rank() == 1;
  auto a_of = Matrices::Of(ta, true, !vector_a && n.attrs->BoolOr("transpose_a", false));
  auto b_of = Matrices::Of(tb, false, !vector_b && n.attrs->BoolOr("transpose_b", false));
  if (!a_of.ok()) return a_of.status();
  if (!b_of.ok()) return b_of.status();
  Matrices &a = *a_of, &b = *b_of;
  int64_t m = a.rows.value(), k = a.columns.value(), columns = b.columns.value();
  Shape batch_shape(out.dims.begin(), out.dims.end() - (vector_a ? 0 : 1) - (vector_b ? 0 : 1));
  Shape row_shape = {m};
  if (Product(b.batch) == Extent(1) && !vector_a && Product(a.batch) == Product(batch_shape) && a.OneMatrix()) {
    // One b for all: the rows of all batch elements are rows of one product.
    row_shape = batch_shape;
    row_shape.push_back(m);
    m *= Product(batch_shape).value();
    a.batch.clear();
    a.batch_strides.clear();
    batch_shape.clear();
  }
  int64_t batch = Product(batch_shape).value();
  GemmTypes types(f, ta.dtype);
  bool constant = f.IsConstantParam(*b.view.base);
  ColumnSource source = SourceOf(f.cpu().core, b, constant, m, ir::ByteSize(ta.dtype));
  GemmPlan plan = PlanGemm(f.cpu().core, source, types.accumulator_bytes, batch, m, columns, k);
  // Transposing is too much to do twice.
  if (source != ColumnSource::kOnTheFly || b.column_stride == Extent(1)) CutForThreads(&plan);

  Buffer packed;
  int64_t packed_matrix = plan.k * plan.packed_columns();
  if (constant) packed = PackConstant(f, b, plan, types);
  const double cycles =
      std::max(EstimateCycles(plan), constant ? plan.packed_elements() * types.accumulator_bytes / kWeightBytes : 0);
  const double cost = cycles / std::max<int64_t>(plan.tasks(), 1) + 50;
  EmitTasks(f, plan.tasks(), cost, plan.scratch_bytes(), [&](Kernel& kernel, Value begin, Value end, Value scratch) {
    mlir::Type stored = types.Stored(kernel.o);
    GemmKernel gemm;
    gemm.plan = plan;
    gemm.accumulator = types.Accumulator(kernel.o);
    gemm.inline_epilogue = InlineEpilogue(f, n);
    gemm.p.pointer = a.Pointer(kernel, stored);
    gemm.p.element = stored;
    gemm.p.row_stride = a.row_stride.value();
    gemm.p.k_stride = a.column_stride.value();
    gemm.p.batch_offset = a.OffsetOf(f, batch_shape, a.batch_strides);
    Shape q_strides = b.batch_strides;
    if (constant) {
      q_strides = RowMajorStrides(b.batch);
      for (Extent& s : q_strides) s = s * packed_matrix;
    }
    gemm.q.batch_offset = b.OffsetOf(f, batch_shape, q_strides);
    gemm.q.pointer = constant ? kernel.Pointer(packed) : b.Pointer(kernel, stored);
    gemm.q.element = constant ? gemm.accumulator : stored;
    gemm.q.k_stride = b.row_stride.value();
    gemm.q.column_stride = b.column_stride.value();
    auto indices = [&](Value batch_index, Value row, Value column, int64_t lanes) {
      Indices at = Delinearise(kernel.o, batch_index, batch_shape);
      if (!vector_a) {
        for (const Index& i : Delinearise(kernel.o, row, row_shape)) at.push_back(i);
      }
      if (!vector_b) at.push_back(Index(column, lanes == 1 ? 0 : 1));
      return at;
    };
    gemm.epilogue = [&](KernelBuilder&, Value batch_index, Value row, Value column, Value acc) {
      kernel.StoreResult(out, indices(batch_index, row, column, Ops::Lanes(acc)), acc);
    };
    const int64_t element_bytes = ir::ByteSize(f.StoredTensor(n).dtype), bytes = kernel.ResultBytes(out);
    const bool reads = bytes > out.NumElements() * element_bytes;
    if (AsksForResults(f.cpu().core, bytes, columns * element_bytes, reads)) {
      gemm.ahead = [&](KernelBuilder&, Value batch_index, Value row, Value column) {
        kernel.PrefetchResult(out, indices(batch_index, row, column, plan.lanes), plan.lanes);
      };
    }
    EmitGemmTasks(kernel.o, gemm, begin, end, scratch);
  });
  return absl::OkStatus();
}

}  // namespace inlay::native
