#include "core/backends/native/lowerings/matrices.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/packing.h"

namespace inlay::native {

using mlir::Value;

absl::StatusOr<Matrices> Matrices::Of(const Tensor& tensor, bool left, bool transposed) {
  Matrices m;
  if (!ResolveView(tensor, &m.view)) return absl::InternalError("native: a matmul's operand has no memory");
  Shape shape = tensor.dims, strides = m.view.strides;
  if (shape.size() == 1) {
    shape.insert(left ? shape.begin() : shape.end(), Extent(1));
    strides.insert(left ? strides.begin() : strides.end(), Extent(0));
  }
  size_t rank = shape.size();
  if (transposed) {
    std::swap(shape[rank - 1], shape[rank - 2]);
    std::swap(strides[rank - 1], strides[rank - 2]);
  }
  m.rows = shape[rank - 2];
  m.columns = shape[rank - 1];
  m.row_stride = strides[rank - 2];
  m.column_stride = strides[rank - 1];
  m.batch.assign(shape.begin(), shape.end() - 2);
  m.batch_strides.assign(strides.begin(), strides.end() - 2);
  return m;
}

bool Matrices::OneMatrix() const {
  Extent expected = row_stride * rows;
  for (int i = static_cast<int>(batch.size()) - 1; i >= 0; --i) {
    if (batch[i] == Extent(1)) continue;
    if (batch_strides[i] != expected && rows * row_stride != Extent(0)) return false;
    expected = expected * batch[i];
  }
  return true;
}

Value Matrices::Pointer(Kernel& k, mlir::Type element) const {
  return k.o.At(k.Pointer(*view.base), view.offset, element);
}

BatchOffset Matrices::OffsetOf(FunctionEmitter& f, const Shape& result, Shape strides) const {
  if (Product(batch) == Extent(1)) return nullptr;
  Shape mine = batch;
  mine.insert(mine.begin(), result.size() - mine.size(), Extent(1));
  strides.insert(strides.begin(), result.size() - strides.size(), Extent(0));
  return [&f, result, mine, strides](KernelBuilder& kb, Value i) {
    if (mine == result && strides.back() != Extent(0)) {  // evenly spaced: no division
      bool even = true;
      for (size_t d = 0; d + 1 < result.size(); ++d) even &= strides[d] == strides[d + 1] * result[d + 1];
      if (even) return kb.Mul(i, strides.back());
    }
    Indices at = Delinearise(f.ops(), i, result);
    Value offset = kb.Int(0);
    for (size_t d = 0; d < at.size(); ++d) {
      if (mine[d] != Extent(1)) offset = kb.Add(offset, kb.Mul(at[d].base, strides[d]));
    }
    return offset;
  };
}

namespace {

// Few enough rows that packing a panel of b would cost more than reading it where it lies.
constexpr int64_t kFewRows = 16;
// From here on, rows that far apart strain the TLB.
constexpr int64_t kFarBytes = 2048;

}  // namespace

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

ProductShape::ProductShape(const Tensor& result, const Extent& row_count, bool vector_a, bool vector_b)
    : batch(result.dims.begin(), result.dims.end() - (vector_a ? 0 : 1) - (vector_b ? 0 : 1)),
      rows({row_count}),
      vector_a(vector_a),
      vector_b(vector_b) {}

void Matrices::DropBatches(size_t axes) {
  batch.resize(batch.size() - std::min(axes, batch.size()));
  batch_strides.resize(batch.size());
}

Extent ProductShape::TakeBatchesForRows() { return TakeBatchesForRows(batch.size()); }

Extent ProductShape::TakeBatchesForRows(size_t axes) {
  const auto first = batch.end() - static_cast<std::ptrdiff_t>(axes);
  const Extent batches = Product(Shape(first, batch.end()));
  rows.insert(rows.begin(), first, batch.end());
  batch.erase(first, batch.end());
  return batches;
}

bool ProductShape::MergeBatches(Matrices* a, Matrices* b) {
  if (vector_a) return false;
  auto extent = [](const Shape& dims, size_t from_end) {
    return from_end < dims.size() ? dims.end()[-1 - static_cast<std::ptrdiff_t>(from_end)] : Extent(1);
  };
  size_t axes = 0;
  Extent expected = a->row_stride * a->rows;
  const bool is_nothing = expected == Extent(0);
  for (; axes < batch.size(); ++axes) {
    const Extent d = extent(batch, axes);
    if (extent(b->batch, axes) != Extent(1)) break;  // a has all of d
    if (d == Extent(1)) continue;
    if (!is_nothing && extent(a->batch_strides, axes) != expected) break;
    expected = expected * d;
  }
  const bool is_all = axes == batch.size();
  if (!is_all && Product(b->batch) == Extent(1)) return false;
  a->rows = a->rows * TakeBatchesForRows(axes);
  for (Matrices* m : {a, b}) m->DropBatches(axes);
  return is_all;
}

Indices ProductShape::At(Kernel& k, Value batch_index, Value row, Value column, int64_t lanes) const {
  Indices at = Delinearise(k.o, batch_index, batch);
  if (!vector_a) {
    for (const Index& i : Delinearise(k.o, row, rows)) at.push_back(i);
  }
  if (!vector_b) at.push_back(Index(column, lanes == 1 ? 0 : 1));
  return at;
}

void StoreProduct(FunctionEmitter& f, Kernel& kernel, const Node& n, const ProductShape& shape, GemmKernel* gemm) {
  const Tensor& out = n.out();
  gemm->inline_epilogue = InlineEpilogue(f, n);
  gemm->epilogue = [&kernel, &out, shape](KernelBuilder&, Value batch, Value row, Value column, Value sum) {
    kernel.StoreResult(out, shape.At(kernel, batch, row, column, Ops::Lanes(sum)), sum);
  };
  const int64_t element_bytes = ir::ByteSize(f.StoredTensor(n).dtype), bytes = kernel.ResultBytes(out);
  const bool reads = bytes > out.NumElements() * element_bytes;
  const bool asks =
      AsksForResults(f.cpu().core, bytes, gemm->plan.n * element_bytes, reads) || ResultsComeLate(gemm->plan, bytes);
  if (!asks) return;
  gemm->ahead = [&kernel, &out, shape, lanes = gemm->plan.lanes](KernelBuilder&, Value batch, Value row, Value column) {
    kernel.PrefetchResult(out, shape.At(kernel, batch, row, column, lanes), lanes);
  };
}

Buffer Widened(FunctionEmitter& f, const GemmTypes& types, Matrices* matrices) {
  const Matrices a = *matrices;
  const int64_t k = a.columns.value(), lanes = f.LanesForBytes(types.accumulator_bytes, a.columns);
  const bool vectors = a.column_stride == Extent(1);
  const Extent rows = Product(a.batch) * a.rows;
  const Buffer wide = f.Temporary(rows * Extent(k * types.accumulator_bytes));
  const double cost = static_cast<double>(k) * 3 / static_cast<double>(vectors ? lanes : 1) + 10;
  f.ParallelEach(rows, cost, [&](Kernel& kernel, Value item) {
    Ops& o = kernel.o;
    const mlir::Type stored = types.Stored(o), acc = types.Accumulator(o);
    Value from = a.Pointer(kernel, stored), row = item;
    if (const BatchOffset offset = a.OffsetOf(f, a.batch, a.batch_strides)) {
      from = o.At(from, offset(o, o.Div(item, a.rows)), stored);
      row = o.Rem(item, a.rows);
    }
    from = o.At(from, o.Mul(row, a.row_stride), stored);
    const Value to = o.At(kernel.Pointer(wide), o.Mul(item, k), acc);
    auto widen = [&](Value i, mlir::Type type) {
      const Value x = o.Load(type, o.At(from, o.Mul(i, a.column_stride), stored));
      o.Store(o.Widen(x, acc), o.At(to, i, acc));
    };
    const int64_t whole = vectors ? k / lanes * lanes : 0;
    o.For(o.Int(0), o.Int(whole), lanes, [&](Value i) { widen(i, KernelBuilder::Vector(lanes, stored)); });
    o.For(o.Int(whole), o.Int(k), 1, [&](Value i) { widen(i, stored); });
  });
  matrices->row_stride = Extent(k);
  matrices->column_stride = Extent(1);
  matrices->batch_strides = RowMajorStrides(a.batch);
  for (Extent& s : matrices->batch_strides) s = s * a.rows * Extent(k);
  return wide;
}

Buffer PackConstant(FunctionEmitter& f, const Matrices& b, const GemmPlan& plan, const GemmTypes& types) {
  const int64_t matrix = plan.k * plan.packed_columns();
  Buffer packed = f.State(Product(b.batch).value() * matrix * types.packed_bytes());
  f.ParallelEach(
      Product(b.batch), 1e3,
      [&](Kernel& kernel, mlir::Value i) {
        mlir::Type element = types.Packed(kernel.o), stored = types.Stored(kernel.o);
        mlir::Value from = b.Pointer(kernel, stored);
        if (BatchOffset offset = b.OffsetOf(f, b.batch, b.batch_strides)) {
          from = kernel.o.At(from, offset(kernel.o, i), stored);
        }
        EmitPackColumns(kernel.o, plan, {from, stored, b.row_stride, b.column_stride}, element,
                        kernel.o.At(kernel.Pointer(packed), kernel.o.Mul(i, matrix), element));
      },
      Phase::kInit);
  return packed;
}

}  // namespace inlay::native
