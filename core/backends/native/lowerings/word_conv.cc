// conv_integer, and conv of bf16: images and weights as words of neighbouring channels (word_products.h), then conv's
// kernels.
#include <optional>

#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/word_products.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// [M,C/g,taps] as words [M,words,taps], rows of `row_words` with zeros at their end, and for each of the M the excess
// of its sums.
struct ConvWords {
  Buffer words, excess;
};

ConvWords WordsOfWeights(FunctionEmitter& f, const Tensor& w, const WordProducts& products, int64_t row_words) {
  const int64_t filters = w.dims[0].value(), channels = w.dims[1].value();
  const int64_t taps = Product(w.dims, 2, w.rank()).value(), words = products.words(channels);
  const bool constant = f.IsConstantParam(w);
  auto allocate = [&](int64_t elements) {
    return constant ? f.State(elements * kWordBytes) : f.Temporary(elements * kWordBytes);
  };
  ConvWords made;
  made.words = allocate(filters * row_words);
  if (products.excess() != 0) made.excess = allocate(filters);
  f.ParallelEach(
      filters, static_cast<double>(channels * taps),
      [&](Kernel& k, Value filter) {
        Ops& o = k.o;
        const Type type = o.StoredType(products.type()), element = o.StoredType(w.dtype), i32 = o.b.getI32Type();
        const Value from = o.At(k.Pointer(w), o.Mul(filter, channels * taps), element);
        const Value to = o.At(k.Pointer(made.words), o.Mul(filter, row_words), type);
        ForWordsOfFilter(o, products, {from, element}, channels, taps, [&](Value word, Value tap, Value joined) {
          o.Store(joined, o.At(to, o.Add(o.Mul(word, taps), tap), type));
        });
        o.For(o.Int(words * taps), o.Int(row_words), 1, [&](Value i) { o.Store(o.Zero(type), o.At(to, i, type)); });
        if (products.excess() == 0) return;
        o.Store(ExcessOf(o, products, from, channels * taps), o.At(k.Pointer(made.excess), filter, i32));
      },
      constant ? Phase::kInit : Phase::kRun);
  return made;
}

// The plan by panels of pixels that AMX multiplies, if it is to; `plan`: otherwise.
std::optional<ConvPlan> PlanTiledConv(const Core& core, const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const std::optional<GemmPlan> tiles = PlanTiles(core, ColumnSource::kOnTheFly, s.n * s.groups, s.m / s.groups,
                                                  s.pixels(), plan.group_channels() * s.taps());
  if (!tiles) return std::nullopt;
  ConvPlan tiled = plan;
  tiled.method = s.is_pointwise() ? ConvMethod::kPointwise : ConvMethod::kPanels;
  tiled.padded_input = tiled.method == ConvMethod::kPanels;
  tiled.tiled_input = tiled.skips_padding = false;
  tiled.SetPadded(s.out[1]);
  tiled.gemm = *tiles;
  return tiled;
}

}  // namespace

absl::Status EmitIntegerConvolution(FunctionEmitter& f, const Node& n) {
  return EmitWordConvolution(f, n, *ProductsOfConv(f, n));
}

absl::Status EmitWordConvolution(FunctionEmitter& f, const Node& n, const WordProducts& products) {
  if (n.out().IsEmpty()) return absl::OkStatus();
  const Tensor& w = n.in(1);
  ConvShape shape = ConvShapeOf(n, /*transposed=*/false);
  shape.c = shape.groups * products.words(w.dims[1].value());
  const GemmTypes types(f, products.type());
  const Tensor& x = n.in(0);
  const bool as_bytes = products.depth() == 1 && !x.inlined;
  ConvPlan plan = PlanConv(f.cpu().core, shape, types.accumulator_bytes, as_bytes || products.padding() != 0);
  std::optional<ConvPlan> tiled;
  // Floats' steps are whole: what a panel has beyond k is anything.
  const bool whole = !products.of_floats() || plan.group_channels() * shape.taps() % kTileWords == 0;
  if (products.has_tiles(f.cpu()) && whole) tiled = PlanTiledConv(f.cpu().core, plan);
  if (tiled) plan = *tiled;
  CutForThreads(&plan);
  ConvInput input{{}, kWordBytes, [&](Ops& o) { return InputElements{types.Stored(o), nullptr, products.padding()}; }};
  if (as_bytes && (plan.padded_input || plan.is_depthwise() || plan.method == ConvMethod::kBands)) {
    input = {f.BufferOf(x), 1, [&](Ops& o) {
               auto converted = [&](KernelBuilder&, Value x) { return products.Join(o, {x}, /*of_x=*/true); };
               return InputElements{o.b.getI8Type(), converted};
             }};
  } else {
    input.buffer = WordsOfImages(f, x, products, shape.groups);
  }
  const int64_t filter_words = plan.group_channels() * shape.taps();
  const int64_t row_words = tiled ? RoundUp(filter_words, kTileWords) : filter_words;
  const ConvWords made = WordsOfWeights(f, w, products, row_words);
  const Buffer weights = tiled ? made.words : PackedWeights(f, made.words, f.IsConstantParam(w), plan, types);
  const std::optional<MatrixTiles> registers = tiled ? std::optional<MatrixTiles>(f) : std::nullopt;
  EmitDirectConv(
      f, n, plan, types, input, weights, [&](Kernel& k, ConvKernel* conv, const std::function<void()>& emit) {
        conv->multiply_add = products.multiply_add(k.o, /*p_is_x=*/plan.method == ConvMethod::kPixelRows);
        conv->epilogue = [&, store = conv->epilogue](KernelBuilder&, Value batch, Value row, Value column, Value sum) {
          Ops& o = k.o;
          sum = products.Sum(o, sum);
          if (products.excess() != 0) {
            const Value filter = o.Add(o.Mul(o.Rem(batch, shape.groups), shape.m / shape.groups), row);
            const Value excess = o.Load(o.b.getI32Type(), o.At(k.Pointer(made.excess), filter, o.b.getI32Type()));
            sum = o.SubI(sum, o.Broadcast(excess, Ops::Lanes(sum)));
          }
          store(o, batch, row, column, sum);
        };
        if (!registers) return emit();
        RowOperand filters;
        filters.pointer = conv->weights;
        filters.element = conv->weight_element;
        filters.row_stride = row_words;
        filters.batch_offset = [&](KernelBuilder& kb, Value batch) {
          return kb.Mul(kb.Rem(batch, shape.groups), shape.m / shape.groups * row_words);
        };
        conv->tile =
            registers->Tile(k, plan.gemm, filters, products.tile_product(/*p_is_x=*/false), conv->multiply_add);
        conv->inline_epilogue = false;
        registers->Begin(k);
        emit();
        registers->End(k);
      });
  return absl::OkStatus();
}

}  // namespace inlay::native
