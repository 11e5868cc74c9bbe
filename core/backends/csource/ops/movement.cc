// Operators that move data without looking at it: where an element comes from.
#include "absl/strings/str_cat.h"
#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/op.h"

namespace inlay::csource {
namespace {

using ir::DType;

void Add(OpTable* ops, const std::string& name, decltype(Op::element) element) {
  Op op;
  op.element = std::move(element);
  (*ops)[name] = std::move(op);
}

// Only where both shapes are equal but for extents of 1; other reshapes are other names of memory.
Expr Reshape(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Shape& from = node.in(0).shape;
  const Shape& to = node.out().shape;
  Index index(from.size(), Expr(0));
  size_t d = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 1) continue;
    while (from[d] == 1) ++d;
    index[d++] = at[i];
  }
  return e.Value(node.in(0), index);
}

Expr Transpose(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Shape& perm = node.attrs().Ints("perm");
  Index index(at.size());
  for (size_t i = 0; i < at.size(); ++i) index[perm[i]] = at[i];
  return e.Value(node.in(0), index);
}

Expr Slice(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Shape& begins = node.attrs().Ints("begins");
  const Shape& steps = node.attrs().Ints("steps");
  Index index;
  for (size_t i = 0; i < at.size(); ++i) index.push_back(e.LetIndex(at[i] * Expr(steps[i]) + Expr(begins[i])));
  return e.Value(node.in(0), index);
}

Expr Split(KernelEmitter& e, const Node& node, int output, const Index& at) {
  const int64_t axis = node.attrs().Int("axis");
  int64_t begin = 0;
  for (int i = 0; i < output; ++i) begin += node.out(i).shape[axis];
  Index index = at;
  index[axis] = e.LetIndex(at[axis] + Expr(begin));
  return e.Value(node.in(0), index);
}

Expr Tile(KernelEmitter& e, const Node& node, int, const Index& at) {
  Index index;
  for (size_t i = 0; i < at.size(); ++i) {
    const bool repeated = node.out().shape[i] != node.in(0).shape[i];
    index.push_back(repeated ? e.LetIndex(at[i] % Expr(node.in(0).shape[i])) : at[i]);
  }
  return e.Value(node.in(0), index);
}

// Reads the clamped place and chooses: no branch, and nothing outside of the tensor is read.
Expr Pad(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Tensor& x = node.in(0);
  const Shape& pads = node.attrs().Ints("pads");
  const bool edge = node.attrs().StringOr("mode", "constant") == "edge";
  Expr inside;
  Index index;
  for (int i = 0; i < x.rank(); ++i) {
    const Expr from = e.LetIndex(at[i] - Expr(pads[i]));
    if (pads[i] <= 0 && node.out().shape[i] - pads[i] <= x.shape[i]) {
      index.push_back(from);
      continue;
    }
    index.push_back(e.LetIndex(Clamp(from, 0, x.shape[i] - 1)));
    const Expr here = index.back() == from;
    inside = inside.text.empty() ? here : inside && here;
  }
  const Expr value = e.Value(x, index);
  if (inside.text.empty() || edge) return value;
  return Select(inside, value, Number(x.dtype, node.attrs().FloatOr("value", 0)));
}

absl::Status CheckPad(const ir::Binding& call) {
  const std::string mode = call.attrs.StringOr("mode", "constant");
  if (mode == "constant" || mode == "edge") return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("pad of mode ", mode));
}

Expr Gather(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Tensor &x = node.in(0), &indices = node.in(1);
  const int64_t axis = node.attrs().Int("axis");
  const Expr picked = e.Value(indices, Index(at.begin() + axis, at.begin() + axis + indices.rank()));
  Index index(at.begin(), at.begin() + axis);
  index.push_back(e.LetIndex(Call("inlay_index", {picked, Expr(x.shape[axis])})));
  index.insert(index.end(), at.begin() + axis + indices.rank(), at.end());
  return e.Value(x, index);
}

Expr GatherElements(KernelEmitter& e, const Node& node, int, const Index& at) {
  const int64_t axis = node.attrs().Int("axis");
  Index index = at;
  index[axis] = e.LetIndex(Call("inlay_index", {e.Value(node.in(1), at), Expr(node.in(0).shape[axis])}));
  return e.Value(node.in(0), index);
}

Expr Trilu(KernelEmitter& e, const Node& node, int, const Index& at) {
  const Expr distance = at[at.size() - 1] - at[at.size() - 2];
  const Expr k(node.attrs().IntOr("k", 0));
  const Expr keep = node.attrs().BoolOr("upper", true) ? distance >= k : k >= distance;
  return Select(keep, e.Value(node.in(0), at), Number(node.out().dtype, 0));
}

Expr Full(KernelEmitter&, const Node& node, int, const Index&) {
  const DType dtype = node.out().dtype;
  const auto& value = node.attrs().values().find("value")->second;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return ir::IsFloat(dtype) ? Number(dtype, static_cast<double>(*whole)) : Wrapped(dtype, Integer(dtype, *whole));
  }
  return Number(dtype, node.attrs().Float("value"));
}

Expr Iota(KernelEmitter&, const Node& node, int, const Index& at) {
  return CastTo(ComputeType(node.out().dtype), at[node.attrs().Int("axis")]);
}

// A loop nest for each argument: no choice by element.
void Concat(KernelEmitter& e, const Node& node) {
  const Tensor& out = node.out();
  const int axis = static_cast<int>(node.attrs().Int("axis"));
  const int64_t outer = Product(out.shape, 0, axis), inner = Product(out.shape, axis, out.rank());
  const std::vector<DimGroup> outer_groups = Singles(out.shape, 0, axis);
  e.Units(outer, static_cast<double>(inner), [&](const Expr& unit) {
    Index at(out.rank(), Expr(0));
    e.Unravel(unit, outer_groups, &at);
    int64_t begin = 0;
    for (const Tensor* in : node.inputs) {
      const Shape& shape = in->shape;
      // A tail's other arguments are indexed by every dimension.
      const std::vector<DimGroup> groups =
          e.has_tail() ? Singles(shape, axis, in->rank()) : e.Groups({in}, shape, axis, in->rank());
      Index from = at;
      e.Nest(groups, &from, true, [&] {
        // The axis alone, or the axis and what is behind it as one: the distance is that of whole rows.
        const DimGroup& first = groups.front();
        Index to = from;
        const int64_t rows = Product(shape, axis + 1, first.end);
        to[first.end - 1] = from[first.end - 1] + Expr(begin * rows);
        e.Store(out, to, e.Value(*in, from));
      });
      begin += shape[axis];
    }
  });
}

}  // namespace

void AddMovement(OpTable* ops) {
  Add(ops, "reshape", Reshape);
  Add(ops, "transpose", Transpose);
  Add(ops, "slice", Slice);
  Add(ops, "split", Split);
  Add(ops, "tile", Tile);
  Add(ops, "pad", Pad);
  (*ops)["pad"].check = CheckPad;
  (*ops)["pad"].cost = 4;
  Add(ops, "gather", Gather);
  Add(ops, "gather_elements", GatherElements);
  Add(ops, "trilu", Trilu);
  Add(ops, "full", Full);
  Add(ops, "iota", Iota);
  Add(ops, "expand",
      [](KernelEmitter& e, const Node& node, int, const Index& at) { return e.BroadcastValue(node.in(0), at); });
  (*ops)["expand"].pointwise = true;
  Op concat;
  concat.kernel = Concat;
  (*ops)["concat"] = std::move(concat);
}

}  // namespace inlay::csource
