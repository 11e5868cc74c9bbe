#include "core/backends/onednn/runtime/description_reader.h"

#include <stdexcept>
#include <string>

#include "core/backends/onednn/description_json.h"

namespace inlay::onednn {
namespace {

constexpr size_t kMaxRank = 12;  // DNNL_MAX_NDIMS
constexpr int64_t kMaxElements = int64_t{1} << 38;

[[noreturn]] void Fail(const std::string& message) { throw std::runtime_error("onednn description: " + message); }

void CheckDims(const Dims& dims) {
  if (dims.size() > kMaxRank) Fail("too many dims");
  int64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim <= 0 || dim > kMaxElements || elements > kMaxElements / dim) Fail("a dim is out of range");
    elements *= dim;
  }
}

// The last element that a view reaches must lie inside the value.
void CheckView(const Description& d, const View& view) {
  if (view.value < 0 || view.value >= static_cast<int>(d.values.size())) Fail("no such value");
  CheckDims(view.dims);
  const int64_t elements = NumElements(d.values[view.value].dims);
  if (view.strides.empty()) {
    if (NumElements(view.dims) != elements) Fail("a view of another size than its value");
    return;
  }
  if (view.strides.size() != view.dims.size()) Fail("strides and dims differ in number");
  int64_t last = 0;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.strides[i] < 0 || view.strides[i] > kMaxElements) Fail("a stride is out of range");
    last += (view.dims[i] - 1) * view.strides[i];
    if (last >= elements) Fail("a view reaches outside of its value");
  }
}

void CheckArity(const Step& step) {
  const size_t args = step.args.size();
  size_t least = 1, most = 1;
  if (step.op == "conv" || step.op == "deconv" || step.op == "matmul") least = 2, most = 3;
  if (step.op == "binary") least = most = 2;
  if (step.op == "layer_norm") least = most = 3;
  if (step.op == "batch_norm") least = most = 5;
  if (step.op == "concat") most = 1 << 10;
  if (args < least || args > most) Fail("a wrong number of arguments for " + step.op);
}

void CheckSteps(const Description& d) {
  std::vector<bool> ready(d.values.size(), false);
  for (size_t i = 0; i < d.values.size(); ++i) {
    ready[i] = static_cast<int>(i) < d.num_inputs || d.values[i].literal_offset >= 0;
  }
  auto use = [&](const View& view) {
    CheckView(d, view);
    if (!ready[view.value]) Fail("a value is used before it is made");
  };
  for (const Step& step : d.steps) {
    CheckArity(step);
    for (const View& arg : step.args) use(arg);
    for (const PostOp& post_op : step.post_ops) {
      if (post_op.operand.value >= 0) use(post_op.operand);
    }
    CheckView(d, step.out);
    if (ready[step.out.value]) Fail("a value is made twice");
    if (!step.out.strides.empty()) Fail("a result with strides");
    ready[step.out.value] = true;
  }
  for (int output : d.outputs) {
    if (output < d.num_inputs || output >= static_cast<int>(d.values.size()) || !ready[output] ||
        d.values[output].constant) {
      Fail("an output that no step makes");
    }
  }
}

}  // namespace

int64_t NumElements(const Dims& dims) {
  int64_t elements = 1;
  for (int64_t dim : dims) elements *= dim;
  return elements;
}

ReadDescription ReadAndCheck(const char* bytes, int64_t size) {
  // The JSON ends in a zero byte; literals follow at the next multiple of kLiteralAlignment.
  int64_t text = 0;
  while (text < size && bytes[text] != '\0') ++text;
  ReadDescription result;
  Description& d = result.description;
  d = nlohmann::json::parse(bytes, bytes + text).get<Description>();
  if (d.version != kDescriptionVersion) Fail("version " + std::to_string(d.version) + " is not known");
  if (d.num_inputs < 0 || d.num_inputs > static_cast<int>(d.values.size())) Fail("num_inputs is out of range");
  const int64_t literals = (text + 1 + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment;
  result.literals = bytes + literals;
  for (const Value& value : d.values) {
    CheckDims(value.dims);
    if (value.literal_offset < 0) continue;
    if (!value.constant) Fail("a literal that is not constant");
    const int64_t room = size - literals - value.literal_offset;
    if (room < NumElements(value.dims) * static_cast<int64_t>(sizeof(float))) Fail("a literal ends outside");
  }
  CheckSteps(d);
  auto check_images = [](const std::vector<int>& indices, int end, const auto& dims_of) {
    for (int i : indices) {
      if (i < 0 || i >= end || !IsImage(dims_of(i))) Fail("channels last of no image");
    }
  };
  check_images(d.channels_last_inputs, d.num_inputs, [&](int i) -> const Dims& { return d.values[i].dims; });
  check_images(d.channels_last_outputs, static_cast<int>(d.outputs.size()),
               [&](int i) -> const Dims& { return d.values[d.outputs[i]].dims; });
  return result;
}

}  // namespace inlay::onednn
