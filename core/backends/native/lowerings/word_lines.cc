#include "core/backends/native/lowerings/word_lines.h"

#include <algorithm>

#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

// Of a register: with fewer, loading weights takes longer than multiplying (3x3 of 256 channels, C programs, us, lines
// and gathered rows: 8x8 44 and 39, 10x10 57 and 72, 14x14 88 and 142).
constexpr int64_t kFewestRows = 10;
constexpr int64_t kMaxBlockBytes = 320 << 10;
constexpr int64_t kMinTasks = 8, kMinBlockRows = 64;  // for threads

// Rows of tiles and registers for lines of `columns` output pixels; false if there are none.
bool PlanTileRows(int64_t columns, LinesPlan* plan) {
  if (columns < kFewestRows) return false;
  if (columns <= kTileRows) {
    plan->register_rows = columns;
    plan->tile_rows = 2 * columns;
    return true;
  }
  for (int64_t parts = CeilDiv(columns, 2 * kTileRows); columns / parts >= 2 * kFewestRows; ++parts) {
    if (columns % parts != 0) continue;
    plan->tile_rows = columns / parts;
    plan->register_rows = CeilDiv(plan->tile_rows, 2);
    return true;
  }
  return false;
}

// Whether tiles of `plan` end where its blocks do.
bool FitsTiles(const LinesPlan& plan) { return plan.block_rows() % plan.tile_rows == 0 || plan.is_one_block(); }

bool ShrinkBlock(LinesPlan* plan) {
  LinesPlan next = *plan;
  for (next.images = plan->images - 1; next.images > 0; --next.images) {
    if (FitsTiles(next)) break;
  }
  if (next.images == 0) {
    next.images = 1;
    do {
      if (--next.lines == 0) return false;
    } while (plan->shape.out[1] % next.lines != 0 || !FitsTiles(next));
  }
  *plan = next;
  return true;
}

bool PlanBlocks(int64_t panels, LinesPlan* plan) {
  plan->lines = plan->shape.out[1];
  plan->images = plan->all_images();
  while (plan->block_bytes() > kMaxBlockBytes) {
    if (!ShrinkBlock(plan)) return false;
  }
  auto tasks = [&](const LinesPlan& p) { return CeilDiv(p.all_images() * p.shape.out[1], p.block_lines()) * panels; };
  for (LinesPlan next = *plan; tasks(*plan) < kMinTasks && ShrinkBlock(&next) && next.block_rows() >= kMinBlockRows;) {
    *plan = next;
  }
  return true;
}

}  // namespace

std::optional<LinesPlan> PlanLines(const ConvShape& s, int64_t words, int64_t panels) {
  const bool is_flat = s.kernel[0] == 1 && s.stride[0] == 1 && s.pad[0] == 0 && s.in[0] == s.out[0];
  const bool is_plain = s.input_dilation == Spatial{1, 1, 1} && s.pad[1] >= 0 && s.pad[2] >= 0;
  LinesPlan plan;
  plan.shape = s;
  plan.pixel_words = RoundUp(words, kTileWords);
  if (!is_flat || !is_plain || 4 * words < 3 * plan.pixel_words) return std::nullopt;
  plan.in_place = plan.pixel_words == words && s.pad[1] == 0 && s.pad[2] == 0 && plan.Reach(1, s.out[1]) <= s.in[1] &&
                  plan.Reach(2, s.out[2]) <= s.in[2];
  if (!PlanTileRows(s.out[2], &plan) || !PlanBlocks(panels, &plan)) return std::nullopt;
  return plan;
}

ImageLines::ImageLines(FunctionEmitter& f, const LinesPlan& plan, const WordProducts& products)
    : plan_(plan), words_(products.words(plan.shape.c)), type_(products.type()) {
  if (!plan_.in_place) padding_ = PixelOfPadding(f, products, words_, plan_.pixel_words);
}

void ImageLines::Copy(Kernel& k, Value images, Value block, Value to) const {
  Ops& o = k.o;
  const Type word = o.b.getI32Type();
  const ConvShape& s = plan_.shape;
  const int64_t pixels = plan_.padded_pixels(), left = std::min(s.pad[2], pixels);
  const int64_t inside = std::min(s.in[2], pixels - left), pixel_bytes = plan_.pixel_words * kWordBytes;
  auto pad = [&](Value line, int64_t begin, int64_t end) {
    o.For(o.Int(begin), o.Int(end), 1, [&](Value pixel) {
      o.CopyBytes(o.At(line, o.Mul(pixel, plan_.pixel_words), word), k.Pointer(padding_), Extent(pixel_bytes));
    });
  };
  auto copy = [&](Value from, Value line) {
    const Value first = o.At(line, left * plan_.pixel_words, word);
    if (words_ == plan_.pixel_words) return o.CopyBytes(first, from, Extent(inside * pixel_bytes));
    o.For(inside, [&](Value pixel) {
      const Value to = o.At(first, o.Mul(pixel, plan_.pixel_words), word);
      o.CopyBytes(to, o.At(from, o.Mul(pixel, words_), word), Extent(words_ * kWordBytes));
      o.ZeroBytes(o.At(to, words_, word), (plan_.pixel_words - words_) * kWordBytes);
    });
  };
  const Value first = o.Mul(block, plan_.block_lines()), first_image = o.Div(first, s.out[1]);
  const Value top = o.KernelBuilder::Add(o.Mul(o.Rem(first, s.out[1]), s.stride[1]), -s.pad[1]);
  const Value last_image = o.Min(o.Add(first_image, plan_.images), o.Int(plan_.all_images()));
  o.For(first_image, last_image, 1, [&](Value image) {
    const Value of_image = o.Mul(o.Sub(image, first_image), plan_.padded_lines());
    o.For(plan_.padded_lines(), [&](Value l) {
      const Value h = o.Add(top, l), line = o.At(to, o.Mul(o.Add(of_image, l), plan_.line_words()), word);
      o.If(
          o.And(o.Less(o.Int(-1), h), o.Less(h, o.Int(s.in[1]))),
          [&] {
            const Value row = o.Mul(o.Add(o.Mul(image, s.in[1]), h), s.in[2] * words_);
            pad(line, 0, left);
            copy(o.At(images, row, word), line);
            pad(line, left + inside, pixels);
          },
          [&] { pad(line, 0, pixels); });
    });
  });
}

TileRows ImageLines::Rows(Kernel& k, Value from) const {
  const ConvShape& s = plan_.shape;
  const int64_t line_words = plan_.line_words(), pixel_words = plan_.pixel_words;
  TileRows rows;
  rows.word = k.o.StoredType(type_);
  rows.at = [plan = plan_, from, line_words, &o = k.o](KernelBuilder&, Value, Value tile, int64_t row) {
    const ConvShape& s = plan.shape;
    const int64_t columns = s.out[2], height = s.out[1], parts = std::max<int64_t>(columns / plan.tile_rows, 1);
    const int64_t lines = std::max<int64_t>(plan.tile_rows / columns, 1);  // of a tile
    const Value line = o.KernelBuilder::Add(o.Mul(o.Div(tile, parts), lines), row / columns);
    const Value column = o.KernelBuilder::Add(o.Mul(o.Rem(tile, parts), plan.tile_rows), row % columns);
    Value image = o.Div(line, height), y = o.Rem(line, height);
    if (!plan.in_place) {
      const int64_t block_tiles = CeilDiv(plan.block_rows(), plan.tile_rows);
      const Value first = o.Mul(o.Div(tile, block_tiles), plan.block_lines());
      image = o.Sub(image, o.Div(first, height));
      y = o.Sub(y, o.Rem(first, height));
    }
    const int64_t image_lines = plan.in_place ? s.in[1] : plan.padded_lines();
    const Value at = o.Mul(o.Add(o.Mul(image, image_lines), o.Mul(y, s.stride[1])), line_words);
    return o.At(from, o.Add(at, o.Mul(column, s.stride[2] * plan.pixel_words)), o.b.getI32Type());
  };
  rows.row_stride = s.stride[2] * pixel_words;
  rows.loops = {{s.kernel[1], [=](KernelBuilder& kb, Value i) { return kb.Mul(i, s.dilation[1] * line_words); }},
                {s.kernel[2], [=](KernelBuilder& kb, Value i) { return kb.Mul(i, s.dilation[2] * pixel_words); }}};
  rows.run = pixel_words;
  return rows;
}

}  // namespace inlay::native
