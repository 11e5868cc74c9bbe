// Description: a partition as codegen writes it into an object and as the runtime shim reads it when it is loaded.
//
// A list of steps, each one XNNPACK operator (or a transpose of ours). Everything is decided at compile time: what is
// fused, which values have the channels last, where each lives. Neither XNNPACK nor LLVM is needed to make one. On the
// wire: JSON (description_json.h), then, 64-byte aligned, the bytes of the literals.
//
// Plain values; any thread.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_H_
#define INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace inlay::xnnpack {

inline constexpr int kDescriptionVersion = 2;

// Of the codegen target. Below the default a part costs more to hand out than to do (measured on one CPU).
inline constexpr char kSplitMacsAttr[] = "split-macs";
inline constexpr int64_t kDefaultSplitMacs = 200000;

using Dims = std::vector<int64_t>;

// A tensor of the partition; all are f32 and dense. The first num_inputs values are its inputs.
struct Value {
  int64_t elements = 0;
  bool constant = false;        // the same at every call: an input, a literal, or what a step makes of such
  int64_t literal_offset = -1;  // into the bytes of the literals; -1: not a literal
  int64_t offset = -1;          // into the workspace, in bytes; -1: not there
  int output = -1;              // which result of the partition it is; -1: none
};

// What is fused to an operator: min(max(x, low), high).
struct Clamp {
  bool has_min = false, has_max = false;
  float min = 0, max = 0;
};

struct Step {
  std::string op;         // conv deconv fully_connected max_pool avg_pool global_avg_pool softmax unary binary concat
                          // transpose
  std::string algorithm;  // unary, binary: which
  std::vector<int> args;  // values. conv, deconv, fully_connected: source, weights, bias?
  int out = -1;

  // Images, channels last: conv, deconv, the pools. Weights of conv are OIHW, of deconv IOHW.
  int64_t batch = 1, height = 1, width = 1, channels = 1;
  int64_t out_height = 1, out_width = 1, out_channels = 1, groups = 1;
  Dims kernel, strides, dilations, adjustment;  // height, width
  Dims pads;                                    // top, right, bottom, left

  // fully_connected: rows x channels, weights [out_channels, channels]. softmax: rows x channels.
  // transpose: batch times [rows, channels] to [channels, rows]. concat: rows x parts of the arguments.
  int64_t rows = 1;
  bool transposed_weights = false;  // fully_connected: weights are [channels, out_channels]
  Dims parts;
  std::vector<Dims> dims;  // binary: of both arguments, of equal length

  float alpha = 0;  // leaky_relu, elu
  Clamp clamp;
};

struct Description {
  int version = kDescriptionVersion;
  int num_inputs = 0, num_outputs = 0;
  std::vector<Value> values;
  std::vector<Step> steps;  // in execution order; those whose result is constant run once, when the module is loaded
  int64_t workspace_bytes = 0;
  int64_t split_macs = kDefaultSplitMacs;  // a thread's part of a contraction has at least so many multiply-adds
};

inline constexpr int64_t kLiteralAlignment = 64;
// XNNPACK may read so many bytes beyond the end of what it is given (its XNN_EXTRA_BYTES).
inline constexpr int64_t kExtraBytes = 16;

inline int64_t BytesWithExtra(const Value& value) {
  return value.elements * static_cast<int64_t>(sizeof(float)) + kExtraBytes;
}

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_H_
