// FunctionEmitter's loops over the elements of a tensor that has no kernel of its own.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

using mlir::Value;

namespace {

constexpr int64_t kChunk = 4096;  // elements of a work item where one row is all there is
constexpr int kLongCost = 12;     // of an expression that is computed for several vectors at a time

// How many vectors along `inner` are computed as one (Ops::Joined), and share the loads of constants.
int64_t VectorsAtOnce(const Extent& inner, int64_t lanes, int cost) {
  if (lanes == 1 || cost < kLongCost) return 1;
  int64_t vectors = Ops::kSideBySide;
  if (!inner.is_static()) return vectors;  // what is left of a row goes a vector at a time
  while (vectors > 1 && !inner.IsMultipleOf(vectors * lanes) && inner.value() < 8 * vectors * lanes) vectors /= 2;
  return vectors;
}

}  // namespace

void FunctionEmitter::Pointwise(const Tensor& root) {
  if (root.IsEmpty()) return;
  bool pointwise = false;
  int cost = 0;
  std::vector<const Tensor*> tensors = Expression(root, nullptr, &pointwise, &cost);
  Loop loop{root, 0, {}, {}, 0, false, cost};
  if (pointwise) MergeDimsOf(root, MergeableGroups(root), &loop.shapes);
  loop.shape = loop.shapes.count(&root) ? loop.shapes[&root] : root.dims;
  loop.scalar = loop.shape.empty();
  if (loop.scalar) loop.shape.emplace_back(1);
  while (root.producer->outputs[loop.output] != &root) ++loop.output;
  if (!pointwise && !loop.scalar) {
    if (const Tensor* whole = Concatenation(root)) return EmitPieces(loop, *whole, tensors);
  }
  while (!pointwise && loop.shape.size() > 1 && loop.shape.back() == Extent(1)) {
    loop.shape.pop_back();
    ++loop.trailing;
  }

  const Extent& inner = loop.shape.back();
  int64_t lanes = LanesFor(tensors, inner);
  EmitRows(loop, lanes);
  if (lanes == 1 || last_irregular_ == 0) return ElseScalars(loop, {{inner, lanes, INT64_MAX}});
  const int irregular = last_irregular_;
  DropLastKernel();
  // Perhaps another dimension is the one along which memory is contiguous (a transposition).
  const bool whole_rows = loop.shapes.empty() && !loop.scalar;
  if (EmitSquares(loop, tensors, [&](int along) { return whole_rows ? FollowingDims(root, along) : 1; })) return;
  // Or some operands are transposed, and others not.
  Operands operands;
  if (!pointwise && !loop.scalar && FindOperands(root, &operands)) {
    auto following = [&](int along) { return FollowingDims(root, operands, along); };
    if (EmitSquares(loop, tensors, following, operands.transposed)) return;
  }
  // A vector's worth of scalar loads costs about as much as `lanes` cycles; short computations do not earn that back.
  if (cost < 2 * lanes * irregular) return EmitRows(loop, 1);
  EmitRows(loop, lanes);
  ElseScalars(loop, {{inner, lanes, INT64_MAX}});
}

void FunctionEmitter::ElseScalars(const Loop& loop, const std::vector<Condition>& vectors) {
  std::vector<Condition> conditions;
  for (const Condition& c : vectors) {
    if (!AlwaysFits(*c.extent, c.least)) conditions.push_back(c);
  }
  if (conditions.empty()) return;
  run_steps_.back().conditions = conditions;
  Either(conditions, [] {}, [&] { EmitRows(loop, 1); });
}

bool FunctionEmitter::EmitSquares(const Loop& loop, const std::vector<const Tensor*>& tensors,
                                  const std::function<int(int along)>& following,
                                  const std::vector<const Tensor*>& transposed) {
  if (loop.root.dtype == ir::DType::kBool) return false;
  const Extent& inner = loop.shape.back();
  for (int along = static_cast<int>(loop.shape.size()) - 2; along >= 0; --along) {
    const int count = following(along);
    const Extent length = Product(loop.shape, along + 1 - count, along + 1);
    const int64_t side = std::min({LanesFor(tensors, length), LanesFor(tensors, inner), int64_t{16}});
    if (side < 4) continue;
    EmitTransposed(loop, along, count, side, transposed);
    if (last_irregular_ == 0) {
      ElseScalars(loop, {{inner, side, INT64_MAX}, {length, side, INT64_MAX}});
      return true;
    }
    DropLastKernel();
  }
  return false;
}

void FunctionEmitter::EmitPieces(const Loop& loop, const Tensor& whole, const std::vector<const Tensor*>& tensors) {
  Extent end = 0;
  for (const Tensor* piece : whole.producer->inputs) {
    if (piece->dims.back() == Extent(0)) continue;
    Loop part = loop;
    part.whole = &whole;
    part.piece = piece;
    part.first = end;
    part.shape.back() = piece->dims.back();
    end = end + piece->dims.back();
    const int last = piece->rank() - 1;
    if (piece->inlined && piece->producer->op == "transpose" && piece->producer->attrs->Ints("perm")[last] != last) {
      Operands operands;
      const bool found = FindOperands(loop.root, &operands, &whole, piece);
      auto following = [&](int along) { return found ? FollowingDims(loop.root, operands, along) : 1; };
      if (EmitSquares(part, tensors, following, {piece})) continue;
    }
    WithLanesOrScalar(part.shape.back(), LanesFor(tensors, part.shape.back()), loop.cost,
                      [&](int64_t lanes) { EmitRows(part, lanes); });
  }
}

void FunctionEmitter::EmitRows(const Loop& loop, int64_t lanes) {
  const int64_t vectors = VectorsAtOnce(loop.shape.back(), lanes, loop.cost);
  EmitRows(loop, lanes, vectors);
  if (vectors == 1 || last_irregular_ == 0) return;
  DropLastKernel();
  EmitRows(loop, lanes, 1);
}

void FunctionEmitter::EmitRows(const Loop& loop, int64_t lanes, int64_t vectors) {
  const Node& node = *loop.root.producer;
  const Lowering& lowering = *FindLowering(node.op);
  Shape outer(loop.shape.begin(), loop.shape.end() - 1);
  Extent inner = loop.shape.back(), rows = Product(outer);
  bool chunked = rows.is_static() && rows.value() < 8 && (!inner.is_static() || inner.value() >= 2 * kChunk);
  Extent chunk = chunked ? Extent(kChunk) : inner, chunks = chunked ? CeilDiv(inner, kChunk) : Extent(1);
  Cycles cycles = Cycles(chunk) / lanes * (loop.cost + 2);
  const int64_t step = vectors * lanes;
  ParallelEach(rows * chunks, cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, o.Div(item, chunks), outer);
    Value low = o.Mul(o.Rem(item, chunks), chunk);
    Value high = chunks == Extent(1) ? o.Int(inner) : o.Min(o.Add(low, chunk), o.Int(inner));
    auto elements = [&](Value i, int64_t width) {
      Eval e(k, width);
      Indices at = indices;
      at.push_back(Index(i, width == 1 ? 0 : 1));
      if (loop.scalar) at.clear();
      at.insert(at.end(), loop.trailing, e.Constant(0));
      if (loop.whole != nullptr) {
        e.Provide(*loop.whole, e.At(*loop.piece, at));
        at.back() = e.Add(at.back(), loop.first);
      }
      k.StoreElement(loop.root, at, lowering.element(e, node, loop.output, at));
    };
    // The last vectors of a row whose length is no multiple start earlier: some elements are stored twice.
    auto each = [&](Value from, int64_t width) {
      o.For(from, high, width,
            [&](Value i) { elements(inner.IsMultipleOf(width) ? i : o.Min(i, o.Int(inner - width)), width); });
    };
    if (vectors == 1 || inner.is_static()) return each(low, step);
    const Value whole = o.Add(low, o.Mul(o.Div(o.Sub(high, low), step), step));
    o.For(low, whole, step, [&](Value i) { elements(i, step); });
    each(whole, lanes);
  });
}

namespace {

// rows[i][j] -> rows[j][i], by exchanging blocks of 1, 2, 4, ... lanes between pairs of rows.
void TransposeSquare(Ops& o, std::vector<Value>* rows) {
  int64_t side = static_cast<int64_t>(rows->size());
  for (int64_t step = 1; step < side; step *= 2) {
    std::vector<int64_t> low, high;
    for (int64_t lane = 0; lane < side; ++lane) {
      low.push_back((lane & step) == 0 ? lane : side + lane - step);
      high.push_back((lane & step) == 0 ? lane + step : side + lane);
    }
    for (int64_t i = 0; i < side; ++i) {
      if ((i & step) != 0) continue;
      Value a = (*rows)[i], b = (*rows)[i + step];
      (*rows)[i] = o.Shuffle(a, b, low);
      (*rows)[i + step] = o.Shuffle(a, b, high);
    }
  }
}

}  // namespace

// How many squares beside each other are done together, so that a line of what is transposed is read once: not where L1
// has too few sets for the rows that they store.
static int64_t SquaresOfLine(const Tensor& root, const Shape& shape, int along, const Extent& length, int64_t side) {
  const int64_t element_bytes = ir::ByteSize(root.dtype), squares = kLineBytes / (side * element_bytes);
  const Extent stride = Product(shape, along + 1, static_cast<int>(shape.size()));
  if (squares < 2 || !length.is_static() || !stride.is_static()) return 1;
  const int64_t rows = squares * side;
  const bool even = length.value() % rows == 0 || length.value() >= 8 * rows;
  return even && L1LinesHeld(stride.value() * element_bytes) >= 2 * rows ? squares : 1;
}

void FunctionEmitter::EmitTransposed(const Loop& loop, int along, int following, int64_t side,
                                     const std::vector<const Tensor*>& transposed) {
  Shape outer = loop.shape;
  int last = static_cast<int>(loop.shape.size()) - 1;
  Extent length = Product(loop.shape, along + 1 - following, along + 1), inner = loop.shape[last];
  const int64_t squares = SquaresOfLine(loop.root, loop.shape, along, length, side);
  for (int d = along + 1 - following; d < along; ++d) outer[d] = 1;
  outer[along] = CeilDiv(length, squares * side);
  outer.pop_back();
  Cycles cycles = Cycles(inner) * (squares * (loop.cost + 8));
  ParallelEach(Product(outer), cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, item, outer);
    Value first = o.Mul(indices[along].base, squares * side);
    o.For(o.Int(0), o.Int(inner), side, [&](Value i) {
      if (!inner.IsMultipleOf(side)) i = o.Min(i, o.Int(inner - side));
      for (int64_t s = 0; s < squares; ++s) {
        Value band = o.Min(o.Add(first, s * side), o.Int(length - side));
        EmitSquare(k, loop, indices, along, band, i, side, transposed);
      }
    });
  });
}

void FunctionEmitter::EmitSquare(Kernel& k, const Loop& loop, const Indices& indices, int along, Value band, Value i,
                                 int64_t side, const std::vector<const Tensor*>& transposed) {
  Ops& o = k.o;
  const Node& node = *loop.root.producer;
  const Lowering& lowering = *FindLowering(node.op);
  const size_t last = indices.size();
  Indices at = indices;
  at.push_back(i);
  at.insert(at.end(), loop.trailing, Index(o.Int(0)));
  at[along] = Index(band, 1);
  auto square_of = [&](const std::function<Value(Eval&, const Indices&)>& element) {
    std::vector<Value> square;
    for (int64_t r = 0; r < side; ++r) {
      Eval e(k, side);
      at[last] = o.Add(i, r);
      square.push_back(element(e, at));
    }
    TransposeSquare(o, &square);
    return square;
  };
  std::vector<std::vector<Value>> operands;
  for (const Tensor* t : transposed) {
    operands.push_back(square_of([&](Eval& e, const Indices& from) { return e.At(*t, from); }));
  }
  auto element = [&](Eval& e, const Indices& from) { return lowering.element(e, node, loop.output, from); };
  std::vector<Value> square;
  if (transposed.empty()) square = square_of(element);
  at[last] = Index(o.Add(i, o.Int(loop.first)), 1);
  for (int64_t r = 0; r < side; ++r) {
    at[along] = o.Add(band, r);
    Eval e(k, side);
    for (size_t t = 0; t < transposed.size(); ++t) {
      e.Provide(loop.whole != nullptr ? *loop.whole : *transposed[t], operands[t][r]);
    }
    k.StoreElement(loop.root, at, transposed.empty() ? square[r] : element(e, at));
  }
}

}  // namespace inlay::native
