// Gather and scatter. Indices count from the end where negative and are clamped: nothing is read or written outside.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

using mlir::Value;
using Values = std::vector<Value>;

Value Gather(Eval& e, const Node& n, int, const Indices& at) {
  int64_t axis = n.attrs->IntOr("axis", 0);
  int indices_rank = n.in(1).rank();
  Indices which(at.begin() + axis, at.begin() + axis + indices_rank);
  Indices from(at.begin(), at.begin() + axis);
  from.push_back(e.IndexFrom(n.in(1), which, n.in(0).dims[axis]));
  from.insert(from.end(), at.begin() + axis + indices_rank, at.end());
  return e.At(n.in(0), from);
}

// Bytes that follow each other in x and in the result.
Extent RunBytes(const Node& n) {
  const Tensor& x = n.in(0);
  return Product(x.dims, static_cast<int>(n.attrs->IntOr("axis", 0)) + 1, x.rank()) * ir::ByteSize(x.dtype);
}

// Where the C library's copy is faster than a loop of loads and stores.
bool GathersLongRuns(const Node& n) {
  constexpr int64_t kLongRun = 512;
  const Extent bytes = RunBytes(n);
  return bytes.is_static() && bytes.value() >= kLongRun && !n.in(0).inlined;
}

absl::Status GatherKernel(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &which = n.in(1), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  const int axis = static_cast<int>(n.attrs->IntOr("axis", 0));
  const Extent run = RunBytes(n), count = which.Elements();
  f.ParallelEach(Product(x.dims, 0, axis) * count, Cycles(run) / 16.0 + 10, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    Eval e(k, 1);
    const Indices at = Delinearise(o, o.Rem(item, count), which.dims);
    const Value from = o.Add(o.Mul(o.Div(item, count), x.dims[axis]), e.IndexFrom(which, at, x.dims[axis]).base);
    const mlir::Type byte = o.b.getI8Type();
    o.CopyBytes(o.At(k.Pointer(out), o.Mul(item, run), byte), o.At(k.Pointer(x), o.Mul(from, run), byte), run);
  });
  return absl::OkStatus();
}

Value GatherElements(Eval& e, const Node& n, int, const Indices& at) {
  int64_t axis = n.attrs->IntOr("axis", 0);
  Indices from = at;
  from[axis] = e.IndexFrom(n.in(1), at, n.in(0).dims[axis]);
  return e.At(n.in(0), from);
}

// The indices into x that the tuple at `where` (without its last axis) addresses, from axis `first` of x on.
Indices TupleAt(Eval& e, const Node& n, Indices where, int first) {
  Indices result;
  int64_t depth = n.in(1).dims.back().value();  // the rank of x follows from it: never open
  where.push_back(e.Constant(0));
  for (int64_t i = 0; i < depth; ++i) {
    where.back() = e.Constant(i);
    result.push_back(e.IndexFrom(n.in(1), where, n.in(0).dims[first + i]));
  }
  return result;
}

Value GatherNd(Eval& e, const Node& n, int, const Indices& at) {
  int batch = static_cast<int>(n.attrs->IntOr("batch_dims", 0));
  int outer = n.in(1).rank() - 1;
  Indices from(at.begin(), at.begin() + batch);
  for (Index& i : TupleAt(e, n, Indices(at.begin(), at.begin() + outer), batch)) from.push_back(i);
  from.insert(from.end(), at.begin() + outer, at.end());
  return e.At(n.in(0), from);
}

// Whether the elements along the last axis of the updates go to neighbours: indices are none of it.
bool ScattersRows(const Node& n) {
  const Tensor &which = n.in(1), &updates = n.in(2);
  if (updates.rank() == 0 || !updates.dims.back().is_static()) return false;
  if (n.op == "scatter_nd") return updates.rank() >= which.rank();
  const Node* expand = which.inlined ? which.producer : nullptr;
  return n.attrs->IntOr("axis", 0) != updates.rank() - 1 && expand != nullptr && expand->op == "expand" &&
         expand->in(0).rank() == which.rank() && expand->in(0).dims.back() == Extent(1);
}

// Rows of updates as vectors, to where `target` says that each begins.
void ScatterRows(FunctionEmitter& f, const Node& n, const std::function<Indices(Eval&, const Indices&)>& target) {
  const Tensor &updates = n.in(2), &out = n.out();
  const Shape rows(updates.dims.begin(), updates.dims.end() - 1);
  const int64_t columns = updates.dims.back().value();
  const int64_t lanes =
      std::min(f.LanesFor(f.Expression(updates), columns), f.LanesForBytes(ir::ByteSize(updates.dtype), columns));
  f.Parallel(1, updates.Elements(), [&](Kernel& k, Value, Value) {
    Ops& o = k.o;
    o.For(o.Int(0), o.Int(Product(rows)), 1, [&](Value row) {
      Eval indices(k, 1);
      Indices where = Delinearise(o, row, rows);
      where.push_back(indices.Constant(0));
      Indices to = target(indices, where);
      VectorLoop(o, {columns}, lanes, {}, [&](const VectorPoint& p, const Values&) {
        Eval e(k, lanes);
        where.back() = to.back() = p.at[0];
        k.StoreElement(out, to, e.At(updates, where));
        return Values();
      });
    });
  });
}

// Copies x, then lets each update in order change its element. Serial: updates may address one element several times,
// and the last wins.
absl::Status Scatter(FunctionEmitter& f, const Node& n, const std::function<Indices(Eval&, const Indices&)>& target) {
  const Tensor &x = n.in(0), &updates = n.in(2), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  Extent bytes = out.Bytes();
  const bool may_be_one = f.MayBeOne(x, out);
  f.Parallel(1, bytes, [&](Kernel& k, Value, Value) {
    const Value to = k.Pointer(out), from = k.Pointer(x);
    const auto copy = [&] { k.o.CopyBytes(to, from, bytes); };
    may_be_one ? k.o.If(k.o.Differ(to, from), copy) : copy();
  });
  std::string reduction = n.attrs->StringOr("reduction", "none");
  if (reduction == "none" && !updates.IsEmpty() && ScattersRows(n)) {
    ScatterRows(f, n, target);
    return absl::OkStatus();
  }
  f.Parallel(updates.IsEmpty() ? 0 : 1, updates.Elements(), [&](Kernel& k, Value, Value) {
    Ops& o = k.o;
    o.For(o.Int(0), o.Int(updates.Elements()), 1, [&](Value i) {
      Eval e(k, 1);
      Indices where = Delinearise(o, i, updates.dims);
      Indices to = target(e, where);
      Value value = e.At(updates, where);
      if (reduction != "none") {
        Shape strides = RowMajorStrides(out.dims);
        Value offset = o.Int(0);
        for (size_t d = 0; d < to.size(); ++d) offset = o.Add(offset, o.Mul(to[d].base, strides[d]));
        Value old = o.LoadElements(out.dtype, k.Pointer(out), offset, 1);
        value = reduction == "add"   ? o.AddN(out.dtype, old, value)
                : reduction == "mul" ? o.MulN(out.dtype, old, value)
                : reduction == "max" ? o.MaxN(out.dtype, old, value)
                                     : o.MinN(out.dtype, old, value);
      }
      k.StoreElement(out, to, value);
    });
  });
  return absl::OkStatus();
}

absl::Status ScatterElements(FunctionEmitter& f, const Node& n) {
  int64_t axis = n.attrs->IntOr("axis", 0);
  return Scatter(f, n, [&](Eval& e, const Indices& where) {
    Indices to = where;
    to[axis] = e.IndexFrom(n.in(1), where, n.in(0).dims[axis]);
    return to;
  });
}

absl::Status ScatterNd(FunctionEmitter& f, const Node& n) {
  int outer = n.in(1).rank() - 1;
  return Scatter(f, n, [&](Eval& e, const Indices& where) {
    Indices to = TupleAt(e, n, Indices(where.begin(), where.begin() + outer), 0);
    to.insert(to.end(), where.begin() + outer, where.end());
    return to;
  });
}

Lowering Gathering(std::function<Value(Eval&, const Node&, int, const Indices&)> element) {
  Lowering lowering;
  lowering.cost = 4;
  lowering.element = std::move(element);
  lowering.arg_use_of = [](const Node&, int arg) { return arg == 0 ? ArgUse::kOnce : ArgUse::kMany; };
  return lowering;
}

Lowering Scattering(std::function<absl::Status(FunctionEmitter&, const Node&)> kernel) {
  Lowering lowering;
  lowering.cost = 10;
  lowering.kernel = std::move(kernel);
  lowering.arg_use_of = [](const Node&, int arg) { return arg == 0 ? ArgUse::kMemory : ArgUse::kOnce; };
  return lowering;
}

}  // namespace

void RegisterIndexing(LoweringTable* table) {
  LoweringTable& t = *table;
  t["gather"] = Gathering(Gather);
  t["gather"].kernel = GatherKernel;
  t["gather"].kernel_if = GathersLongRuns;
  t["gather_elements"] = Gathering(GatherElements);
  t["gather_nd"] = Gathering(GatherNd);
  t["scatter_elements"] = Scattering(ScatterElements);
  t["scatter_nd"] = Scattering(ScatterNd);
}

}  // namespace inlay::native
