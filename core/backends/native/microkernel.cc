#include "core/backends/native/microkernel.h"

#include <algorithm>

#include "core/backends/native/rounding.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

// Multiply-adds of an innermost loop that is unrolled: its counter and addresses are then no part of few of them.
constexpr int64_t kMaxUnrolled = 96;
// Between two lines that are asked for, so that each finds a fill buffer; not more, or the last ones come late (Zen 4
// with AVX2, inside ResNet-50, 64 channels of 56x56 to 256, us, asked for all over the tile and so: 925, 905).
constexpr int64_t kMultiplyAddsALine = 48;

Value ShareOfRow(KernelBuilder& kb, int64_t row_bytes, Value tiles) {
  const Value bytes = kb.Int(row_bytes);
  return kb.Max(kb.b.createOrFold<mlir::arith::DivUIOp>(kb.loc, bytes, kb.Max(tiles, kb.Int(1))), kb.Int(1));
}

std::vector<Value> EmitRegisterTile(KernelBuilder& kb, const RegisterTile& tile, Value begin, Value end,
                                    const std::vector<Value>& accumulators) {
  Type vector = KernelBuilder::Vector(tile.lanes, tile.accumulator);
  Type q_vector = KernelBuilder::Vector(tile.lanes, tile.q_element);
  int64_t bytes = 0;
  const bool asks_once = tile.prefetch && IsConstant(tile.prefetch_step, &bytes) && bytes * tile.unrolled <= kLineBytes;
  const int64_t ask_every = asks_once ? tile.unrolled : tile.ask_every;
  // Of those that are unrolled, steps that meet another line of the next tile's P.
  const int64_t next_p_bytes = tile.next_p_step * (tile.p_element.getIntOrFloatBitWidth() / 8);
  const int64_t next_p_every = std::max<int64_t>(kLineBytes / std::max<int64_t>(next_p_bytes, 1), 1);
  bool asks = false, asks_for_next_p = false;  // the step that is being emitted
  // k: steps done; at: of the operand that has the inner loops.
  auto step = [&](Value k, Value at, const std::vector<Value>& in) {
    Value q = kb.At(tile.q, tile.inner_of_q ? at : kb.Mul(k, tile.q_k_stride), tile.q_element);
    const Value p_offset = tile.inner_of_q ? kb.Mul(k, tile.p_k_stride) : at;
    const Value p = tile.p_row_pointers.empty() ? kb.At(tile.p, p_offset, tile.p_element) : Value();
    std::vector<Value> row;
    for (int64_t v = 0; v < tile.vectors; ++v) {
      int64_t columns = tile.q_columns - v * tile.lanes;
      Value loaded = kb.LoadFirst(q_vector, kb.At(q, v * tile.lanes, tile.q_element), columns);
      row.push_back(kb.Widen(loaded, tile.accumulator));
    }
    for (int64_t v = 0; tile.copy && v < tile.vectors; ++v) {
      const Value at = kb.Add(kb.Mul(k, tile.vectors * tile.lanes), v * tile.lanes);
      kb.Store(row[v], kb.At(tile.copy, at, tile.accumulator));
    }
    for (int64_t line = 0; asks && line < tile.prefetch_lines; ++line) {
      const Value at = kb.Add(kb.Mul(k, tile.prefetch_step), line * kLineBytes);
      kb.Prefetch(kb.At(tile.prefetch, at, kb.b.getI8Type()));
    }
    if (asks_for_next_p) kb.PrefetchIntoL1(kb.At(tile.next_p, kb.Mul(k, tile.next_p_step), tile.p_element));
    // LLVM would load all rows' elements ahead, or keep those that neighbouring taps share, and for want of registers
    // put accumulators on the stack (2x2 of 128 channels of 12x12 to 64 on Zen 3: 31 GFLOP/s, else 95). That taps stay
    // apart is not always enough (4x4/2 of 64 channels of 32x32 to 128: 41, else 94).
    const bool keeps_order = !tile.inner.empty() && !tile.inner_of_q;
    if (keeps_order) kb.KeepOrder();
    std::vector<Value> out;
    for (int64_t r = 0; r < tile.rows; ++r) {
      int64_t offset = tile.p_rows.empty() ? r * tile.p_row_stride : tile.p_rows[r];
      const Value at_row =
          p ? kb.At(p, offset, tile.p_element) : kb.At(tile.p_row_pointers[r], p_offset, tile.p_element);
      Value element = kb.Load(tile.p_element, at_row);
      Value splat = kb.Splat(kb.Widen(element, tile.accumulator), vector);
      std::vector<Value> sums;
      for (int64_t v = 0; v < tile.vectors; ++v) {
        const Value sum = in[r * tile.vectors + v];
        sums.push_back(tile.multiply_add ? tile.multiply_add(kb, splat, row[v], sum)
                                         : kb.MultiplyAdd(splat, row[v], sum));
      }
      if (keeps_order && tile.few_registers) sums = kb.KeepOrder(sums);
      out.insert(out.end(), sums.begin(), sums.end());
    }
    return out;
  };
  std::function<std::vector<Value>(size_t, Value, Value, const std::vector<Value>&)> nest =
      [&](size_t level, Value k, Value at, const std::vector<Value>& in) {
        if (level == tile.inner.size()) return step(k, at, in);
        const InnerLoop& loop = tile.inner[level];
        auto body = [&](Value i, const std::vector<Value>& in) {
          return nest(level + 1, kb.Add(kb.Mul(k, loop.extent), i), kb.Add(at, loop.offset(kb, i)), in);
        };
        const bool innermost = level + 1 == tile.inner.size();
        if (loop.first) return kb.For(loop.first, loop.last, 1, in, body);
        if (!innermost || loop.extent * tile.rows * tile.vectors > kMaxUnrolled) {
          return kb.For(kb.Int(0), kb.Int(loop.extent), 1, in, body);
        }
        std::vector<Value> out = in;
        for (int64_t i = 0; i < loop.extent; ++i) out = body(kb.Int(i), out);
        return out;
      };
  const int64_t outer_stride = tile.inner_of_q ? tile.q_k_stride : tile.p_k_stride;
  auto steps = [&](Value first, Value last, const std::vector<Value>& in) {
    return kb.For(first, last, tile.unrolled, in, [&](Value k, std::vector<Value> sums) {
      for (int64_t u = 0; u < tile.unrolled; ++u) {
        asks = tile.prefetch && u % ask_every == 0;
        asks_for_next_p = tile.next_p && u % next_p_every == 0;
        Value step = kb.Add(k, u);
        sums = nest(0, step, kb.Mul(step, outer_stride), sums);
      }
      return sums;
    });
  };
  // Turns of some steps, before each of which some lines are asked for; then the other steps.
  int64_t first = 0, last = 0, turns = 0, turn_steps = 0, lines = 0;
  const int64_t groups = IsConstant(begin, &first) && IsConstant(end, &last) ? (last - first) / tile.unrolled : 0;
  if (tile.lines_ahead > 0 && groups > 0) {
    lines = CeilDiv(tile.lines_ahead, groups);
    turns = tile.lines_ahead / lines;
    const int64_t enough = CeilDiv(lines * kMultiplyAddsALine, tile.rows * tile.vectors * tile.unrolled);
    turn_steps = std::min(groups / turns, enough) * tile.unrolled;
  }
  for (int64_t line = turns * lines; line < tile.lines_ahead; ++line) tile.ask(kb, kb.Int(line));
  if (turns == 0) return steps(begin, end, accumulators);
  std::vector<Value> sums = kb.For(kb.Int(0), kb.Int(turns), 1, accumulators, [&](Value turn, std::vector<Value> in) {
    for (int64_t i = 0; i < lines; ++i) tile.ask(kb, kb.Add(kb.Mul(turn, lines), i));
    const Value from = kb.Add(kb.Mul(turn, turn_steps), begin);
    return steps(from, kb.Add(from, turn_steps), in);
  });
  return steps(kb.Int(first + turns * turn_steps), end, sums);
}

}  // namespace inlay::native
