#include "core/backends/native/lowerings/few_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

constexpr int64_t kMostRows = 8;
constexpr int64_t kRowsAtOnce = 4, kRowsByColumns = 2, kMostVectors = 8;  // whose sums are in registers
constexpr int64_t kBlockBytes = 8 << 10, kLeastBlock = 4;                 // of Q's rows
constexpr int64_t kSegmentBytes = 16 << 10;                               // of sums in scratch
constexpr double kBytesPerCycle = 12;                                     // from beyond L2

// The sums of the lanes of each of `vectors`, which are as many as a vector has lanes. Each step adds halves of two
// vectors to one.
Value SumsOfLanes(Ops& o, Values vectors, int64_t element_bytes) {
  const int64_t lanes = Ops::Lanes(vectors[0]);
  for (int64_t width = 1; width < lanes; width *= 2) {
    // Within 128 bits one instruction interleaves the lower halves of two, or the upper ones.
    const bool interleaves = element_bytes == 4 && lanes >= 4 && width <= 2;
    std::vector<int64_t> low, high;
    for (int64_t i = 0; i < lanes; ++i) {
      if (interleaves) {
        const int64_t in_quad = i % 4, quad = i - in_quad;
        const int64_t from = width == 1 ? in_quad / 2 + in_quad % 2 * lanes : in_quad % 2 + in_quad / 2 * lanes;
        low.push_back(quad + from);
        high.push_back(quad + from + 2);
      } else {
        const int64_t block = i / width, from = block / 2 * 2 * width + i % width + block % 2 * lanes;
        low.push_back(from);
        high.push_back(from + width);
      }
    }
    Values next;
    for (size_t i = 0; i < vectors.size(); i += 2) {
      next.push_back(o.AddF(o.Shuffle(vectors[i], vectors[i + 1], low), o.Shuffle(vectors[i], vectors[i + 1], high)));
    }
    vectors = std::move(next);
  }
  return vectors[0];
}

class Emitter {
 public:
  Emitter(Ops& o, const FewRows& plan, const GemmTypes& types, const StridedMatrix& p, const StridedMatrix& q,
          Value scratch, const StoreSums& store, Value k)
      : o_(o),
        plan_(plan),
        p_(p),
        q_(q),
        accumulator_(types.Accumulator(o)),
        accumulator_bytes_(types.accumulator_bytes),
        vector_(KernelBuilder::Vector(plan.lanes, accumulator_)),
        scratch_(scratch),
        store_(store),
        k_(k) {}

  void Columns(Value begin, Value end) {
    const int64_t lanes = plan_.lanes;
    const Value whole = o_.Add(begin, o_.Mul(o_.Div(o_.Sub(end, begin), lanes), lanes));
    o_.For(begin, whole, lanes, [&](Value first) {
      ForRows(ColumnsFrom(first, nullptr), [&](Value row, Value sums) { store_(row, first, sums); });
    });
    if (plan_.columns.IsMultipleOf(lanes)) return;
    // The last ones: a vector's, of which some are the last column once more.
    o_.If(o_.Less(whole, end), [&] {
      ForRows(ColumnsFrom(whole, o_.KernelBuilder::Add(end, -1)), [&](Value row, Value sums) {
        o_.Store(sums, scratch_);
        o_.For(whole, end, 1, [&](Value column) {
          store_(row, column, o_.Load(accumulator_, o_.At(scratch_, o_.Sub(column, whole), accumulator_)));
        });
      });
    });
  }

  void Rows(Value begin, Value end) {
    const int64_t segment = SegmentColumns(plan_, accumulator_bytes_);
    if (plan_.columns.value() <= segment) return Segment(begin, end);
    o_.For(begin, end, segment,
           [&](Value first) { Segment(first, o_.Min(o_.KernelBuilder::Add(first, segment), end)); });
  }

  static int64_t SegmentColumns(const FewRows& plan, int64_t accumulator_bytes) {
    const int64_t most = std::max(kSegmentBytes / (plan.rows * accumulator_bytes) / plan.unit(), int64_t{1});
    return std::min(most * plan.unit(), RoundUp(plan.columns.value(), plan.unit()));
  }

 private:
  // --- kColumns

  Values ColumnsFrom(Value first, Value last) {
    Values columns;
    for (int64_t c = 0; c < plan_.lanes; ++c) {
      Value column = o_.Add(first, c);
      if (last) column = o_.Min(column, last);
      columns.push_back(o_.At(q_.pointer, o_.Mul(column, q_.j_stride), q_.element));
    }
    return columns;
  }

  // The sums of each row by these columns, as many as a vector has lanes.
  void ForRows(const Values& columns, const std::function<void(Value row, Value sums)>& body) {
    const int64_t together = std::min(plan_.rows, kRowsByColumns), rest = plan_.rows % together;
    auto some = [&](Value first, int64_t rows) {
      const Values sums = DotProducts(columns, first, rows);
      for (int64_t r = 0; r < rows; ++r) body(o_.Add(first, r), sums[r]);
    };
    some(o_.Int(0), together);
    o_.For(o_.Int(together), o_.Int(plan_.rows - rest), together, [&](Value row) { some(row, together); });
    if (rest > 0) some(o_.Int(plan_.rows - rest), rest);
  }

  // Of `rows` rows, one or two: half of the columns have their sums in registers at a time, or all.
  Values DotProducts(const Values& columns, Value first, int64_t rows) {
    const int64_t lanes = plan_.lanes, part = lanes / rows;
    Values parts;
    for (int64_t begin = 0; begin < lanes; begin += part) {
      const Values of(columns.begin() + begin, columns.begin() + begin + part);
      parts.push_back(SumsOfLanes(o_, SumsByLane(of, first, rows), accumulator_bytes_));
    }
    if (rows == 1) return parts;
    std::vector<int64_t> low, high;
    for (int64_t i = 0; i < lanes; ++i) {
      low.push_back(i % part + i / part * lanes);
      high.push_back(low.back() + part);
    }
    return {o_.Shuffle(parts[0], parts[1], low), o_.Shuffle(parts[0], parts[1], high)};
  }

  // Row after row, of each column: a vector whose lanes' sum is the dot product.
  Values SumsByLane(const Values& columns, Value first, int64_t rows) {
    const int64_t lanes = plan_.lanes, k = plan_.k.value();
    Values of_rows;
    for (int64_t r = 0; r < rows; ++r) {
      of_rows.push_back(o_.At(p_.pointer, o_.Mul(o_.Add(first, r), p_.j_stride), p_.element));
    }
    auto step = [&](Value at, int64_t count, const Values& in) {
      Values x, y, out;
      for (Value row : of_rows) x.push_back(LoadFirst(row, p_.element, at, count));
      for (Value column : columns) y.push_back(LoadFirst(column, q_.element, at, count));
      for (size_t i = 0; i < in.size(); ++i) {
        out.push_back(o_.MultiplyAdd(y[i % y.size()], x[i / y.size()], in[i]));
      }
      return out;
    };
    const int64_t line = std::max(kLineBytes / plan_.element_bytes, lanes);
    const int64_t lines = k / line * line, whole = k / lanes * lanes;
    const Values zeros(rows * columns.size(), o_.Zero(vector_));
    Values sums = o_.For(o_.Int(0), o_.Int(lines), line, zeros, [&](Value at, Values in) {
      for (int64_t i = 0; i < line; i += lanes) in = step(o_.KernelBuilder::Add(at, i), lanes, in);
      return in;
    });
    for (int64_t i = lines; i < whole; i += lanes) sums = step(o_.Int(i), lanes, sums);
    if (whole < k) sums = step(o_.Int(whole), k - whole, sums);
    return sums;
  }

  Value LoadFirst(Value pointer, Type element, Value at, int64_t count) {
    const Type vector = KernelBuilder::Vector(plan_.lanes, element);
    return o_.Widen(o_.LoadFirst(vector, o_.At(pointer, at, element), count), accumulator_);
  }

  // --- kRows

  void Segment(Value begin, Value end) {
    const int64_t unit = plan_.unit(), columns = plan_.columns.value(), lanes = plan_.lanes;
    stride_ = SegmentColumns(plan_, accumulator_bytes_);
    const Value width = o_.Sub(end, begin);
    const Value blocks_end = o_.Mul(o_.Div(o_.KernelBuilder::Add(width, unit - 1), unit), unit);
    o_.For(plan_.rows, [&](Value row) {
      o_.For(o_.Int(0), blocks_end, lanes, [&](Value i) { o_.Store(o_.Zero(vector_), Sum(row, i)); });
    });
    auto block = [&](Value k_begin, Value k_end) {
      const Value whole = o_.Mul(o_.Div(width, unit), unit);
      o_.For(o_.Int(0), whole, unit, [&](Value at) { Block(begin, at, plan_.vectors, lanes, k_begin, k_end); });
      if (const int64_t rest = columns % unit; rest > 0) {
        const int64_t vectors = CeilDiv(rest, lanes), in_last = rest - (vectors - 1) * lanes;
        o_.If(o_.Less(whole, width), [&] { Block(begin, whole, vectors, in_last, k_begin, k_end); });
      }
    };
    const Value k = k_ == nullptr ? o_.Int(plan_.k) : k_;
    if (columns <= unit && plan_.rows <= kRowsAtOnce) {
      block(o_.Int(0), k);
    } else {
      o_.For(o_.Int(0), k, plan_.block,
             [&](Value first) { block(first, o_.Min(o_.KernelBuilder::Add(first, plan_.block), k)); });
    }
    const Value vectors_end = o_.Mul(o_.Div(width, lanes), lanes);
    o_.For(plan_.rows, [&](Value row) {
      o_.For(o_.Int(0), vectors_end, lanes,
             [&](Value i) { store_(row, o_.KernelBuilder::Add(begin, i), o_.Load(vector_, Sum(row, i))); });
      if (columns % lanes == 0) return;
      o_.For(vectors_end, width, 1,
             [&](Value i) { store_(row, o_.KernelBuilder::Add(begin, i), o_.Load(accumulator_, Sum(row, i))); });
    });
  }

  Value Sum(Value row, Value i) { return o_.At(scratch_, o_.Add(o_.Mul(row, stride_), i), accumulator_); }

  // Rows [k_begin, k_end) of Q to the sums of `vectors` from column begin + at on; the last has `in_last` columns.
  void Block(Value begin, Value at, int64_t vectors, int64_t in_last, Value k_begin, Value k_end) {
    const Value q = o_.At(q_.pointer, o_.KernelBuilder::Add(begin, at), q_.element);
    const int64_t groups = CeilDiv(plan_.rows, kRowsAtOnce), group = CeilDiv(plan_.rows, groups);
    for (int64_t row = 0; row < plan_.rows; row += group) {
      const int64_t rows = std::min(group, plan_.rows - row);
      auto sum = [&](size_t i) { return Sum(o_.Int(row + i / vectors), o_.Add(at, i % vectors * plan_.lanes)); };
      Values sums(rows * vectors);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] = o_.Load(vector_, sum(i));
      sums = o_.For(k_begin, k_end, 1, sums, [&](Value k, const Values& in) {
        const Value row_of_q = o_.At(q, o_.Mul(k, q_.k_stride), q_.element);
        return AddRow(row_of_q, k, row, vectors, in_last, in);
      });
      for (size_t i = 0; i < sums.size(); ++i) o_.Store(sums[i], sum(i));
    }
  }

  // Row k of Q, times P[row .., k], to `in`.
  Values AddRow(Value row_of_q, Value k, int64_t row, int64_t vectors, int64_t in_last, const Values& in) {
    Values of_q, out;
    for (int64_t v = 0; v < vectors; ++v) {
      of_q.push_back(LoadFirst(row_of_q, q_.element, o_.Int(v * plan_.lanes), v < vectors - 1 ? plan_.lanes : in_last));
    }
    while (out.size() < in.size()) {
      const Value place = o_.KernelBuilder::Add(o_.Mul(o_.Int(row++), p_.j_stride), o_.Mul(k, p_.k_stride));
      const Value p =
          o_.Splat(o_.Widen(o_.Load(p_.element, o_.At(p_.pointer, place, p_.element)), accumulator_), vector_);
      for (int64_t v = 0; v < vectors; ++v) out.push_back(o_.MultiplyAdd(of_q[v], p, in[out.size()]));
    }
    return out;
  }

  Ops& o_;
  const FewRows& plan_;
  const StridedMatrix &p_, &q_;
  const Type accumulator_;
  const int64_t accumulator_bytes_;
  const Type vector_;
  const Value scratch_;
  const StoreSums& store_;
  const Value k_;
  int64_t stride_ = 0;  // of the sums' rows
};

}  // namespace

int64_t FewRows::scratch_bytes(int64_t accumulator_bytes) const {
  const int64_t elements = order == Order::kRows ? rows * Emitter::SegmentColumns(*this, accumulator_bytes) : lanes;
  return RoundUp(elements * accumulator_bytes, kLineBytes);
}

Value FewRows::Until(Ops& o, Value first, Value stop, Value some) const {
  if (some == nullptr) return stop;
  if (order == Order::kRows) some = o.Mul(o.Div(o.KernelBuilder::Add(some, unit() - 1), unit()), unit());
  return o.Max(first, o.Min(stop, some));
}

double FewRows::task_cycles() const {
  constexpr int64_t kNominalK = 128;
  const int64_t length = k.is_static() ? k.value() : kNominalK;
  const double elements = static_cast<double>(unit() * length);
  return elements * std::max(static_cast<double>(element_bytes) / kBytesPerCycle, static_cast<double>(rows) / lanes) +
         50;
}

std::optional<FewRows> PlanFewRows(const Core& core, const GemmTypes& types, const Extent& rows,
                                   const Extent& p_k_stride, const Matrices& q) {
  const Extent one(1);
  if (!ir::IsFloat(types.dtype) || !rows.is_static() || rows.value() > kMostRows || rows.value() < 1) {
    return std::nullopt;
  }
  FewRows plan;
  plan.rows = rows.value();
  plan.columns = q.columns;
  plan.k = q.rows;
  plan.lanes = core.vector_bytes / types.accumulator_bytes;
  plan.element_bytes = ir::ByteSize(types.dtype);
  if (plan.lanes < kRowsByColumns) return std::nullopt;
  const bool by_rows = q.column_stride == one && q.columns.is_static() && q.columns.value() >= plan.lanes;
  const bool by_columns = q.row_stride == one && p_k_stride == one && q.rows.is_static() &&
                          q.rows.value() >= plan.lanes && (!q.columns.is_static() || q.columns.value() >= plan.lanes);
  if (!by_rows && !by_columns) return std::nullopt;
  // Of what L2 holds tiles of several rows read panels in any order, and have all their sums in registers (Emerald
  // Rapids, 4 by 300x1000: 18 us, 28 so).
  const Extent bytes = q.rows * q.columns * plan.element_bytes;
  if (by_rows && plan.rows > 1 && bytes.is_static() && bytes.value() <= core.near_bytes()) return std::nullopt;
  plan.order = by_rows ? FewRows::Order::kRows : FewRows::Order::kColumns;
  if (by_rows) {
    const int64_t most = (core.registers - 4) / std::min(plan.rows, kRowsAtOnce),
                  all = CeilDiv(q.columns.value(), plan.lanes);
    plan.vectors = std::min({kMostVectors, most, all});
    const int64_t row_bytes = q.columns.value() * plan.element_bytes;
    // Each block takes the sums from L1 and back, which of several rows is more than it is worth.
    const int64_t least = plan.rows == 1 ? kLeastBlock : plan.rows <= kRowsAtOnce ? 2 * kLeastBlock : 6 * kLeastBlock;
    plan.block = std::max(kBlockBytes / row_bytes, least);
  }
  return plan;
}

void EmitFewRows(Ops& o, const FewRows& plan, const GemmTypes& types, const StridedMatrix& p, const StridedMatrix& q,
                 Value begin, Value end, Value scratch, const StoreSums& store, Value k) {
  Emitter emitter(o, plan, types, p, q, scratch, store, k);
  plan.order == FewRows::Order::kRows ? emitter.Rows(begin, end) : emitter.Columns(begin, end);
}

void ForMatrices(Ops& o, const FewRows& plan, Value begin, Value end,
                 const std::function<void(Value matrix, Value first, Value stop)>& body) {
  const Extent tasks = plan.tasks();
  o.For(o.Div(begin, tasks), o.Div(o.Add(end, tasks + Extent(-1)), tasks), 1, [&](Value matrix) {
    const Value before = o.Mul(matrix, tasks);
    const Value first = o.Mul(o.Max(o.Sub(begin, before), o.Int(0)), plan.unit());
    body(matrix, first, o.Min(o.Mul(o.Sub(end, before), plan.unit()), o.Int(plan.columns)));
  });
}

void EmitFewRowsMatmul(FunctionEmitter& f, const Node& matmul, const FewRows& plan, const GemmTypes& types,
                       const Matrices& a, const Matrices& b, const ProductShape& shape) {
  EmitTasks(f, Product(shape.batch) * plan.tasks(), plan.task_cycles(), plan.scratch_bytes(types.accumulator_bytes),
            [&](Kernel& kernel, Value begin, Value end, Value scratch) {
              Ops& o = kernel.o;
              const Type stored = types.Stored(o);
              const BatchOffset p_offset = a.OffsetOf(f, shape.batch, a.batch_strides),
                                q_offset = b.OffsetOf(f, shape.batch, b.batch_strides);
              ForMatrices(o, plan, begin, end, [&](Value batch, Value first, Value stop) {
                Value p = a.Pointer(kernel, stored), q = b.Pointer(kernel, stored);
                if (p_offset) p = o.At(p, p_offset(o, batch), stored);
                if (q_offset) q = o.At(q, q_offset(o, batch), stored);
                EmitFewRows(o, plan, types, {p, stored, a.column_stride, a.row_stride},
                            {q, stored, b.row_stride, b.column_stride}, first, stop, scratch,
                            [&](Value row, Value column, Value sums) {
                              kernel.StoreResult(matmul.out(), shape.At(kernel, batch, row, column, Ops::Lanes(sums)),
                                                 sums);
                            });
              });
            });
}

}  // namespace inlay::native
