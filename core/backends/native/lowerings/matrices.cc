#include "core/backends/native/lowerings/matrices.h"

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

Buffer PackConstant(FunctionEmitter& f, const Matrices& b, const GemmPlan& plan, const GemmTypes& types) {
  const int64_t matrix = plan.k * plan.packed_columns();
  Buffer packed = f.State(Product(b.batch).value() * matrix * types.accumulator_bytes);
  f.ParallelEach(
      Product(b.batch), 1e3,
      [&](Kernel& kernel, mlir::Value i) {
        mlir::Type acc = types.Accumulator(kernel.o), stored = types.Stored(kernel.o);
        mlir::Value from = b.Pointer(kernel, stored);
        if (BatchOffset offset = b.OffsetOf(f, b.batch, b.batch_strides)) {
          from = kernel.o.At(from, offset(kernel.o, i), stored);
        }
        EmitPackColumns(kernel.o, plan, {from, stored, b.row_stride, b.column_stride}, acc,
                        kernel.o.At(kernel.Pointer(packed), kernel.o.Mul(i, matrix), acc));
      },
      Phase::kInit);
  return packed;
}

}  // namespace inlay::native
