// Contractions of what is narrower than 32 bits on the kernels of gemm.h and conv.h: neighbours in k are one element of
// these, a word of 32 bits, and their multiply-add is the processor's dot product of words. Of 8-bit integers it is
// exact, modulo 2^32; of bf16 it rounds as f32 does.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_PRODUCTS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_PRODUCTS_H_

#include <functional>
#include <optional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"

namespace inlay::native {

// What a word holds.
enum class Word {
  kBytes,    // four, of which one side's are unsigned and the other's signed (VNNI)
  kShorts,   // two of 16 bits
  kBrains,   // two bf16, summed in f32 (AVX512-BF16)
  kFloat,    // one, as f32: for sums that this holds exactly
  kInteger,  // one
};

// Of activations x and weights w.
struct WordProducts {
  Word word;
  bool x_signed, w_signed;
  int64_t x_zero = 0;  // the products are those of x - x_zero
  bool of_floats() const { return word == Word::kBrains; }
  // kBytes of two signed sides: x has 128 added to it, which is unsigned.
  bool shifts_x() const { return word == Word::kBytes && x_signed && w_signed; }
  // Times the sum of the weights: by how much a sum is too large. Other words hold x - x_zero.
  int64_t excess() const { return word == Word::kBytes ? x_zero + (shifts_x() ? 128 : 0) : 0; }
  // The word that stands for x_zero alone.
  int32_t padding() const { return static_cast<int32_t>(word == Word::kBytes ? (excess() & 0xff) * 0x01010101 : 0); }
  int64_t depth() const { return word == Word::kBytes ? 4 : word == Word::kShorts || of_floats() ? 2 : 1; }
  int64_t words(int64_t elements) const { return CeilDiv(elements, depth()); }
  // As which words are loaded, and their sums.
  ir::DType type() const { return word == Word::kFloat || of_floats() ? ir::DType::kF32 : ir::DType::kI32; }
  // Whether neighbours in memory are a word of weights (or of x, unless it is shifted).
  bool words_lie_in_memory() const { return word == Word::kBytes || of_floats(); }
  // Of the processor's: AMX. Their steps go beyond the words in k, where floats have zeros in both operands, integers
  // in x alone.
  bool has_tiles(const CpuFeatures& cpu) const;
  int64_t words_of_tiles(int64_t words) const { return of_floats() ? RoundUp(words, kTileWords) : words; }

  // Of `depth()` elements (null: absent), bytes as loaded or floats: scalars or vectors. i32; of kFloat f32.
  mlir::Value Join(Ops& o, const Values& elements, bool of_x) const;
  // How a tile multiplies; `p_is_x`: of the two operands, the one that is broadcast.
  MultiplyAdd multiply_add(Ops& o, bool p_is_x) const;
  bool x_is_unsigned() const { return !x_signed || w_signed; }  // kBytes
  const char* tile_product(bool p_is_x) const;                  // the intrinsic, with tiles
  // i32.
  mlir::Value Sum(Ops& o, mlir::Value accumulator) const;
};

// Of bf16.
inline constexpr WordProducts kBrainProducts{Word::kBrains};

inline constexpr int64_t kWordBytes = 4;

// Words of `x` along `axis`, whose extent falls into `groups`: a tensor with that axis shorter, made by every call.
// `shapes` says how x is indexed; vectors run along its last axis, another one.
Buffer Words(FunctionEmitter& f, const Tensor& x, const WordProducts& products, bool of_x, int axis, int64_t groups,
             const ShapeMap& shapes = {});
// Words that may be read behind those of a matrix, or of images: kernels go on to the end of a block.
inline constexpr int64_t SlackWords(int64_t row_words) { return 16 * row_words; }

// The same along the last axis; each row `row_words` long, zero beyond what there is.
Buffer RowsOfWords(FunctionEmitter& f, const Tensor& x, const WordProducts& products, bool of_x, int64_t row_words);

// Of a convolution. Nothing: of floats whose words the processor does not multiply.
std::optional<WordProducts> ProductsOfConv(FunctionEmitter& f, const Node& conv);

struct Elements {
  mlir::Value pointer;
  mlir::Type type;  // as stored
};
// The words of a filter, [channels, taps] at `from`, one by one.
void ForWordsOfFilter(Ops& o, const WordProducts& products, const Elements& from, int64_t channels, int64_t taps,
                      const std::function<void(mlir::Value word, mlir::Value tap, mlir::Value joined)>& body);
// The excess of sums with `elements` bytes at `from`, i32.
mlir::Value ExcessOf(Ops& o, const WordProducts& products, mlir::Value from, int64_t elements);

// Words of images [N,C,spatial] as [N,groups * words,spatial].
Buffer WordsOfImages(FunctionEmitter& f, const Tensor& x, const WordProducts& products, int64_t groups);

// A right operand packed for a plan, and for each packed column the excess of its sums, if there is any.
struct PackedWords {
  Buffer words, excess;
};
// Has `gemm` subtract it from its sums. `offset`: of a batch element's columns, in words.
void SubtractExcess(Kernel& kernel, const WordProducts& products, const Buffer& excess, const BatchOffset& offset,
                    GemmKernel* gemm);

// Of a matmul. Nothing: of floats whose words the processor does not multiply.
std::optional<WordProducts> ProductsOfMatmul(FunctionEmitter& f, const Node& matmul);

// The same as [N,spatial,words], of one group with a word or two of channels.
Buffer PixelsOfWords(FunctionEmitter& f, const Tensor& x, const WordProducts& products);

// A pixel of `words` that stand for padding, and zeros up to `room`; _init makes it.
Buffer PixelOfPadding(FunctionEmitter& f, const WordProducts& products, int64_t words, int64_t room);

// An operand's words, and where its matrices lie among them.
struct WordMatrices {
  Buffer words;
  Matrices as_matrices;  // of words; no view
};
// `row_words`: at least k; of rows along k, how far apart they are. Rows of the left operand may be open.
WordMatrices WordsOf(FunctionEmitter& f, const Tensor& t, const WordProducts& products, bool left, bool transposed,
                     int64_t row_words);

// Panel `panel` of Q in kPacked layout: words of `elements` in k, zero beyond them.
void EmitPackWords(Ops& o, const WordProducts& products, const GemmPlan& plan, const StridedMatrix& from,
                   int64_t elements, mlir::Value panel, mlir::Value to);

// b, packed by _init where it is constant, else by each call.
PackedWords PackWords(FunctionEmitter& f, const Tensor& b, const WordProducts& products, bool transposed,
                      const GemmPlan& plan);

absl::Status EmitIntegerMatmul(FunctionEmitter& f, const Node& node);
absl::Status EmitWordMatmul(FunctionEmitter& f, const Node& node, const WordProducts& products);
// The left operand has open rows.
absl::Status EmitOpenWordMatmul(FunctionEmitter& f, const Node& node, const WordProducts& products);
absl::Status EmitIntegerConvolution(FunctionEmitter& f, const Node& node);
absl::Status EmitWordConvolution(FunctionEmitter& f, const Node& node, const WordProducts& products);
absl::Status EmitWordPixels(FunctionEmitter& f, const Node& node);  // kWordPixels

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WORD_PRODUCTS_H_
