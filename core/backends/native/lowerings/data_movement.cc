// Operators that move data without looking at it.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/views.h"

namespace inlay::native {
namespace {

using mlir::Value;

Lowering Injective(int cost, std::function<Value(Eval&, const Node&, int, const Indices&)> element) {
  Lowering lowering;
  lowering.cost = cost;
  lowering.element = std::move(element);
  return lowering;
}

// Only where IsReadThrough: any other reshape is an alias, see fusion.cc.
Value Reshape(Eval& e, const Node& n, int, const Indices& at) {
  const Shape& out = n.out().dims;
  std::vector<int> part_of;
  SplitsDims(n.in(0).dims, out, &part_of);
  Indices from(n.in(0).rank(), e.Constant(0));
  Shape stride(from.size(), Extent(1));
  for (int i = static_cast<int>(out.size()) - 1; i >= 0; --i) {
    if (part_of[i] < 0) continue;
    from[part_of[i]] = e.Add(from[part_of[i]], e.Mul(at[i], stride[part_of[i]]));
    stride[part_of[i]] = stride[part_of[i]] * out[i];
  }
  return e.At(n.in(0), from);
}

Value Transpose(Eval& e, const Node& n, int, const Indices& at) {
  const std::vector<int64_t>& perm = n.attrs->Ints("perm");
  Indices from(at.size());
  for (size_t i = 0; i < at.size(); ++i) from[perm[i]] = at[i];
  return e.At(n.in(0), from);
}

// Where a slice of an axis begins, by NumPy's rule; the extent may be open, and what remains may be nothing.
Value SliceBegin(Ops& o, int64_t begin, int64_t step, const Extent& extent) {
  if (extent.is_static()) return o.Int(begin);
  Value end = o.Int(extent), v = begin < 0 ? o.Add(end, begin) : o.Int(begin);
  return step > 0 ? o.Min(o.Max(v, o.Int(0)), end) : o.Min(o.Max(v, o.Int(-1)), o.Sub(end, o.Int(1)));
}

Value Slice(Eval& e, const Node& n, int, const Indices& at) {
  const std::vector<int64_t>& begins = n.attrs->Ints("begins");
  std::vector<int64_t> steps = n.attrs->IntsOr("steps", std::vector<int64_t>(at.size(), 1));
  Indices from;
  for (size_t i = 0; i < at.size(); ++i) {
    from.push_back(e.Add(e.Mul(at[i], steps[i]), SliceBegin(e.o, begins[i], steps[i], n.in(0).dims[i])));
  }
  return e.At(n.in(0), from);
}

Value Split(Eval& e, const Node& n, int output, const Indices& at) {
  int64_t axis = n.attrs->Int("axis");
  Extent begin = 0;
  for (int i = 0; i < output; ++i) begin = begin + n.out(i).dims[axis];
  Indices from = at;
  from[axis] = e.Add(at[axis], begin);
  return e.At(n.in(0), from);
}

Value Expand(Eval& e, const Node& n, int, const Indices& at) { return e.At(n.in(0), e.BroadcastTo(n.in(0), at)); }

// Whether all lanes of `x` are known to lie in one of the pieces: only where they don't vary.
Value Concat(Eval& e, const Node& n, int, const Indices& at) {
  int64_t axis = n.attrs->Int("axis");
  bool lanes_vary = !at[axis].uniform();
  auto pick = [&](Eval& outer, const Indices& where) {
    std::function<Value(Eval&, size_t, Extent)> from_piece = [&](Eval& ev, size_t piece, Extent begin) -> Value {
      Extent extent = n.in(piece).dims[axis];
      auto here = [&](Eval& inner) {
        Indices from = where;
        from[axis] = inner.Add(where[axis], Extent(0) - begin);
        return inner.At(n.in(piece), from);
      };
      bool last = true;
      for (size_t i = piece + 1; i < n.inputs.size(); ++i) last &= n.in(i).dims[axis] == Extent(0);
      if (last) return here(ev);
      if (extent == Extent(0)) return from_piece(ev, piece + 1, begin);
      Value in_piece = ev.o.Less(where[axis].base, ev.o.Int(begin + extent));
      return ev.o.IfElse(
          in_piece, {ev.o.ComputeType(n.out().dtype, ev.lanes())},
          [&] {
            Eval inner = ev.Child(ev.lanes());
            return std::vector<Value>{here(inner)};
          },
          [&] {
            Eval inner = ev.Child(ev.lanes());
            return std::vector<Value>{from_piece(inner, piece + 1, begin + extent)};
          })[0];
    };
    return from_piece(outer, 0, 0);
  };
  return lanes_vary ? e.PerLane(at, pick) : pick(e, at);
}

// One loop for each piece, so that no element asks which piece it is from.
absl::Status ConcatKernel(FunctionEmitter& f, const Node& n) {
  const Tensor& out = n.out();
  int64_t axis = n.attrs->Int("axis");
  Extent begin = 0;
  for (const Tensor* piece : n.inputs) {
    Extent start = begin;
    begin = begin + piece->dims[axis];
    if (piece->IsEmpty()) continue;
    // Merged to [rows, axis and behind]: a row of the piece is contiguous in the result.
    Extent rows = Product(piece->dims, 0, axis), row = Product(piece->dims, axis, piece->rank());
    Extent out_row = Product(out.dims, axis, out.rank());
    Extent offset = start * Product(out.dims, axis + 1, out.rank());
    ShapeMap shapes;
    bool merged = f.MergeDimsOf(*piece, {}, &shapes) && !piece->inlined;
    if (merged) {
      int64_t bytes = ir::ByteSize(out.dtype);
      f.ParallelEach(rows, Cycles(row) * bytes / 16.0 + 10, [&](Kernel& k, Value i) {
        mlir::Type byte = k.o.b.getI8Type();
        k.o.CopyBytes(k.o.At(k.Pointer(out), k.o.Mul(k.o.Add(k.o.Mul(i, out_row), offset), bytes), byte),
                      k.o.At(k.Pointer(*piece), k.o.Mul(i, row * bytes), byte), row * bytes);
      });
      continue;
    }
    int cost = 0;
    std::vector<const Tensor*> tensors = f.Expression(*piece, nullptr, nullptr, &cost);
    Shape outer(piece->dims.begin(), piece->dims.end() - 1);
    Extent inner = piece->dims.back();
    f.WithLanesOrScalar(inner, f.LanesFor(tensors, inner), cost, [&](int64_t lanes) {
      f.ParallelEach(Product(outer), Cycles(inner) * (cost + 2.0) / lanes, [&](Kernel& k, Value item) {
        Indices indices = Delinearise(k.o, item, outer);
        k.o.For(k.o.Int(0), k.o.Int(inner), lanes, [&](Value i) {
          if (!inner.IsMultipleOf(lanes)) i = k.o.Min(i, k.o.Int(inner - lanes));
          Eval e(k, lanes);
          Indices at = indices;
          at.push_back(Index(i, lanes == 1 ? 0 : 1));
          Value value = e.At(*piece, at);
          at[axis] = e.Add(at[axis], start);
          k.StoreElement(out, at, value);
        });
      });
    });
  }
  return absl::OkStatus();
}

Value PadConstant(Ops& o, const Node& n, int64_t lanes) {
  mlir::Type type = o.ComputeType(n.out().dtype, lanes);
  if (!n.attrs->Has("value")) return o.Const(type, 0);
  const ir::AttrValue& value = n.attrs->values().find("value")->second;
  if (ir::IsFloat(n.out().dtype)) return o.ConstF(type, n.attrs->Float("value"));
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    return o.ConstI(type, n.out().dtype == ir::DType::kBool ? *i != 0 : *i);
  }
  double d = n.attrs->Float("value");
  return o.ConstI(type, n.out().dtype == ir::DType::kBool ? d != 0 : static_cast<int64_t>(d));
}

// Whether a vector along the last dimension, which is padded, can be loaded inside and shifted: of zeros or the like
// around rows of at least a vector.
bool PadsVectors(Eval& e, const Node& n, const Indices& at) {
  const std::vector<int64_t>& pads = n.attrs->Ints("pads");
  size_t last = at.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    if (!at[i].uniform()) return false;
  }
  const Extent& in = n.in(0).dims[last];
  return n.attrs->StringOr("mode", "constant") == "constant" && e.lanes() > 1 && at[last].lanes.empty() &&
         at[last].stride == 1 && pads[last] >= 0 && pads[last + at.size()] >= 0 && in.is_static() &&
         in.value() >= e.lanes() && e.o.CanPermute(e.lanes()) &&
         e.o.ComputeType(n.out().dtype) == e.o.ComputeType(ir::DType::kF32);
}

// Where position `at` of a padded axis comes from; constant: clamped, and `inside` says whether it is an element. Also
// of an open extent that is too small for its pads, it is a place in the axis, if that has any.
Value PadSource(Ops& o, const std::string& mode, const Extent& in, int64_t before, int64_t after, Value at,
                Value* inside) {
  // What negative pads crop is gone before the others are filled from the rest.
  const int64_t skip = std::max<int64_t>(-before, 0);
  const int64_t cropped = skip + std::max<int64_t>(-after, 0);
  const Extent rest = cropped == 0 ? in : Extent::Max(in - cropped, 0);
  Value v = o.Add(at, -std::max<int64_t>(before, 0));
  Value extent = o.Int(rest), last = o.Int(Extent::Max(rest - 1, 0)), zero = o.Int(0);
  if (mode == "constant") {
    *inside = o.CompareI(Compare::kLt, v, extent, false);  // unsigned: negative is large
  } else if (mode == "reflect") {
    v = o.Select(o.Less(v, zero), o.Sub(zero, v), v);
    v = o.Select(o.Less(last, v), o.Sub(o.Add(last, last), v), v);
  } else if (mode == "wrap") {
    v = o.Select(o.Less(v, zero), o.Add(v, extent), v);
    v = o.Select(o.Less(last, v), o.Sub(v, extent), v);
  }
  v = o.Add(o.Min(o.Max(v, zero), last), skip);
  return in.is_static() || skip == 0 ? v : o.Min(v, o.Int(Extent::Max(in - 1, 0)));
}

// An element of the tensor, if it has any: of nothing, nothing may be read.
Value AtIfAny(Eval& e, const Tensor& tensor, const Indices& at, Value otherwise) {
  if (tensor.is_static()) return e.At(tensor, at);
  return e.o.IfElse(
      e.o.Less(e.o.Int(0), e.o.Int(tensor.Elements())), {otherwise.getType()},
      [&] {
        Eval inner = e.Child(e.lanes());
        return std::vector<Value>{inner.At(tensor, at)};
      },
      [&] { return std::vector<Value>{otherwise}; })[0];
}

Value Pad(Eval& e, const Node& n, int, const Indices& at) {
  const std::vector<int64_t>& pads = n.attrs->Ints("pads");
  std::string mode = n.attrs->StringOr("mode", "constant");
  const Shape& in = n.in(0).dims;
  if (mode == "constant" && n.in(0).IsEmpty()) return PadConstant(e.o, n, e.lanes());
  bool lanes_vary = false;
  for (size_t i = 0; i < at.size(); ++i) {
    lanes_vary |= !at[i].uniform() && (pads[i] > 0 || pads[i + at.size()] > 0);
  }
  bool shifted = lanes_vary && PadsVectors(e, n, at);
  auto element = [&](Eval& ev, const Indices& where) -> Value {
    Ops& o = ev.o;
    Indices from;
    Value inside;
    for (size_t i = 0; i < where.size(); ++i) {
      int64_t before = pads[i], after = pads[i + where.size()];
      if (shifted && i + 1 == where.size()) {
        from.emplace_back(o.Min(o.Max(o.Add(where[i].base, -before), o.Int(0)), o.Int(in[i] - ev.lanes())), 1);
        continue;
      }
      if (before <= 0 && after <= 0) {
        from.push_back(ev.Add(where[i], -before));
        continue;
      }
      Value ok, v = PadSource(o, mode, in[i], before, after, where[i].base, &ok);
      if (ok) inside = inside ? o.And(inside, ok) : ok;
      from.push_back(v);
    }
    const Value padding = PadConstant(o, n, ev.lanes());
    Value value = AtIfAny(ev, n.in(0), from, padding);
    if (shifted) {
      Value first = o.Add(where.back().base, -pads[where.size() - 1]);
      Value by = o.TruncateI(o.Sub(first, from.back().base), o.b.getI32Type());
      Value lanes = o.TruncateI(o.Iota(ev.lanes()), o.b.getI32Type());
      value = o.Permute(value, o.AddI(lanes, o.Broadcast(by, ev.lanes())));
      Value mask = o.LaneMask(ev.lanes(), o.Sub(o.Int(0), first), o.Sub(o.Int(in.back()), first));
      value = o.Select(mask, value, padding);
    }
    return inside ? o.Select(inside, value, padding) : value;
  };
  return lanes_vary && !shifted ? e.PerLane(at, element) : element(e, at);
}

// Rows have something to copy: as far as it is known, and nothing is cropped that is not.
bool PadsRows(const Node& n) {
  const Tensor &x = n.in(0), &out = n.out();
  const int last = out.rank() - 1;
  if (last < 0 || x.IsEmpty() || out.IsEmpty()) return false;
  const std::vector<int64_t>& pads = n.attrs->Ints("pads");
  for (int axis = 0; axis <= last; ++axis) {
    const int64_t before = pads[axis], after = pads[axis + last + 1];
    const int64_t added = std::max<int64_t>(before, 0) + std::max<int64_t>(after, 0);
    const Extent& extent = out.dims[axis];
    if (extent.is_static() ? extent.value() <= added : before < 0 || after < 0) return false;
  }
  return true;
}

// Row by row: what lies between the pads is copied by vectors. Where the last axes are not padded, they and the last
// one that is are one, if the argument has memory.
absl::Status PadKernel(FunctionEmitter& f, const Node& n) {
  constexpr int64_t kLongRow = 4096;  // elements: not longer for this, so that threads share them
  const Tensor &x = n.in(0), &out = n.out();
  const std::vector<int64_t>& pads = n.attrs->Ints("pads");
  const std::string mode = n.attrs->StringOr("mode", "constant");
  const int rank = out.rank();
  auto is_padded = [&](int axis) { return pads[axis] != 0 || pads[axis + rank] != 0; };
  int last = rank - 1;
  auto is_short = [&](const Extent& row) { return row.is_static() && row.value() < kLongRow; };
  while (!x.inlined && last > 0 && !is_padded(last) && is_short(Product(out.dims, last, rank))) --last;
  const int64_t left = std::max<int64_t>(pads[last], 0), right = std::max<int64_t>(pads[last + rank], 0);
  const Extent width = out.dims[last], kept = width - left - right;
  const int64_t chunk = Product(out.dims, last + 1, rank).value();  // elements that stay neighbours, known
  const int64_t skipped = std::max<int64_t>(-pads[last], 0);
  ShapeMap shapes;
  for (const Tensor* t : {&x, &out}) {
    shapes[t] = Shape(t->dims.begin(), t->dims.begin() + last);
    shapes[t].push_back(Product(t->dims, last, rank));
  }
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  const Shape outer(out.dims.begin(), out.dims.begin() + last);
  f.WithLanesOrScalar(kept * chunk, f.LanesFor(tensors, kept * chunk), cost, [&](int64_t lanes) {
    f.ParallelEach(Product(outer), Cycles(width * chunk) * (cost + 2.0) / lanes, [&](Kernel& k, Value item) {
      Ops& o = k.o;
      if (chunk > 1) k.shapes = shapes;
      const Indices to = Delinearise(o, item, outer);
      Indices from;
      Value inside;
      for (int axis = 0; axis < last; ++axis) {
        Value ok, at = to[axis].base;
        if (is_padded(axis)) at = PadSource(o, mode, x.dims[axis], pads[axis], pads[axis + rank], at, &ok);
        if (ok) inside = inside ? o.And(inside, ok) : ok;
        from.push_back(at);
      }
      // `count` elements from `begin` on, by vectors where there are so many; the last ones start earlier.
      auto each = [&](Value begin, const Extent& count, const std::function<Value(Eval&, Value)>& value) {
        // An open one is of a vector or more: it holds all that is copied.
        const int64_t step = std::min(lanes, f.LanesFor(tensors, Extent::Max(count, 1)));
        o.For(o.Int(0), o.Int(count), step, [&](Value i) {
          if (!count.IsMultipleOf(step)) i = o.Min(i, o.Int(count - step));
          Eval e(k, step);
          Indices at = to;
          at.push_back(Index(o.KernelBuilder::Add(begin, i), step == 1 ? 0 : 1));
          k.StoreElement(out, at, value(e, i));
        });
      };
      auto fill = [&](const Extent& begin, const Extent& count) {
        each(o.Int(begin), count, [&](Eval& e, Value) { return PadConstant(o, n, e.lanes()); });
      };
      auto copy = [&](Value begin, Value source, const Extent& count) {
        each(begin, count, [&](Eval& e, Value i) {
          Indices at = from;
          at.push_back(Index(o.KernelBuilder::Add(source, i), e.lanes() == 1 ? 0 : 1));
          return e.At(x, at);
        });
      };
      auto edge = [&](const Extent& begin, int64_t count) {
        if (mode == "constant") return fill(begin * chunk, count * chunk);
        o.For(o.Int(begin), o.Int(begin + count), 1, [&](Value at) {
          Value ok, source = PadSource(o, mode, x.dims[last], pads[last], pads[last + rank], at, &ok);
          copy(o.KernelBuilder::Mul(at, chunk), o.KernelBuilder::Mul(source, chunk), chunk);
        });
      };
      auto row = [&] {
        edge(0, left);
        copy(o.Int(left * chunk), o.Int(skipped * chunk), kept * chunk);
        edge(left + kept, right);
      };
      auto no_row = [&] { fill(0, width * chunk); };
      if (mode != "constant" && !x.is_static()) return o.If(o.Less(o.Int(0), o.Int(x.Elements())), row, no_row);
      if (!inside) return row();
      o.If(inside, row, no_row);
    });
  });
  return absl::OkStatus();
}

Value Tile(Eval& e, const Node& n, int, const Indices& at) {
  const std::vector<int64_t>& repeats = n.attrs->Ints("repeats");
  bool lanes_vary = false;
  for (size_t i = 0; i < at.size(); ++i)
    lanes_vary |= !at[i].uniform() && repeats[i] != 1 && n.in(0).dims[i] != Extent(1);
  auto element = [&](Eval& ev, const Indices& where) {
    Indices from;
    for (size_t i = 0; i < where.size(); ++i) {
      const Extent& extent = n.in(0).dims[i];
      from.push_back(extent == Extent(1) ? ev.Constant(0)
                     : repeats[i] == 1   ? where[i]
                                         : Index(ev.o.Rem(where[i].base, extent)));
    }
    return ev.At(n.in(0), from);
  };
  return lanes_vary ? e.PerLane(at, element) : element(e, at);
}

Value Trilu(Eval& e, const Node& n, int, const Indices& at) {
  Ops& o = e.o;
  Value row = e.AsVector(at[at.size() - 2]), column = e.AsVector(at[at.size() - 1]);
  int64_t k = n.attrs->IntOr("k", 0);
  Value diagonal = o.AddI(row, o.ConstI(row.getType(), k));
  bool upper = n.attrs->BoolOr("upper", true);
  Value keep = o.CompareI(upper ? Compare::kGe : Compare::kLe, column, diagonal, true);
  Value x = e.At(n.in(0), at);
  return o.Select(keep, x, o.Const(x.getType(), 0));
}

Value Full(Eval& e, const Node& n, int, const Indices&) { return PadConstant(e.o, n, e.lanes()); }

Value Iota(Eval& e, const Node& n, int, const Indices& at) {
  Value index = e.AsVector(at[n.attrs->Int("axis")]);
  return e.o.Cast(ir::DType::kI64, n.out().dtype, index);
}

Value ReverseSequence(Eval& e, const Node& n, int, const Indices& at) {
  int64_t batch_axis = n.attrs->IntOr("batch_axis", 1), time_axis = n.attrs->IntOr("time_axis", 0);
  auto element = [&](Eval& ev, const Indices& where) {
    Ops& o = ev.o;
    Eval scalar = ev.Child(1);
    Value length = scalar.At(n.in(1), {where[batch_axis]});
    length = o.ExtendI(length, o.b.getI64Type(), true);
    length = o.Min(o.Max(length, o.Int(0)), o.Int(n.in(0).dims[time_axis]));
    Value t = where[time_axis].base;
    Indices from = where;
    from[time_axis] = o.Select(o.Less(t, length), o.Sub(o.Sub(length, o.Int(1)), t), t);
    return ev.At(n.in(0), from);
  };
  bool lanes_vary = !at[batch_axis].uniform() || !at[time_axis].uniform();
  return lanes_vary ? e.PerLane(at, element) : element(e, at);
}

}  // namespace

void RegisterDataMovement(LoweringTable* table) {
  LoweringTable& t = *table;
  t["reshape"] = Injective(0, Reshape);
  t["transpose"] = Injective(1, Transpose);
  t["slice"] = Injective(1, Slice);
  t["split"] = Injective(1, Split);
  t["expand"] = Injective(1, Expand);
  t["expand"].pointwise = true;
  t["concat"] = Injective(6, Concat);
  t["concat"].kernel = ConcatKernel;
  t["pad"] = Injective(4, Pad);
  t["pad"].kernel = PadKernel;
  t["pad"].kernel_if = PadsRows;
  t["tile"] = Injective(4, Tile);
  t["trilu"] = Injective(2, Trilu);
  t["full"] = Injective(0, Full);
  t["iota"] = Injective(1, Iota);
  t["reverse_sequence"] = Injective(6, ReverseSequence);
}

}  // namespace inlay::native
