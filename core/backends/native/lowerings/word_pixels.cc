// kWordPixels: a convolution whose images have their channels last. Output pixels are rows of words and filters are
// columns, the product is that of matrices of words: a pointwise one reads its rows where they lie. AMX finds those of
// others in padded lines (word_lines.h); else a task gathers a block of rows first, tap after tap, and what the kernel
// sees of a row of the image is one run of words.
#include <algorithm>
#include <optional>

#include "core/backends/native/composites.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/word_lines.h"
#include "core/backends/native/lowerings/word_products.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

constexpr int64_t kUnrolledCopies = 8;
constexpr int64_t kTurnedPixels = 256;  // at a time
// A block of rows: in L1 beside what else a tile meets; more of them, fewer times over all weights, where these come
// from beyond L2.
constexpr int64_t kBlockBytes = 32 << 10, kLargeBlockBytes = 320 << 10;
constexpr int64_t kResultBytes = 2;  // written and read for one

// Images [N, pixels, words] of [N, channels, pixels].
Buffer TurnedImages(FunctionEmitter& f, const Tensor& x, const WordProducts& products, const ConvShape& shape) {
  const int64_t words = products.words(shape.c), pixels = shape.in_elements();
  if (words <= 2) return PixelsOfWords(f, x, products);
  const Buffer planes = WordsOfImages(f, x, products, 1);
  const Buffer turned = f.Temporary(shape.n * pixels * words * kWordBytes);
  const int64_t lanes = f.cpu().core.vector_bytes / kWordBytes, vectors = CeilDiv(words, lanes);
  const int64_t blocks = CeilDiv(pixels, kTurnedPixels);
  f.ParallelEach(Extent(shape.n * blocks), static_cast<double>(kTurnedPixels * vectors * 4),
                 [&](Kernel& k, Value item) {
                   Ops& o = k.o;
                   const Type word = o.b.getI32Type();
                   const Value first = o.Mul(o.Rem(item, blocks), kTurnedPixels),
                               image = o.Mul(o.Div(item, blocks), words * pixels);
                   const StridedMatrix from{o.At(k.Pointer(planes), o.Add(image, first), word), word, 1, pixels};
                   const Value to = o.At(k.Pointer(turned), o.Add(image, o.Mul(first, words)), word);
                   const Value count = o.Min(o.Int(kTurnedPixels), o.Sub(o.Int(pixels), first));
                   EmitPackBlock(o, from, count, vectors, words, lanes, word, to, words);
                 });
  return turned;
}

// [N * pixels, taps * words] of an image [N, pixels, words], row by row.
class PixelRows {
 public:
  PixelRows(FunctionEmitter& f, const ConvShape& shape, const WordProducts& products)
      : s_(shape),
        words_(products.words(shape.c)),
        lanes_(f.cpu().core.vector_bytes / kWordBytes),
        padding_(PixelOfPadding(f, products, words_, words_)) {}

  // Rows [first, end) to `to`, `row_words` apart, with zeros at their ends.
  void Gather(Kernel& k, Value images, Value first, Value end, Value to, int64_t row_words) const {
    Ops& o = k.o;
    const int64_t columns = s_.out[2];
    if (row_words > s_.taps() * words_) {
      const Type word = o.b.getI32Type(), rest = KernelBuilder::Vector(kTileWords, word);
      o.For(first, end, 1, [&](Value row) {
        const Value next = o.Mul(o.Add(o.Sub(row, first), 1), row_words);
        o.Store(o.Zero(rest), o.At(to, o.KernelBuilder::Add(next, -kTileWords), word));
      });
    }
    o.For(o.Div(first, columns), o.Div(o.Add(end, columns - 1), columns), 1, [&](Value line) {
      const Value row = o.Mul(line, columns);
      const Value begin = o.Sub(o.Max(first, row), row), stop = o.Sub(o.Min(end, o.Add(row, columns)), row);
      Line(k, images, line, begin, stop, o.At(to, o.Mul(o.Sub(row, first), row_words), o.b.getI32Type()), row_words);
    });
  }

 private:
  // Columns [begin, stop) of a row of output pixels; column 0 would be at `to`.
  void Line(Kernel& k, Value images, Value line, Value begin, Value stop, Value to, int64_t row_words) const {
    Ops& o = k.o;
    const Type word = o.b.getI32Type();
    const Value image = o.Div(line, s_.out[0] * s_.out[1]);
    const Value x = o.At(images, o.Mul(image, words_ * s_.in_elements()), word);
    auto first = [&](int axis, Value at) { return o.KernelBuilder::Add(o.Mul(at, s_.stride[axis]), -s_.pad[axis]); };
    const Value depth = first(0, o.Rem(o.Div(line, s_.out[1]), s_.out[0])), top = first(1, o.Rem(line, s_.out[1]));
    const int64_t width = s_.kernel[2], stride = s_.stride[2], reach = (width - 1) * s_.dilation[2];
    // Columns [low, high) see no padding.
    const bool is_run = width == 1 || s_.dilation[2] == 1;
    const int64_t low = is_run ? std::min(CeilDiv(std::max<int64_t>(s_.pad[2], 0), stride), s_.out[2]) : s_.out[2];
    const int64_t last = s_.in[2] - 1 - reach + s_.pad[2];
    const int64_t high = std::max(low, std::min(last < 0 ? 0 : last / stride + 1, s_.out[2]));
    o.For(s_.kernel[0] * s_.kernel[1], [&](Value tap) {
      const Value d = o.Add(depth, o.Mul(o.Div(tap, s_.kernel[1]), s_.dilation[0]));
      const Value h = o.Add(top, o.Mul(o.Rem(tap, s_.kernel[1]), s_.dilation[1]));
      const Value row = o.Mul(o.Add(o.Mul(d, s_.in[1]), h), s_.in[2]);
      const Value run = o.At(to, o.Mul(tap, width * words_), word);
      auto target = [&](Value column) { return o.At(run, o.Mul(column, row_words), word); };
      auto pixel_at = [&](Value column) { return o.At(x, o.Mul(o.KernelBuilder::Add(row, column), words_), word); };
      auto pad = [&](Value to) { Copy(o, k.Pointer(padding_), to, words_); };
      auto one_by_one = [&](Value column) {
        o.For(width, [&](Value t) {
          const Value at = o.Add(first(2, column), o.Mul(t, s_.dilation[2]));
          const Value to = o.At(target(column), o.Mul(t, words_), word);
          o.If(Inside(o, at, s_.in[2]), [&] { Copy(o, pixel_at(at), to, words_); }, [&] { pad(to); });
        });
      };
      auto see_row = [&] {
        o.For(begin, o.Min(stop, o.Int(low)), 1, one_by_one);
        o.For(o.Max(begin, o.Int(low)), o.Min(stop, o.Int(high)), 1,
              [&](Value column) { Copy(o, pixel_at(first(2, column)), target(column), width * words_); });
        o.For(o.Max(begin, o.Int(high)), stop, 1, one_by_one);
      };
      o.If(o.And(Inside(o, d, s_.in[0]), Inside(o, h, s_.in[1])), see_row, [&] {
        o.For(begin, stop, 1,
              [&](Value column) { o.For(width, [&](Value t) { pad(o.At(target(column), o.Mul(t, words_), word)); }); });
      });
    });
  }

  static Value Inside(Ops& o, Value at, int64_t extent) {
    return o.And(o.Less(o.Int(-1), at), o.Less(at, o.Int(extent)));
  }

  // Of what is no multiple of a vector the last one begins earlier.
  void Copy(Ops& o, Value from, Value to, int64_t count) const {
    const Type word = o.b.getI32Type();
    int64_t lanes = lanes_;
    while (lanes > count) lanes /= 2;
    const Type vector = KernelBuilder::Vector(lanes, word);
    auto copy = [&](Value i) { o.Store(o.Load(vector, o.At(from, i, word)), o.At(to, i, word)); };
    const int64_t whole = count / lanes * lanes;
    if (count / lanes > kUnrolledCopies) {
      o.For(o.Int(0), o.Int(whole), lanes, copy);
    } else {
      for (int64_t i = 0; i < whole; i += lanes) copy(o.Int(i));
    }
    if (whole < count) copy(o.Int(count - lanes));
  }

  const ConvShape s_;
  const int64_t words_, lanes_;
  const Buffer padding_;  // a pixel
};

// [filters,channels,taps] packed for `plan`, whose rows are words of a tap's channels, `tap_words` of them tap after
// tap.
PackedWords PackFilters(FunctionEmitter& f, const Tensor& w, const WordProducts& products, const GemmPlan& plan,
                        int64_t tap_words) {
  const int64_t channels = w.dims[1].value(), taps = Product(w.dims, 2, w.rank()).value();
  const int64_t words = products.words(channels), columns = plan.packed_columns();
  PackedWords packed;
  packed.words = f.State((plan.k * columns + SlackWords(plan.nr())) * kWordBytes);
  if (products.excess() != 0) packed.excess = f.State(columns * kWordBytes);
  f.ParallelEach(
      columns, static_cast<double>(plan.k * 10),
      [&](Kernel& k, Value column) {
        Ops& o = k.o;
        const Type word = o.b.getI32Type(), element = o.StoredType(w.dtype);
        const Value panel = o.Div(column, plan.nr());
        const Value width = o.KernelBuilder::Select(o.Equal(panel, o.Int(plan.panels() - 1)),
                                                    o.Int(plan.nv_last * plan.lanes), o.Int(plan.nr()));
        const Value first = o.Add(o.Mul(panel, plan.k * plan.nr()), o.Rem(column, plan.nr()));
        const Value to = o.At(k.Pointer(packed.words), first, word);
        auto store = [&](Value row, Value value) { o.Store(value, o.At(to, o.KernelBuilder::Mul(row, width), word)); };
        const Value from = o.At(k.Pointer(w), o.Mul(column, channels * taps), element);
        auto filter = [&] {
          if (plan.k > taps * words) o.For(plan.k, [&](Value row) { store(row, o.Zero(word)); });
          ForWordsOfFilter(o, products, {from, element}, channels, taps, [&](Value word, Value tap, Value joined) {
            store(o.Add(o.Mul(tap, tap_words), word), joined);
          });
          if (products.excess() == 0) return;
          o.Store(ExcessOf(o, products, from, channels * taps), o.At(k.Pointer(packed.excess), column, word));
        };
        o.If(o.Less(column, o.Int(plan.n)), filter, [&] {
          o.For(plan.k, [&](Value row) { store(row, o.Zero(word)); });
          if (products.excess() != 0) o.Store(o.Zero(word), o.At(k.Pointer(packed.excess), column, word));
        });
      },
      Phase::kInit);
  return packed;
}

struct PixelPlan {
  GemmPlan gemm;
  bool by_tiles;      // of AMX
  int64_t row_words;  // of a row; of lines, of a pixel
  std::optional<LinesPlan> lines;
};

std::optional<PixelPlan> PlanByLines(const Core& core, const WordProducts& products, const ConvShape& shape) {
  const auto lines = PlanLines(shape, products.words(shape.c), CeilDiv(shape.m, 2 * kTileWords));
  if (!lines) return std::nullopt;
  const int64_t rows = shape.n * shape.pixels(), k = shape.taps() * lines->pixel_words;
  auto tiles = PlanTiles(core, ColumnSource::kPacked, 1, rows, shape.m, k);
  if (!tiles) return std::nullopt;
  tiles->mr = lines->tile_rows;
  tiles->mc = std::min(lines->block_rows(), rows);
  return PixelPlan{*tiles, true, lines->pixel_words, lines};
}

PixelPlan PlanPixels(FunctionEmitter& f, const WordProducts& products, const ConvShape& shape, bool gathers) {
  const Core& core = f.cpu().core;
  const int64_t m = shape.n * shape.pixels(), k = shape.taps() * products.words(shape.c);
  const bool has_tiles = products.has_tiles(f.cpu());
  if (has_tiles && gathers) {
    if (const auto by_lines = PlanByLines(core, products, shape)) return *by_lines;
  }
  std::optional<GemmPlan> tiles;
  if (has_tiles) tiles = PlanTiles(core, ColumnSource::kPacked, 1, m, shape.m, products.words_of_tiles(k));
  GemmPlan plan = tiles ? *tiles : PlanGemm(core, ColumnSource::kPacked, kWordBytes, 1, m, shape.m, k);
  const int64_t row_words = tiles ? RoundUp(k, kTileWords) : k;
  // A block's rows, and what they give, stay near while all panels meet them.
  const bool is_far = plan.packed_elements() * kWordBytes > core.near_bytes();
  const int64_t tile_bytes = plan.mr * (row_words * kWordBytes + shape.m * kResultBytes);
  plan.mc = std::min(std::max((is_far ? kLargeBlockBytes : kBlockBytes) / tile_bytes, int64_t{1}) * plan.mr, plan.m);
  CutForThreads(&plan);
  plan.rows_fastest = false;
  return {plan, tiles.has_value(), row_words, std::nullopt};
}

void AddBias(Kernel& kernel, const Tensor& bias, GemmKernel* gemm) {
  gemm->epilogue = [&kernel, &bias, store = gemm->epilogue](KernelBuilder& kb, Value batch, Value row, Value column,
                                                            Value sum) {
    const int64_t lanes = Ops::Lanes(sum);
    Eval e(kernel, lanes);
    store(kb, batch, row, column, kernel.o.AddF(sum, e.At(bias, {Index(column, lanes == 1 ? 0 : 1)})));
  };
}

}  // namespace

absl::Status EmitWordPixels(FunctionEmitter& f, const Node& n) {
  const Node& conv = *n.parts.at("conv");
  const Tensor &x = n.in(0), &w = n.in(1);
  const WordProducts products = *ProductsOfConv(f, conv);
  const ConvShape shape = ConvShapeOf(conv, /*transposed=*/false);
  const bool channels_last = &x != &conv.in(0), gathers = !shape.is_pointwise() || !channels_last;
  const PixelPlan pixel_plan = PlanPixels(f, products, shape, gathers);
  const GemmPlan& plan = pixel_plan.gemm;
  const int64_t row_words = pixel_plan.row_words;
  std::optional<PixelRows> pixels;
  std::optional<ImageLines> lines;
  if (pixel_plan.lines) {
    lines.emplace(f, *pixel_plan.lines, products);
  } else if (gathers) {
    pixels.emplace(f, shape, products);
  }
  const Buffer image = channels_last ? RowsOfWords(f, x, products, true, gathers ? products.words(shape.c) : row_words)
                                     : TurnedImages(f, x, products, shape);
  const PackedWords filters = PackFilters(f, w, products, plan, lines ? row_words : products.words(shape.c));
  std::optional<MatrixTiles> registers;
  if (pixel_plan.by_tiles) registers.emplace(f, lines ? pixel_plan.lines->register_rows : kTileRows);
  ProductShape result(n.out(), n.out().dims[n.out().rank() - 2].value(), false, false);
  result.TakeBatchesForRows();
  ShapeMap shapes;
  if (f.MergeDims(n, {n.out().rank() - 1, 1}, &shapes)) {
    result.rows = {Extent(plan.m)};
  } else {
    shapes.clear();
  }
  const int64_t block_rows = RoundUp(plan.mc, plan.mr), kernel_bytes = RoundUp(plan.scratch_bytes(), kLineBytes);
  const bool copies = lines && !pixel_plan.lines->in_place;
  const int64_t block_bytes = pixels   ? block_rows * row_words * kWordBytes + kLineBytes
                              : copies ? pixel_plan.lines->block_bytes()
                                       : 0;
  const int64_t scratch_bytes = kernel_bytes + block_bytes;
  const double cost = EstimateCycles(plan) / static_cast<double>(std::max<int64_t>(plan.tasks(), 1)) + 50;
  EmitTasks(f, plan.tasks(), cost, scratch_bytes, [&](Kernel& kernel, Value begin, Value end, Value scratch) {
    Ops& o = kernel.o;
    const Type word = o.StoredType(products.type());
    kernel.shapes = shapes;
    GemmKernel gemm;
    gemm.plan = plan;
    gemm.accumulator = word;
    gemm.multiply_add = products.multiply_add(o, /*p_is_x=*/true);
    gemm.p.pointer = kernel.Pointer(image);
    gemm.p.element = word;
    gemm.p.row_stride = row_words;
    const Value block = o.At(scratch, kernel_bytes, o.b.getI8Type()), images = gemm.p.pointer;
    if (copies) {
      gemm.prepare = [&](KernelBuilder&, Value row_block) { lines->Copy(kernel, images, row_block, block); };
    }
    if (pixels) {
      const int64_t tiles_of_block = block_rows / plan.mr;
      gemm.p.pointer = block;
      gemm.p.tile_offset = [&, tiles_of_block](KernelBuilder& kb, Value tile) {
        return kb.Mul(kb.Rem(tile, tiles_of_block), plan.mr * row_words);
      };
      gemm.prepare = [&, block, images](KernelBuilder&, Value row_block) {
        const Value first = o.Mul(row_block, plan.mc), end = o.Min(o.Add(first, plan.mc), o.Int(plan.m));
        pixels->Gather(kernel, images, first, end, block, row_words);
      };
    }
    gemm.q.pointer = kernel.Pointer(filters.words);
    gemm.q.element = word;
    StoreProduct(f, kernel, n, result, &gemm);
    SubtractExcess(kernel, products, filters.excess, nullptr, &gemm);
    if (n.inputs.size() > 2) AddBias(kernel, n.in(2), &gemm);
    if (registers) {
      const char* product = products.tile_product(/*p_is_x=*/true);
      gemm.tile = lines ? registers->Tile(kernel, plan, lines->Rows(kernel, copies ? block : images), product,
                                          gemm.multiply_add)
                        : registers->Tile(kernel, plan, gemm.p, product, gemm.multiply_add);
      gemm.inline_epilogue = false;
      registers->Begin(kernel);
    }
    EmitGemmTasks(o, gemm, begin, end, scratch);
    if (registers) registers->End(kernel);
  });
  return absl::OkStatus();
}

}  // namespace inlay::native
