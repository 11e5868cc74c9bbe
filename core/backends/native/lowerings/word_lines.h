// A convolution's rows for AMX where padded lines of its images have them (kWordPixels): what a register holds are
// pixels that follow each other in a line, and another tap is another place to begin. Nothing is gathered tap after
// tap; lines are copied once, for their padding.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_LINES_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_LINES_H_

#include <optional>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/word_products.h"

namespace inlay::native {

struct LinesPlan {
  ConvShape shape;
  int64_t pixel_words = 0;    // whole steps
  int64_t tile_rows = 0;      // a whole part of a line of output pixels, or one or two lines
  int64_t register_rows = 0;  // of one line
  bool in_place = false;      // the images have all that taps meet
  // Of a block of rows: output lines of an image, and images if these are all of its lines.
  int64_t lines = 0, images = 1;

  int64_t all_images() const { return shape.n * shape.out[0]; }
  int64_t block_lines() const { return lines * images; }
  int64_t block_rows() const { return block_lines() * shape.out[2]; }
  // What taps of a block meet of an image: lines, pixels of a line.
  int64_t padded_lines() const { return Reach(1, lines); }
  int64_t padded_pixels() const { return in_place ? shape.in[2] : Reach(2, shape.out[2]); }
  int64_t line_words() const { return padded_pixels() * pixel_words; }
  int64_t block_bytes() const { return images * padded_lines() * line_words() * kWordBytes; }
  bool is_one_block() const { return block_lines() == all_images() * shape.out[1]; }
  int64_t Reach(int axis, int64_t outputs) const {
    return (outputs - 1) * shape.stride[axis] + (shape.kernel[axis] - 1) * shape.dilation[axis] + 1;
  }
};

// `words`: of a pixel. `panels`: by which blocks are tasks. None where lines do not divide into registers, or a pixel
// would have much of a step empty.
std::optional<LinesPlan> PlanLines(const ConvShape& shape, int64_t words, int64_t panels);

class ImageLines {
 public:
  ImageLines(FunctionEmitter& f, const LinesPlan& plan, const WordProducts& products);

  // A block of rows' lines to `to`, block_bytes(). Unless they are in place.
  void Copy(Kernel& k, mlir::Value images, mlir::Value block, mlir::Value to) const;
  // `from`: the images if in place, else a block's lines.
  TileRows Rows(Kernel& k, mlir::Value from) const;

 private:
  const LinesPlan plan_;
  const int64_t words_;
  const ir::DType type_;
  Buffer padding_;  // a pixel
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_LINES_H_
