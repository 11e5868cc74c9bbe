#include "core/backends/native/lowerings/word_products.h"

#include <algorithm>

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

Value DotOfBytes(Ops& o, Value unsigned_side, Value signed_side, Value sum) {
  const bool wide = Ops::Lanes(sum) == 16;
  return o.Intrinsic(wide ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256", sum.getType(),
                     {sum, unsigned_side, signed_side});
}

Value DotOfShorts(Ops& o, Value p, Value q, Value sum) {
  const int64_t lanes = Ops::Lanes(sum);
  if (o.cpu().x86 && (lanes == 4 || lanes == 8 || lanes == 16)) {
    const Type shorts = mlir::VectorType::get({2 * lanes}, o.b.getI16Type());
    auto cast = [&](Value x) -> Value { return o.b.create<mlir::LLVM::BitcastOp>(o.loc, shorts, x); };
    const char* name = lanes == 16  ? "llvm.x86.avx512.pmaddw.d.512"
                       : lanes == 8 ? "llvm.x86.avx2.pmadd.wd"
                                    : "llvm.x86.sse2.pmadd.wd";
    return o.AddI(sum, o.Intrinsic(name, sum.getType(), {cast(p), cast(q)}));
  }
  const Value half = o.ConstI(sum.getType(), 16);
  auto low = [&](Value x) { return o.ShiftRight(o.ShiftLeft(x, half), half, true); };
  auto high = [&](Value x) { return o.ShiftRight(x, half, true); };
  return o.AddI(sum, o.AddI(o.MulI(low(p), low(q)), o.MulI(high(p), high(q))));
}

Value DotOfBrains(Ops& o, Value p, Value q, Value sum) {
  const int64_t lanes = Ops::Lanes(sum);
  const Type halves = mlir::VectorType::get({2 * lanes}, o.b.getBF16Type());
  auto cast = [&](Value x) -> Value { return o.b.create<mlir::LLVM::BitcastOp>(o.loc, halves, x); };
  return o.Intrinsic(lanes == 16 ? "llvm.x86.avx512bf16.dpbf16ps.512" : "llvm.x86.avx512bf16.dpbf16ps.256",
                     sum.getType(), {sum, cast(p), cast(q)});
}

// A byte in the form that words hold it in, as an integer of `bits`.
Value Element(Ops& o, const WordProducts& products, Value x, bool of_x, int bits) {
  if (products.shifts_x() && of_x) x = o.Xor(x, o.ConstI(x.getType(), -128));
  if (products.word == Word::kBytes) return o.ExtendI(x, o.b.getIntegerType(bits), false);
  x = o.ExtendI(x, o.b.getIntegerType(bits), of_x ? products.x_signed : products.w_signed);
  return of_x && products.x_zero != 0 ? o.SubI(x, o.ConstI(x.getType(), products.x_zero)) : x;
}

// In the lower half of an i32, of an f32 that is one.
Value BitsOfBrain(Ops& o, Value x) {
  x = o.Bitcast(x, o.b.getI32Type());
  return o.ShiftRight(x, o.ConstI(x.getType(), 16), false);
}

constexpr int64_t kExactInFloat = 1 << 24;
constexpr int64_t kLargestProduct = 255 * 255;

}  // namespace

std::optional<WordProducts> ProductsOfConv(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &w = n.in(1);
  if (ir::IsFloat(x.dtype)) {
    const bool multiplies = x.dtype == ir::DType::kBF16 && f.cpu().brain_dots && f.IsConstantParam(w);
    const bool is_dense = n.attrs->IntOr("groups", 1) == 1;
    return multiplies && is_dense ? std::optional<WordProducts>({Word::kBrains}) : std::nullopt;
  }
  WordProducts products{Word::kShorts, x.dtype == ir::DType::kI8, w.dtype == ir::DType::kI8,
                        n.attrs->IntOr("x_zero", 0)};
  const int64_t channels = w.dims[1].value(), sum = Product(w.dims, 1, w.rank()).value();
  // Few channels a group would leave most of a word empty, and depthwise kernels have no words at all.
  if (n.attrs->IntOr("groups", 1) > 1 && channels <= 4) {
    products.word = sum * kLargestProduct <= kExactInFloat ? Word::kFloat : Word::kInteger;
    return products;
  }
  if (f.cpu().byte_dots && (products.x_signed || products.w_signed)) products.word = Word::kBytes;
  return products;
}

bool WordProducts::has_tiles(const CpuFeatures& cpu) const {
  return word == Word::kBytes ? cpu.matrix_tiles : of_floats() && cpu.brain_tiles;
}

const char* WordProducts::tile_product(bool p_is_x) const {
  if (of_floats()) return "llvm.x86.tdpbf16ps";
  return p_is_x == x_is_unsigned() ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbsud";
}

Value WordProducts::Join(Ops& o, const Values& elements, bool of_x) const {
  if (word == Word::kFloat) return o.IntToFloat(Element(o, *this, elements[0], of_x, 32), o.b.getF32Type(), true);
  const int bits = 32 / static_cast<int>(depth());
  Value joined;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!elements[i]) continue;
    Value x = of_floats() ? BitsOfBrain(o, elements[i]) : Element(o, *this, elements[i], of_x, 32);
    if (static_cast<int64_t>(i) + 1 < depth() && word == Word::kShorts) x = o.And(x, o.ConstI(x.getType(), 0xffff));
    if (i > 0) x = o.ShiftLeft(x, o.ConstI(x.getType(), static_cast<int64_t>(i) * bits));
    joined = joined ? o.Or(joined, x) : x;
  }
  return joined;
}

MultiplyAdd WordProducts::multiply_add(Ops& o, bool p_is_x) const {
  if (depth() == 1) return nullptr;
  if (word == Word::kShorts)
    return [&o](KernelBuilder&, Value p, Value q, Value sum) { return DotOfShorts(o, p, q, sum); };
  if (of_floats()) return [&o](KernelBuilder&, Value p, Value q, Value sum) { return DotOfBrains(o, p, q, sum); };
  return [&o, p_is_unsigned = p_is_x == x_is_unsigned()](KernelBuilder&, Value p, Value q, Value sum) {
    return p_is_unsigned ? DotOfBytes(o, p, q, sum) : DotOfBytes(o, q, p, sum);
  };
}

Value WordProducts::Sum(Ops& o, Value accumulator) const {
  return word == Word::kFloat ? o.FloatToInt(accumulator, o.b.getI32Type()) : accumulator;
}

Buffer Words(FunctionEmitter& f, const Tensor& x, const WordProducts& products, bool of_x, int axis, int64_t groups,
             const ShapeMap& shapes) {
  const auto merged = shapes.find(&x);
  Shape shape = merged == shapes.end() ? x.dims : merged->second;
  const int64_t elements = shape[axis].value() / groups, words = products.words(elements), depth = products.depth();
  const int64_t columns = shape.back().value();
  shape[axis] = Extent(groups * words);
  const Buffer made = f.Temporary((Product(shape) + SlackWords(columns)) * kWordBytes);
  const Shape outer(shape.begin(), shape.end() - 1);
  int cost = 0;
  f.Expression(x, nullptr, nullptr, &cost);
  const Extent rows = Product(outer);
  f.WithLanesOrScalar(
      columns, f.LanesForBytes(kWordBytes, columns), cost * static_cast<int>(depth), [&](int64_t lanes) {
        f.ParallelEach(rows, static_cast<double>(columns * depth * (cost + 2)) / lanes + 10, [&](Kernel& k, Value row) {
          Ops& o = k.o;
          k.shapes = shapes;
          Indices at = Delinearise(o, row, outer);
          const Value word = o.Rem(at[axis].base, words), first = o.Mul(word, depth);
          const Value group = o.Mul(o.Div(at[axis].base, words), elements);
          const Type type = o.StoredType(products.type());
          const Value to = o.At(k.Pointer(made), o.Mul(row, columns), type);
          VectorLoop(o, {columns}, lanes, {}, [&](const VectorPoint& point, const Values&) {
            Eval e(k, lanes);
            Values joined;
            for (int64_t i = 0; i < depth; ++i) {
              Indices here = at;
              here.push_back(point.at[0]);
              Value element = o.Add(first, i);
              // Only the last word may lack some.
              const bool may_lack = elements % depth != 0 && i >= elements % depth;
              const Value exists = may_lack ? o.Less(element, o.Int(elements)) : Value();
              if (may_lack) element = o.KernelBuilder::Select(exists, element, o.Int(0));
              here[axis] = o.Add(group, element);
              Value value = e.At(x, here);
              if (may_lack) value = o.KernelBuilder::Select(exists, value, o.Zero(value.getType()));
              joined.push_back(value);
            }
            o.Store(products.Join(o, joined, of_x), o.At(to, point.at[0].base, type));
            return Values();
          });
        });
      });
  return made;
}

Buffer RowsOfWords(FunctionEmitter& f, const Tensor& x, const WordProducts& products, bool of_x, int64_t row_words) {
  const int64_t elements = x.dims.back().value(), depth = products.depth(), width = row_words * depth;
  const bool is_words = products.words_lie_in_memory() && !(of_x && products.shifts_x());
  const bool as_they_lie = is_words && elements == width;
  if (as_they_lie && !x.inlined) return f.BufferOf(x);
  const int64_t bytes = kWordBytes / depth;
  const Shape outer(x.dims.begin(), x.dims.end() - 1);
  const Extent rows = Product(outer);
  const Buffer made = f.Temporary(rows * width * bytes);
  int cost = 0;
  f.Expression(x, nullptr, nullptr, &cost);
  f.WithLanesOrScalar(elements, f.LanesForBytes(bytes, elements), cost, [&](int64_t lanes) {
    f.ParallelEach(rows, static_cast<double>(elements * (cost + 2)) / lanes + 10, [&](Kernel& k, Value row) {
      Ops& o = k.o;
      const Indices at = Delinearise(o, row, outer);
      const Type type = o.b.getIntegerType(static_cast<unsigned>(8 * bytes));
      const Value to = o.At(k.Pointer(made), o.Mul(row, width), type);
      VectorLoop(o, {elements}, lanes, {}, [&](const VectorPoint& point, const Values&) {
        Eval e(k, lanes);
        Indices here = at;
        here.push_back(point.at[0]);
        const Value value = e.At(x, here);
        if (products.of_floats()) {
          o.StoreElements(ir::DType::kBF16, value, to, point.at[0].base);
        } else {
          o.Store(Element(o, products, value, of_x, static_cast<int>(8 * bytes)), o.At(to, point.at[0].base, type));
        }
        return Values();
      });
      o.For(o.Int(elements), o.Int(width), 1, [&](Value i) { o.Store(o.ConstI(type, 0), o.At(to, i, type)); });
    });
  });
  return made;
}

void ForWordsOfFilter(Ops& o, const WordProducts& products, const Elements& from, int64_t channels, int64_t taps,
                      const std::function<void(Value word, Value tap, Value joined)>& body) {
  const int64_t depth = products.depth();
  auto join = [&](Value word, int64_t present) {
    o.For(taps, [&](Value tap) {
      Values parts;
      for (int64_t i = 0; i < present; ++i) {
        const Value channel = o.Add(o.Mul(word, depth), i);
        const Value x = o.Load(from.type, o.At(from.pointer, o.Add(o.Mul(channel, taps), tap), from.type));
        parts.push_back(products.of_floats() ? o.Widen(x, o.b.getF32Type()) : x);
      }
      body(word, tap, products.Join(o, parts, false));
    });
  };
  o.For(channels / depth, [&](Value word) { join(word, depth); });
  if (channels % depth != 0) join(o.Int(channels / depth), channels % depth);
}

Value ExcessOf(Ops& o, const WordProducts& products, Value from, int64_t elements) {
  const Type byte = o.b.getI8Type(), i32 = o.b.getI32Type();
  const Values sum = o.For(o.Int(0), o.Int(elements), 1, {o.Zero(i32)}, [&](Value i, const Values& sum) {
    return Values{o.AddI(sum[0], o.ExtendI(o.Load(byte, o.At(from, i, byte)), i32, products.w_signed))};
  });
  return o.MulI(sum[0], o.ConstI(i32, products.excess()));
}

Buffer WordsOfImages(FunctionEmitter& f, const Tensor& x, const WordProducts& products, int64_t groups) {
  ShapeMap shapes;
  if (!f.MergeDimsOf(x, {1, 1, x.rank() - 2}, &shapes)) shapes.clear();
  return Words(f, x, products, true, 1, groups, shapes);
}

Buffer PixelsOfWords(FunctionEmitter& f, const Tensor& x, const WordProducts& products) {
  const int64_t channels = x.dims[1].value(), words = products.words(channels), depth = products.depth();
  if (words == 1) return WordsOfImages(f, x, products, 1);
  Shape outer(x.dims.begin(), x.dims.end() - 1);  // rows of pixels
  outer.erase(outer.begin() + 1);
  const Extent columns = x.dims.back();
  const Buffer made = f.Temporary(Product(outer) * columns * Extent(words * kWordBytes));
  int cost = 0;
  f.Expression(x, nullptr, nullptr, &cost);
  f.WithLanesOrScalar(columns, f.LanesForBytes(kWordBytes, columns), cost * 4, [&](int64_t lanes) {
    f.ParallelEach(Product(outer), Cycles(columns) * (static_cast<double>(channels * (cost + 2)) / lanes) + 10,
                   [&](Kernel& k, Value row) {
                     Ops& o = k.o;
                     const Indices at = Delinearise(o, row, outer);
                     const Type type = o.StoredType(products.type());
                     const Value to = o.At(k.Pointer(made), o.Mul(row, columns * Extent(words)), type);
                     VectorLoop(o, {columns}, lanes, {}, [&](const VectorPoint& point, const Values&) {
                       Eval e(k, lanes);
                       Values joined;
                       for (int64_t word = 0; word < words; ++word) {
                         Values parts;
                         for (int64_t c = word * depth; c < std::min(channels, (word + 1) * depth); ++c) {
                           Indices here = {at[0], Index(o.Int(c))};
                           here.insert(here.end(), at.begin() + 1, at.end());
                           here.push_back(point.at[0]);
                           parts.push_back(e.At(x, here));
                         }
                         joined.push_back(products.Join(o, parts, true));
                       }
                       const Value first = o.Mul(point.at[0].base, words);
                       if (lanes == 1) {
                         for (int64_t i = 0; i < words; ++i) o.Store(joined[i], o.At(to, o.Add(first, i), type));
                         return Values();
                       }
                       for (int64_t half = 0; half < 2; ++half) {
                         std::vector<int64_t> mask;
                         for (int64_t i = 0; i < lanes; ++i) mask.push_back((half * lanes + i) / 2 + i % 2 * lanes);
                         o.Store(o.Shuffle(joined[0], joined[1], mask), o.At(to, o.Add(first, half * lanes), type));
                       }
                       return Values();
                     });
                   });
  });
  return made;
}

Buffer PixelOfPadding(FunctionEmitter& f, const WordProducts& products, int64_t words, int64_t room) {
  const Buffer pixel = f.State(room * kWordBytes);
  f.Parallel(
      1, 0,
      [&](Kernel& k, Value, Value) {
        Ops& o = k.o;
        const Type word = o.b.getI32Type();
        auto fill = [&](int64_t begin, int64_t end, int64_t value) {
          o.For(o.Int(begin), o.Int(end), 1,
                [&](Value i) { o.Store(o.ConstI(word, value), o.At(k.Pointer(pixel), i, word)); });
        };
        fill(0, words, products.padding());
        fill(words, room, 0);
      },
      Phase::kInit);
  return pixel;
}

void SubtractExcess(Kernel& kernel, const WordProducts& products, const Buffer& excess, const BatchOffset& offset,
                    GemmKernel* gemm) {
  if (products.excess() == 0) return;
  gemm->epilogue = [&kernel, excess, offset, store = gemm->epilogue](KernelBuilder& kb, Value batch, Value row,
                                                                     Value column, Value sum) {
    const Type word = kb.b.getI32Type();
    Value at = kb.At(kernel.Pointer(excess), column, word);
    if (offset) at = kb.At(at, offset(kb, batch), word);
    store(kb, batch, row, column, kb.Sub(sum, kb.Load(sum.getType(), at)));
  };
}

}  // namespace inlay::native
