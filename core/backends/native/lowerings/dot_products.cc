#include "core/backends/native/lowerings/dot_products.h"

#include <algorithm>
#include <vector>

#include "core/backends/native/gemm_cost.h"

namespace inlay::native {
namespace {

using mlir::Value;
using Values = std::vector<Value>;

constexpr int64_t kMostColumns = 4, kMostSums = 12;
// A sum's lanes are added, and it is stored as a scalar; of a group of rows.
constexpr double kSumCycles = 10, kGroupCycles = 20, kLoadsPerCycle = 1.6;
constexpr double kClearly = 0.8;

// b's columns one after the other, k side by side.
Buffer PackColumns(FunctionEmitter& f, const Matrices& b, const DotProducts& dots, const GemmTypes& types) {
  const Buffer packed = f.State(dots.n * dots.k * types.accumulator_bytes);
  f.ParallelEach(
      dots.n, 1e3,
      [&](Kernel& kernel, Value column) {
        Ops& o = kernel.o;
        const mlir::Type element = types.Stored(o);
        const Value from = o.At(b.Pointer(kernel, element), o.Mul(column, b.column_stride), element);
        const Value to = o.At(kernel.Pointer(packed), o.Mul(column, dots.k), element);
        o.For(dots.k, [&](Value i) {
          o.Store(o.Load(element, o.At(from, o.Mul(i, b.row_stride), element)), o.At(to, i, element));
        });
      },
      Phase::kInit);
  return packed;
}

}  // namespace

double DotProducts::group_cycles() const {
  const double steps = static_cast<double>(CeilDiv(k, lanes)), sums = static_cast<double>(rows * n);
  const double step = std::max(static_cast<double>(rows + n) / kLoadsPerCycle, sums / 2);
  return steps * step + sums * kSumCycles + kGroupCycles;
}

std::optional<DotProducts> PlanDotProducts(const GemmPlan& other, const GemmTypes& types, const Matrices& a,
                                           const Matrices& b, bool constant) {
  const Extent one(1);
  if (!ir::IsFloat(types.dtype) || types.dtype != types.accumulator_dtype || other.batch > 1) return std::nullopt;
  if (other.n > kMostColumns || a.column_stride != one || (b.row_stride != one && !constant)) return std::nullopt;
  DotProducts dots;
  dots.n = other.n;
  dots.k = other.k;
  dots.lanes = other.lanes;
  dots.rows = std::min(other.m, dots.n == kMostColumns ? 2 : kMostSums / std::max<int64_t>(dots.n, 3));
  const double cycles = static_cast<double>(CeilDiv(other.m, dots.rows)) * dots.group_cycles();
  if (dots.k < dots.lanes || cycles > kClearly * EstimateCycles(other)) return std::nullopt;
  return dots;
}

void EmitDotProducts(FunctionEmitter& f, const Node& matmul, const DotProducts& dots, const GemmTypes& types,
                     const Matrices& a, const Matrices& b, const ProductShape& shape) {
  const bool in_place = b.row_stride == Extent(1);
  Buffer packed;
  if (!in_place) packed = PackColumns(f, b, dots, types);
  f.Parallel(CeilDiv(a.rows, dots.rows), dots.group_cycles(), [&](Kernel& kernel, Value begin, Value end) {
    Ops& o = kernel.o;
    const mlir::Type element = types.Stored(o), vector = KernelBuilder::Vector(dots.lanes, element);
    const Value columns = in_place ? b.Pointer(kernel, element) : kernel.Pointer(packed);
    const Extent apart = in_place ? b.column_stride : Extent(dots.k);
    const Value last = o.KernelBuilder::Add(o.Int(a.rows), -1);
    o.For(begin, end, 1, [&](Value group) {
      Values rows, pointers;  // the last one once more where there are no further ones
      for (int64_t r = 0; r < dots.rows; ++r) {
        rows.push_back(o.Min(o.KernelBuilder::Add(o.Mul(group, dots.rows), r), last));
        pointers.push_back(o.At(a.Pointer(kernel, element), o.Mul(rows[r], a.row_stride), element));
      }
      auto step = [&](Value at, int64_t lanes, const Values& in) {
        Values of_columns, out;
        for (int64_t c = 0; c < dots.n; ++c) {
          of_columns.push_back(
              o.LoadFirst(vector, o.At(o.At(columns, apart * Extent(c), element), at, element), lanes));
        }
        for (int64_t r = 0; r < dots.rows; ++r) {
          const Value of_row = o.LoadFirst(vector, o.At(pointers[r], at, element), lanes);
          for (int64_t c = 0; c < dots.n; ++c) {
            out.push_back(o.MultiplyAdd(of_row, of_columns[c], in[r * dots.n + c]));
          }
        }
        return out;
      };
      // Of few sums there are two of each, which take turns: a chain of multiply-adds is no longer than that.
      const int64_t turns = dots.rows * dots.n < 8 ? 2 : 1, stride = turns * dots.lanes;
      const int64_t main = dots.k / stride * stride, whole = dots.k / dots.lanes * dots.lanes;
      const size_t count = dots.rows * dots.n;
      Values sums =
          o.For(o.Int(0), o.Int(main), stride, Values(turns * count, o.Zero(vector)), [&](Value at, const Values& in) {
            Values out;
            for (int64_t turn = 0; turn < turns; ++turn) {
              const auto from = in.begin() + turn * count;
              const Values of_turn =
                  step(o.KernelBuilder::Add(at, turn * dots.lanes), dots.lanes, Values(from, from + count));
              out.insert(out.end(), of_turn.begin(), of_turn.end());
            }
            return out;
          });
      for (size_t i = count; i < sums.size(); ++i) sums[i - count] = o.AddF(sums[i - count], sums[i]);
      sums.resize(count);
      if (main < whole) sums = step(o.Int(main), dots.lanes, sums);
      if (whole < dots.k) sums = step(o.Int(whole), dots.k - whole, sums);
      for (int64_t r = 0; r < dots.rows; ++r) {
        for (int64_t c = 0; c < dots.n; ++c) {
          const Value sum = o.ReduceLanes(sums[r * dots.n + c], [&](Value x, Value y) { return o.AddF(x, y); });
          kernel.StoreResult(matmul.out(), shape.At(kernel, o.Int(0), rows[r], o.Int(c), 1), sum);
        }
      }
    });
  });
}

}  // namespace inlay::native
