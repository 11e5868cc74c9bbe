// reduce_*, argmax and argmin: one pass over the argument.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/lane_fold.h"
#include "core/backends/csource/op.h"

namespace inlay::csource {
namespace {

using ir::DType;

struct Reduction {
  Expr start;
  LaneFold::Fold fold;
};

Expr Lowest(DType dtype, bool highest) {
  if (ir::IsFloat(dtype)) return Number(dtype, highest ? INFINITY : -INFINITY);
  if (dtype == DType::kBool) return Integer(dtype, highest ? 1 : 0);
  const int bits = static_cast<int>(8 * ir::ByteSize(dtype)) - (ir::IsSigned(dtype) ? 1 : 0);
  const int64_t most = bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
  if (highest) return Integer(dtype, most);
  return Integer(dtype, ir::IsSigned(dtype) ? -most - 1 : 0);
}

Reduction ReductionOf(const std::string& op, DType dtype) {
  dtype = ComputeDType(dtype);
  if (op == "reduce_prod")
    return {Number(dtype, 1), [dtype](const Expr& a, const Expr& b) { return csource::Product(dtype, a, b); }};
  if (op == "reduce_max" || op == "reduce_min") {
    const bool max = op == "reduce_max";
    const std::string function = absl::StrCat(max ? "inlay_maximum_" : "inlay_minimum_", std::string(ir::Name(dtype)));
    return {Lowest(dtype, !max), [function](const Expr& a, const Expr& b) { return Call(function, {a, b}); }};
  }
  return {Number(dtype, 0), [dtype](const Expr& a, const Expr& b) { return Sum(dtype, a, b); }};
}

struct Axes {
  std::vector<bool> reduced;
  int64_t count = 1;  // elements that make one
};

Axes AxesOf(const Node& node) {
  const Shape& shape = node.in(0).shape;
  Shape axes = node.attrs().IntsOr("axes", {});
  Axes result;
  result.reduced.resize(shape.size(), axes.empty());
  for (int64_t axis : axes) result.reduced[axis] = true;
  for (size_t i = 0; i < shape.size(); ++i) result.count *= result.reduced[i] ? shape[i] : 1;
  return result;
}

// The result's index from the argument's.
Index KeptIndex(const Node& node, const std::vector<bool>& reduced, const Index& at) {
  const bool keep = node.attrs().BoolOr("keepdims", false);
  Index kept;
  for (size_t i = 0; i < at.size(); ++i) {
    if (!reduced[i]) kept.push_back(at[i]);
    if (reduced[i] && keep) kept.push_back(0);
  }
  return kept;
}

Expr Finished(const Node& node, const Axes& axes, const Expr& total) {
  if (node.op != "reduce_mean") return total;
  return total / Number(node.out().dtype, static_cast<double>(axes.count));
}

std::vector<DimGroup> GroupsWhere(KernelEmitter& e, const Node& node, const std::vector<bool>& reduced, bool which,
                                  int begin, int end) {
  std::vector<DimGroup> groups;
  for (int d = begin; d < end; ++d) {
    if (reduced[d] != which || node.in(0).shape[d] == 1) continue;
    const bool merge = !groups.empty() && groups.back().end == d && !e.has_tail() &&
                       e.CanMerge(node.in(0), node.in(0).shape, groups.back().begin, d + 1);
    if (!merge) groups.push_back({d, d, 1});
    groups.back().end = d + 1;
    groups.back().extent *= node.in(0).shape[d];
  }
  return groups;
}

// The last axis goes away: each result is a fold along rows.
void ReduceRows(KernelEmitter& e, const Node& node, const Axes& axes, const Reduction& r) {
  const Tensor& x = node.in(0);
  std::vector<DimGroup> kept = GroupsWhere(e, node, axes.reduced, false, 0, x.rank());
  std::vector<DimGroup> folded = GroupsWhere(e, node, axes.reduced, true, 0, x.rank());
  const DimGroup row = folded.empty() ? DimGroup{0, 0, 1} : folded.back();
  if (!folded.empty()) folded.pop_back();
  e.Units(x.size() / axes.count, static_cast<double>(axes.count), [&](const Expr& unit) {
    Index at(x.rank(), Expr(0));
    e.Unravel(unit, kept, &at);
    LaneFold fold(&e, x.dtype, row.extent, r.start, r.fold);
    e.Nest(folded, &at, false, [&] {
      fold.Run(row.extent, [&](const Expr& j) {
        if (row.end > row.begin) at[row.end - 1] = j;
        return e.Value(x, at);
      });
    });
    for (size_t i = 0; i < at.size(); ++i) {
      if (axes.reduced[i]) at[i] = 0;
    }
    e.Store(node.out(), KeptIndex(node, axes.reduced, at), Finished(node, axes, fold.Total()));
  });
}

// The last axis stays: a strip of it is folded at a time, in accumulators side by side.
void ReduceColumns(KernelEmitter& e, const Node& node, const Axes& axes, const Reduction& r) {
  constexpr int64_t kStrip = 256;
  const Tensor& x = node.in(0);
  const DType dtype = ComputeDType(x.dtype);
  int first = x.rank();
  while (first > 0 && !axes.reduced[first - 1]) --first;
  const std::vector<DimGroup> inner = GroupsWhere(e, node, axes.reduced, false, first, x.rank());
  const DimGroup strip = inner.empty() ? DimGroup{x.rank() - 1, x.rank(), 1} : inner.back();
  std::vector<DimGroup> kept = GroupsWhere(e, node, axes.reduced, false, 0, strip.begin);
  const std::vector<DimGroup> folded = GroupsWhere(e, node, axes.reduced, true, 0, x.rank());
  const int64_t strips = (strip.extent + kStrip - 1) / kStrip;
  int64_t outer = 1;
  for (const DimGroup& group : kept) outer *= group.extent;
  e.Units(outer * strips, static_cast<double>(axes.count * std::min(kStrip, strip.extent)), [&](const Expr& unit) {
    Index at(x.rank(), Expr(0));
    e.Unravel(e.LetIndex(unit / Expr(strips)), kept, &at);
    const Expr begin = e.LetIndex(unit % Expr(strips) * Expr(kStrip));
    const Expr width = e.LetIndex(Smaller(Expr(strip.extent) - begin, Expr(std::min(kStrip, strip.extent))));
    const Expr acc = e.Array("acc", dtype, std::min(kStrip, strip.extent));
    e.For(0, width, [&](const Expr& j) { e.c().Line(At(acc, j).text, " = ", r.start.text, ";"); });
    e.Nest(folded, &at, false, [&] {
      e.For(
          0, width,
          [&](const Expr& j) {
            at[strip.end - 1] = e.LetIndex(begin + j);
            e.c().Line(At(acc, j).text, " = ", Wrapped(dtype, r.fold(At(acc, j), e.Value(x, at))).text, ";");
          },
          1, true);
    });
    for (size_t i = 0; i < at.size(); ++i) {
      if (axes.reduced[i]) at[i] = 0;
    }
    e.For(0, width, [&](const Expr& j) {
      at[strip.end - 1] = e.LetIndex(begin + j);
      e.Store(node.out(), KeptIndex(node, axes.reduced, at), Finished(node, axes, At(acc, j)));
    });
  });
}

void Reduce(KernelEmitter& e, const Node& node) {
  const Axes axes = AxesOf(node);
  const Reduction reduction = ReductionOf(node.op, node.in(0).dtype);
  int last = node.in(0).rank() - 1;
  while (last >= 0 && node.in(0).shape[last] == 1) --last;
  const bool rows = last < 0 || axes.reduced[last];
  rows ? ReduceRows(e, node, axes, reduction) : ReduceColumns(e, node, axes, reduction);
}

// The first (last) of equals; NaN counts as the most extreme, as NumPy has it.
void ArgReduce(KernelEmitter& e, const Node& node) {
  const Tensor& x = node.in(0);
  const bool max = node.op == "argmax", last = node.attrs().BoolOr("select_last", false);
  const int axis = static_cast<int>(node.attrs().IntOr("axis", 0));
  std::vector<bool> reduced(x.rank(), false);
  reduced[axis] = true;
  std::vector<DimGroup> kept;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != axis && x.shape[d] != 1) kept.push_back({d, d + 1, x.shape[d]});
  }
  e.Units(x.size() / x.shape[axis], static_cast<double>(2 * x.shape[axis]), [&](const Expr& unit) {
    Index at(x.rank(), Expr(0));
    e.Unravel(unit, kept, &at);
    const Expr best = Expr::Name(e.Fresh("best")), where = Expr::Name(e.Fresh("where"));
    const Expr first = e.Value(x, at);
    e.c().Line(ComputeType(x.dtype), " ", best.text, " = ", first.text, ";");
    e.c().Line(kIndexType, " ", where.text, " = 0;");
    e.For(1, x.shape[axis], [&](const Expr& j) {
      at[axis] = j;
      const Expr v = e.Value(x, at);
      Expr better = max ? v > best : v < best;
      if (last) better = better || v == best;
      if (ir::IsFloat(x.dtype)) better = better || (last ? v != v : (v != v && best == best));
      e.If(better, [&] {
        e.c().Line(best.text, " = ", v.text, ";");
        e.c().Line(where.text, " = ", j.text, ";");
      });
    });
    at[axis] = 0;
    e.Store(node.out(), KeptIndex(node, reduced, at), where);
  });
}

absl::Status CheckMean(const ir::Binding& call) {
  if (ir::IsFloat(call.args[0].tensor_type().dtype)) return absl::OkStatus();
  return absl::UnimplementedError("a mean of integers");
}

}  // namespace

void AddReductions(OpTable* ops) {
  for (const char* name : {"reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"}) {
    (*ops)[name].kernel = Reduce;
  }
  (*ops)["reduce_mean"].check = CheckMean;
  for (const char* name : {"argmax", "argmin"}) (*ops)[name].kernel = ArgReduce;
}

}  // namespace inlay::csource
