// Description: a partition as codegen writes it into an object and as the runtime shim reads it when it is loaded.
//
// A list of steps, each one oneDNN primitive with its post-ops: what is fused is decided at compile time, here only
// layouts are left open. Neither oneDNN nor LLVM is needed to make one. On the wire: JSON (description_json.h), then,
// 64-byte aligned, the bytes of the literals.
//
// Plain values; any thread.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_H_
#define INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace inlay::onednn {

inline constexpr int kDescriptionVersion = 3;

// Of the codegen target, and of the description.
inline constexpr char kFpmathAttr[] = "fpmath";

using Dims = std::vector<int64_t>;

// [N, C, S...] of one to three spatial axes.
inline bool IsImage(const Dims& dims) { return dims.size() >= 3 && dims.size() <= 5; }

// A tensor of the partition; all are f32. The first num_inputs values are its inputs.
struct Value {
  Dims dims;
  bool constant = false;        // an input that is the same at every call, or a literal
  int64_t literal_offset = -1;  // into the bytes of the literals; -1: not a literal
};

// How a step sees a value. Dims other than the value's own, or strides (in elements), look at its dense row-major data;
// otherwise the value may be in whatever layout suits.
struct View {
  int value = -1;
  Dims dims;
  Dims strides;  // empty: row-major
};

struct PostOp {
  std::string op;  // an eltwise operator (operand.value < 0) or a binary one, by oneDNN's name: "relu", "add"
  float alpha = 0;
  float beta = 0;
  View operand;
};

struct Step {
  std::string op;          // conv deconv matmul max_pool avg_pool_include avg_pool_exclude binary eltwise softmax
                           // log_softmax layer_norm batch_norm reduce_mean concat
  std::string algorithm;   // binary, eltwise: which
  std::vector<View> args;  // conv, deconv, matmul: source, weights, bias?
  View out;
  Dims strides, dilations, pads_begin, pads_end, kernel;  // conv, deconv, pools; dilations count from 0
  int64_t axis = 0;                                       // softmax, concat
  float alpha = 0, beta = 0;                              // eltwise
  float epsilon = 0;                                      // norms
  std::vector<PostOp> post_ops;
};

struct Description {
  int version = kDescriptionVersion;
  int num_inputs = 0;
  std::vector<Value> values;
  std::vector<int> outputs;  // values
  // Which inputs and outputs (of these indices, images all) have their channels last; the others are row-major.
  std::vector<int> channels_last_inputs, channels_last_outputs;
  std::vector<Step> steps;  // in execution order
  int64_t workspace_bytes = 0;
  std::string fpmath = "strict";  // oneDNN's fpmath mode of the contractions: "strict", "bf16", "any"
};

inline constexpr int64_t kLiteralAlignment = 64;

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_H_
