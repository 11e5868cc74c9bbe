#include "core/backends/native/packing.h"

#include <algorithm>
#include <functional>

#include "core/backends/native/rounding.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

bool IsPowerOfTwo(int64_t x) { return (x & (x - 1)) == 0; }

void CopyElement(KernelBuilder& kb, const StridedMatrix& from, Value k, Value j, Type accumulator, Value to) {
  Value at = kb.Add(kb.Mul(k, from.k_stride), kb.Mul(j, from.j_stride));
  kb.Store(kb.Widen(kb.Load(from.element, kb.At(from.pointer, at, from.element)), accumulator), to);
}

}  // namespace

// In the shuffles that x86 has as one instruction each, two a cycle (16x16 took four times as long by general ones):
// interleaving within 128 bits transposes the squares there, then the squares change places.
std::vector<Value> TransposeSquare(KernelBuilder& kb, std::vector<Value> rows) {
  int64_t n = rows.size();
  int64_t bits = mlir::cast<mlir::VectorType>(rows[0].getType()).getElementTypeBitWidth();
  int64_t lane = std::min<int64_t>(n, std::max<int64_t>(128 / bits, 1)), lanes = n / lane;
  // Element i of a result is that of number from(i) in x followed by y.
  auto shuffle = [&](Value x, Value y, const std::function<int64_t(int64_t)>& from) -> Value {
    llvm::SmallVector<int64_t> mask(n);
    for (int64_t i = 0; i < n; ++i) mask[i] = from(i);
    return kb.b.create<mlir::vector::ShuffleOp>(kb.loc, x, y, mask);
  };
  for (int64_t round = 1; round < lane; round *= 2) {
    std::vector<Value> next(n);
    for (int64_t g = 0; g < n; g += lane) {
      for (int64_t r = 0; r < lane / 2; ++r) {
        for (int64_t high : {0, 1}) {
          next[g + 2 * r + high] = shuffle(rows[g + r], rows[g + r + lane / 2], [&](int64_t i) {
            return i / lane * lane + high * lane / 2 + i % lane / 2 + (i % 2) * n;
          });
        }
      }
    }
    rows = next;
  }
  // As above with lanes for elements: the even ones of x and of y, and the odd ones.
  for (int64_t round = 1; round < lanes; round *= 2) {
    std::vector<Value> next(n);
    for (int64_t c = 0; c < lane; ++c) {
      for (int64_t g = 0; g < lanes / 2; ++g) {
        for (int64_t odd : {0, 1}) {
          next[(g + odd * lanes / 2) * lane + c] =
              shuffle(rows[2 * g * lane + c], rows[(2 * g + 1) * lane + c],
                      [&](int64_t i) { return (2 * (i / lane) + odd) * lane + i % lane; });
        }
      }
    }
    rows = next;
  }
  return rows;
}

namespace {

// Rows of Q that lie side by side: each a run of vectors.
void CopyRows(KernelBuilder& kb, const StridedMatrix& from, Value rows, int64_t vectors, int64_t lanes, int64_t width,
              Type accumulator, Value to, const std::function<Value(Value pointer, int64_t v)>& load) {
  kb.For(kb.Int(0), rows, 1, [&](Value k) {
    Value source = kb.At(from.pointer, kb.Mul(k, from.k_stride), from.element);
    Value target = kb.At(to, kb.Mul(k, width), accumulator);
    for (int64_t v = 0; v < vectors; ++v) {
      kb.Store(kb.Widen(load(source, v), accumulator), kb.At(target, v * lanes, accumulator));
    }
  });
}

// Any other strides: squares of vectors transposed where k runs along memory, `square_columns` of them; what is left
// one element at a time.
void CopyColumns(KernelBuilder& kb, const StridedMatrix& from, Value rows, Value columns, Value square_columns,
                 int64_t lanes, int64_t width, Type accumulator, Value to) {
  Type vector = KernelBuilder::Vector(lanes, from.element);
  Value k_scalar = kb.Int(0);  // rows below are done
  if (square_columns) {
    Value k_end = kb.Mul(kb.Div(rows, lanes), lanes);
    kb.For(kb.Int(0), k_end, lanes, [&](Value k) {
      kb.For(kb.Int(0), square_columns, lanes, [&](Value j) {
        Value source = kb.At(from.pointer, kb.Add(k, kb.Mul(j, from.j_stride)), from.element);
        std::vector<Value> block;
        for (int64_t c = 0; c < lanes; ++c) {
          Value column = kb.Load(vector, kb.At(source, Extent(c) * from.j_stride, from.element));
          block.push_back(kb.Widen(column, accumulator));
        }
        block = TransposeSquare(kb, block);
        Value target = kb.At(to, kb.Add(kb.Mul(k, width), j), accumulator);
        for (int64_t r = 0; r < lanes; ++r) kb.Store(block[r], kb.At(target, r * width, accumulator));
      });
    });
    int64_t done = 0, all = -1;
    if (!IsConstant(square_columns, &done) || !IsConstant(columns, &all) || done < all) {
      kb.For(kb.Int(0), k_end, 1, [&](Value k) {
        kb.For(square_columns, columns, 1, [&](Value j) {
          CopyElement(kb, from, k, j, accumulator, kb.At(to, kb.Add(kb.Mul(k, width), j), accumulator));
        });
      });
    }
    k_scalar = k_end;
  }
  kb.For(k_scalar, rows, 1, [&](Value k) {
    kb.For(kb.Int(0), columns, 1, [&](Value j) {
      CopyElement(kb, from, k, j, accumulator, kb.At(to, kb.Add(kb.Mul(k, width), j), accumulator));
    });
  });
}

bool CanTransposeSquares(const StridedMatrix& from, int64_t lanes) {
  return from.k_stride == Extent(1) && lanes <= 16 && lanes > 1 && IsPowerOfTwo(lanes);
}

}  // namespace

void EmitPackBlock(KernelBuilder& kb, const StridedMatrix& from, Value rows, int64_t vectors, int64_t columns,
                   int64_t lanes, Type accumulator, Value to, int64_t to_stride) {
  int64_t width = to_stride > 0 ? to_stride : vectors * lanes;
  Type vector = KernelBuilder::Vector(lanes, from.element);
  if (from.j_stride == Extent(1)) {
    CopyRows(kb, from, rows, vectors, lanes, width, accumulator, to, [&](Value source, int64_t v) -> Value {
      int64_t valid = std::clamp<int64_t>(columns - v * lanes, 0, lanes);
      if (valid == 0) return kb.Zero(vector);
      return kb.LoadFirst(vector, kb.At(source, v * lanes, from.element), valid);
    });
    return;
  }
  bool squares = CanTransposeSquares(from, lanes) && columns >= lanes;
  CopyColumns(kb, from, rows, kb.Int(columns), squares ? kb.Int(columns / lanes * lanes) : Value(), lanes, width,
              accumulator, to);
}

void EmitPackBlock(KernelBuilder& kb, const StridedMatrix& from, Value rows, int64_t vectors, Value columns,
                   int64_t lanes, Type accumulator, Value to) {
  int64_t width = vectors * lanes;
  // Masked loads of narrow elements are no instruction of AVX2's.
  if (from.j_stride == Extent(1) && from.element.getIntOrFloatBitWidth() >= 32) {
    Type vector = KernelBuilder::Vector(lanes, from.element);
    std::vector<Value> masks;
    for (int64_t v = 0; v < vectors; ++v) {
      masks.push_back(kb.LaneMask(lanes, kb.Int(0), kb.Sub(columns, kb.Int(v * lanes))));
    }
    CopyRows(kb, from, rows, vectors, lanes, width, accumulator, to, [&](Value source, int64_t v) {
      return kb.MaskedLoad(kb.At(source, v * lanes, from.element), masks[v], kb.Zero(vector));
    });
    return;
  }
  Value squares = CanTransposeSquares(from, lanes) ? kb.Mul(kb.Div(columns, lanes), lanes) : Value();
  CopyColumns(kb, from, rows, columns, squares, lanes, width, accumulator, to);
}

void EmitPackColumns(KernelBuilder& kb, const GemmPlan& plan, const StridedMatrix& from, Type accumulator, Value to) {
  auto panel = [&](Value j, int64_t vectors, int64_t columns) {
    StridedMatrix part = from;
    part.pointer = kb.At(from.pointer, kb.Mul(j, Extent(plan.nr()) * from.j_stride), from.element);
    EmitPackBlock(kb, part, kb.Int(plan.k), vectors, columns, plan.lanes, accumulator,
                  kb.At(to, kb.Mul(j, plan.k * plan.nr()), accumulator));
  };
  bool last_differs = plan.n_last() < plan.nr();
  kb.For(plan.panels() - (last_differs ? 1 : 0), [&](Value j) { panel(j, plan.nv, plan.nr()); });
  if (last_differs) panel(kb.Int(plan.panels() - 1), plan.nv_last, plan.n_last());
}

Value PackedRow(KernelBuilder& kb, const GemmPlan& plan, Value i) {
  const int64_t whole = plan.whole_tiles(), whole_rows = whole * plan.mr, tile_elements = plan.mr * plan.k;
  auto in_tiles = [&](Value row, int64_t rows) {
    return kb.Add(kb.Mul(kb.Div(row, rows), tile_elements), kb.Rem(row, rows));
  };
  if (plan.lower_tiles() == 0) return in_tiles(i, plan.mr);
  const Value lower = kb.Add(in_tiles(kb.Sub(i, kb.Int(whole_rows)), plan.mr - 1), whole * tile_elements);
  return kb.Select(kb.Less(i, kb.Int(whole_rows)), in_tiles(i, plan.mr), lower);
}

void EmitPackRows(KernelBuilder& kb, const GemmPlan& plan, const StridedMatrix& from, Value to) {
  kb.For(plan.m, [&](Value i) {
    const Value row = kb.At(to, PackedRow(kb, plan, i), from.element);
    kb.For(plan.k,
           [&](Value k) { CopyElement(kb, from, k, i, from.element, kb.At(row, kb.Mul(k, plan.mr), from.element)); });
  });
}

}  // namespace inlay::native
