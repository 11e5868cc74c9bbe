#include "core/backends/xnnpack/runtime/description_reader.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/backends/xnnpack/description_json.h"

namespace inlay::xnnpack {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;
constexpr size_t kMaxRank = 6;  // XNN_MAX_TENSOR_DIMS

[[noreturn]] void Fail(const std::string& message) { throw std::runtime_error("xnnpack description: " + message); }

void Check(bool holds, const char* message) {
  if (!holds) Fail(message);
}

// A product of extents, each positive.
int64_t Product(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    Check(extent > 0 && extent <= kMaxElements && product <= kMaxElements / extent, "an extent is out of range");
    product *= extent;
  }
  return product;
}

class Checker {
 public:
  explicit Checker(const Description& d) : d_(d) {}

  void CheckAll() {
    std::vector<bool> outputs(d_.num_outputs, false);
    for (size_t i = 0; i < d_.values.size(); ++i) {
      const Value& value = d_.values[i];
      const bool input = static_cast<int>(i) < d_.num_inputs;
      ready_.push_back(input || value.literal_offset >= 0);
      Product({value.elements});
      if (value.output >= 0) {
        Check(value.output < d_.num_outputs && !outputs[value.output] && !ready_[i] && !value.constant,
              "an output that is none");
        outputs[value.output] = true;
      } else if (!value.constant && !input) {
        Check(value.offset >= 0 && value.offset % kLiteralAlignment == 0 && value.offset <= d_.workspace_bytes &&
                  BytesWithExtra(value) <= d_.workspace_bytes - value.offset,
              "a value outside of the workspace");
      }
    }
    for (const Step& step : d_.steps) CheckStep(step);
    for (size_t i = 0; i < d_.values.size(); ++i) {
      if (d_.values[i].output >= 0) Check(ready_[i], "an output that no step makes");
    }
    Check(std::count(outputs.begin(), outputs.end(), true) == d_.num_outputs, "an output is missing");
  }

 private:
  void CheckStep(const Step& step) {
    bool constant = true;
    for (int arg : step.args) {
      Check(arg >= 0 && arg < static_cast<int>(d_.values.size()) && ready_[arg], "a value is used before it is made");
      constant &= d_.values[arg].constant;
    }
    Check(step.out >= 0 && step.out < static_cast<int>(d_.values.size()) && !ready_[step.out], "a value is made twice");
    Check(!step.args.empty(), "a step without arguments");
    Check(constant || !d_.values[step.out].constant, "a constant that depends on arguments");
    if (step.op == "conv" || step.op == "deconv") {
      CheckConv(step);
    } else if (step.op == "max_pool" || step.op == "avg_pool") {
      CheckImages(step, 1, 1);
      Check(step.out_channels == step.channels, "a pooling that changes the channels");
      CheckForward(step);
    } else if (step.op == "global_avg_pool") {
      Arity(step, 1, 1);
      Sizes(step, Product({step.batch, step.height, step.width, step.channels}), Product({step.batch, step.channels}));
    } else if (step.op == "fully_connected") {
      Arity(step, 2, 3);
      Sizes(step, Product({step.rows, step.channels}), Product({step.rows, step.out_channels}));
      CheckWeights(step, Product({step.out_channels, step.channels}));
    } else if (step.op == "softmax") {
      Arity(step, 1, 1);
      Sizes(step, Product({step.rows, step.channels}), Product({step.rows, step.channels}));
    } else if (step.op == "transpose") {
      Arity(step, 1, 1);
      const int64_t elements = Product({step.batch, step.rows, step.channels});
      Sizes(step, elements, elements);
    } else if (step.op == "unary") {
      Arity(step, 1, 1);
      Sizes(step, Elements(step.args[0]), Elements(step.args[0]));
    } else if (step.op == "binary") {
      CheckBinary(step);
    } else if (step.op == "concat") {
      CheckConcat(step);
    } else {
      Fail("no step is called " + step.op);
    }
    ready_[step.out] = true;
  }

  int64_t Elements(int value) const { return d_.values[value].elements; }

  static void Arity(const Step& step, size_t least, size_t most) {
    Check(step.args.size() >= least && step.args.size() <= most, "a wrong number of arguments");
  }

  void Sizes(const Step& step, int64_t in, int64_t out) const {
    Check(Elements(step.args[0]) == in && Elements(step.out) == out, "a step and its values differ in size");
  }

  void CheckWeights(const Step& step, int64_t elements) const {
    Check(Elements(step.args[1]) == elements, "weights of a wrong size");
    Check(step.args.size() == 2 || Elements(step.args[2]) == step.out_channels, "a bias of a wrong size");
    for (size_t i = 1; i < step.args.size(); ++i) Check(d_.values[step.args[i]].constant, "weights that change");
  }

  void CheckImages(const Step& step, size_t least, size_t most) const {
    Arity(step, least, most);
    auto in_range = [](const Dims& dims, size_t size, int64_t low) {
      return dims.size() == size &&
             std::all_of(dims.begin(), dims.end(), [low](int64_t d) { return d >= low && d < (1 << 16); });
    };
    Check(in_range(step.kernel, 2, 1) && in_range(step.strides, 2, 1) && in_range(step.dilations, 2, 1) &&
              in_range(step.pads, 4, 0) && in_range(step.adjustment, 2, 0),
          "a window is out of range");
    Sizes(step, Product({step.batch, step.height, step.width, step.channels}),
          Product({step.batch, step.out_height, step.out_width, step.out_channels}));
  }

  static int64_t Extent(const Step& step, int i) { return (step.kernel[i] - 1) * step.dilations[i] + 1; }

  // XNNPACK computes the extents of the result by itself: they must come out as the value has them.
  static void CheckForward(const Step& step) {
    const int64_t in[2] = {step.height + step.pads[0] + step.pads[2], step.width + step.pads[1] + step.pads[3]};
    const int64_t out[2] = {step.out_height, step.out_width};
    for (int i : {0, 1}) {
      Check(in[i] >= Extent(step, i) && (in[i] - Extent(step, i)) / step.strides[i] + 1 == out[i],
            "a window and its result differ in size");
    }
  }

  void CheckConv(const Step& step) const {
    CheckImages(step, 2, 3);
    Check(step.groups > 0 && step.channels % step.groups == 0 && step.out_channels % step.groups == 0,
          "groups that don't divide the channels");
    CheckWeights(step, Product({step.out_channels, step.channels / step.groups, step.kernel[0], step.kernel[1]}));
    if (step.op == "conv") return CheckForward(step);
    const int64_t in[2] = {step.height, step.width}, out[2] = {step.out_height, step.out_width};
    for (int i : {0, 1}) {
      const int64_t pads = i == 0 ? step.pads[0] + step.pads[2] : step.pads[1] + step.pads[3];
      Check(step.strides[i] * (in[i] - 1) + step.adjustment[i] + Extent(step, i) - pads == out[i],
            "a window and its result differ in size");
    }
  }

  void CheckBinary(const Step& step) const {
    Arity(step, 2, 2);
    Check(step.dims.size() == 2 && step.dims[0].size() == step.dims[1].size() && step.dims[0].size() <= kMaxRank,
          "binary dims that don't fit");
    int64_t a = 1, b = 1, out = 1;
    for (size_t i = 0; i < step.dims[0].size(); ++i) {
      const int64_t x = step.dims[0][i], y = step.dims[1][i];
      Check(x == y || x == 1 || y == 1, "binary dims that don't broadcast");
      a = Product({a, x});
      b = Product({b, y});
      out = Product({out, std::max(x, y)});
    }
    Sizes(step, a, out);
    Check(Elements(step.args[1]) == b, "a step and its values differ in size");
  }

  void CheckConcat(const Step& step) const {
    Check(step.parts.size() == step.args.size(), "as many parts as arguments");
    int64_t sum = 0;
    for (size_t i = 0; i < step.args.size(); ++i) {
      Check(Elements(step.args[i]) == Product({step.rows, step.parts[i]}), "a part of a wrong size");
      sum += step.parts[i];
    }
    Check(Elements(step.out) == Product({step.rows, sum}), "parts that don't add up");
  }

  const Description& d_;
  std::vector<bool> ready_;
};

}  // namespace

ReadDescription ReadAndCheck(const char* bytes, int64_t size) {
  // The JSON ends in a zero byte; literals follow at the next multiple of kLiteralAlignment.
  const int64_t text = std::find(bytes, bytes + size, '\0') - bytes;
  ReadDescription result;
  Description& d = result.description;
  d = nlohmann::json::parse(bytes, bytes + text).get<Description>();
  if (d.version != kDescriptionVersion) Fail("version " + std::to_string(d.version) + " is not known");
  Check(d.split_macs > 0, "split_macs is out of range");
  Check(d.num_inputs >= 0 && d.num_inputs <= static_cast<int>(d.values.size()), "num_inputs is out of range");
  Check(d.num_outputs >= 0 && d.num_outputs <= static_cast<int>(d.values.size()), "num_outputs is out of range");
  Checker(d).CheckAll();
  const int64_t literals = (text + 1 + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment;
  result.literals = bytes + literals;
  for (const Value& value : d.values) {
    if (value.literal_offset < 0) continue;
    Check(value.constant, "a literal that is not constant");
    const int64_t room = size - literals - value.literal_offset;
    Check(room >= value.elements * static_cast<int64_t>(sizeof(float)), "a literal ends outside");
  }
  return result;
}

}  // namespace inlay::xnnpack
