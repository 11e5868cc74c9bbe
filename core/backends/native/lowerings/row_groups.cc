#include "core/backends/native/lowerings/row_groups.h"

#include <algorithm>
#include <vector>

#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/gemm_support.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kFields = 3, kWordBytes = 8;
constexpr double kGroupCycles = 8, kRowCycles = 10;

mlir::Type Word(Ops& o) { return o.b.getI64Type(); }
Value LoadWord(Ops& o, Value base, Value i) { return o.Load(Word(o), o.At(base, i, Word(o))); }
void StoreWord(Ops& o, Value word, Value base, Value i) { o.Store(word, o.At(base, i, Word(o))); }

}  // namespace

RowGroups::RowGroups(FunctionEmitter& f, const Tensor& which, int64_t groups, int64_t rows_of_block) {
  const Extent m = which.dims[0];
  // Each group that has rows may have a block that is not full. Work is divided by it: not 0 in a run without rows.
  most_blocks_ = Extent::Max(Extent::Min(Extent(groups), m) + m / rows_of_block, 1);
  const Extent listed = m.is_static() ? most_blocks_ : m;  // a polynomial, as the size of memory must be
  blocks_ = f.Temporary((listed * kFields + 1) * kWordBytes);
  rows_ = f.Temporary(m * kWordBytes);
  const Buffer counts = f.Temporary(groups * kWordBytes);  // then where each group's next row goes
  f.Parallel(1, Cycles(m) * kRowCycles + groups * kGroupCycles, [&](Kernel& k, Value, Value) {
    Ops& o = k.o;
    const Value blocks = k.Pointer(blocks_), rows = k.Pointer(rows_), next = k.Pointer(counts), one = o.Int(1);
    const auto each_row = [&](const std::function<void(Value row, Value group)>& body) {
      o.For(o.Int(0), o.Int(m), 1, [&](Value row) {
        Eval e(k, 1);
        body(row, e.IndexFrom(which, {Index(row)}, groups).base);
      });
    };
    o.ZeroBytes(next, groups * kWordBytes);
    each_row([&](Value, Value group) { StoreWord(o, o.Add(LoadWord(o, next, group), one), next, group); });
    const auto done =
        o.For(o.Int(0), o.Int(groups), 1, {o.Int(0), o.Int(0)}, [&](Value group, const std::vector<Value>& so_far) {
          const Value begin = so_far[0], end = o.Add(begin, LoadWord(o, next, group));
          StoreWord(o, begin, next, group);
          const Value count =
              o.For(begin, end, rows_of_block, {so_far[1]}, [&](Value first, const std::vector<Value>& listed) {
                const Value at = o.Add(o.Mul(listed[0], kFields), one);
                StoreWord(o, group, blocks, at);
                StoreWord(o, first, blocks, o.Add(at, one));
                StoreWord(o, o.Min(o.Int(rows_of_block), o.Sub(end, first)), blocks, o.Add(at, o.Int(2)));
                return std::vector<Value>{o.Add(listed[0], one)};
              })[0];
          return std::vector<Value>{end, count};
        });
    StoreWord(o, done[1], blocks, o.Int(0));
    each_row([&](Value row, Value group) {
      const Value place = LoadWord(o, next, group);
      StoreWord(o, row, rows, place);
      StoreWord(o, o.Add(place, one), next, group);
    });
  });
}

Value RowGroups::Count(Kernel& k) const { return LoadWord(k.o, k.Pointer(blocks_), k.o.Int(0)); }

RowGroups::Block RowGroups::At(Kernel& k, Value i) const {
  Ops& o = k.o;
  const Value fields = o.At(k.Pointer(blocks_), o.KernelBuilder::Add(o.Mul(i, kFields), 1), Word(o));
  return {LoadWord(o, fields, o.Int(0)), LoadWord(o, fields, o.Int(1)), LoadWord(o, fields, o.Int(2))};
}

Value RowGroups::Row(Kernel& k, Value place) const { return LoadWord(k.o, k.Pointer(rows_), place); }

Buffer RowGroups::Sorted(FunctionEmitter& f, const Tensor& x, int64_t stride) const {
  const int64_t columns = x.dims[1].value();
  int cost = 0;
  const std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  const ir::DType dtype = GemmTypes(f, x.dtype).accumulator_dtype;
  const int64_t bytes = ir::ByteSize(dtype);
  const int64_t most = std::min(f.LanesFor(tensors, columns), f.LanesForBytes(bytes, columns));
  const Buffer sorted = f.Temporary(x.dims[0] * stride * bytes);
  f.WithLanesOrScalar(columns, most, cost, [&](int64_t lanes) {
    const double cycles = static_cast<double>(columns) * (cost + 3) / static_cast<double>(lanes) + 10;
    f.ParallelEach(x.dims[0], cycles, [&](Kernel& k, Value place) {
      Ops& o = k.o;
      const Value row = Row(k, place), to = o.At(k.Pointer(sorted), o.Mul(place, stride), o.StoredType(dtype));
      VectorLoop(o, {Extent(columns)}, lanes, {}, [&](const VectorPoint& p, const std::vector<Value>&) {
        Eval e(k, lanes);
        o.StoreElements(dtype, e.At(x, {Index(row), p.at[0]}), to, p.at[0].base);
        return std::vector<Value>();
      });
    });
  });
  return sorted;
}

}  // namespace inlay::native
