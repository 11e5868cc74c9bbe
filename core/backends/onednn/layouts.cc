#include "core/backends/onednn/layouts.h"

#include <algorithm>
#include <numeric>

#include "core/backends/onednn/lowering.h"

namespace inlay::onednn {
namespace {

// Convolutions of fewer input channels (stems) read planes.
constexpr int64_t kLeastChannels = 8;

// Values that steps keep in one layout are one class; a class has its channels last where some step wants it so and
// none wants it row-major.
class Layouts {
 public:
  explicit Layouts(const Description& description)
      : description_(description),
        class_of_(description.values.size()),
        last_(description.values.size()),
        row_major_(description.values.size()) {
    std::iota(class_of_.begin(), class_of_.end(), 0);
    for (const Step& step : description.steps) Visit(step);
  }

  bool IsChannelsLast(int value) const {
    const Dims& dims = description_.values[value].dims;
    const bool one_pixel =
        std::all_of(dims.begin() + std::min<size_t>(2, dims.size()), dims.end(), [](int64_t d) { return d == 1; });
    if (!IsImage(dims) || dims[1] == 1 || one_pixel) return false;
    bool last = false, row_major = false;
    for (size_t other = 0; other < class_of_.size(); ++other) {
      if (Find(static_cast<int>(other)) != Find(value)) continue;
      last |= last_[other];
      row_major |= row_major_[other];
    }
    return last && !row_major;
  }

 private:
  int Find(int value) const {
    while (class_of_[value] != value) value = class_of_[value];
    return value;
  }

  bool IsWhole(const View& view) const {
    return view.strides.empty() && view.dims == description_.values[view.value].dims && IsImage(view.dims);
  }

  // `view` is read or written in the layout of the step's result, where it is as large; else plain.
  void Follow(const Step& step, const View& view) {
    if (IsWhole(view) && IsWhole(step.out) && view.dims == step.out.dims) {
      class_of_[Find(view.value)] = Find(step.out.value);
    } else if (IsImage(view.dims) || !view.strides.empty()) {
      row_major_[view.value] = true;
    }
  }

  void Want(const View& view, bool channels_last) {
    (channels_last && IsWhole(view) ? last_ : row_major_)[view.value] = true;
  }

  void Visit(const Step& step) {
    for (const PostOp& post_op : step.post_ops) {
      if (post_op.operand.value >= 0) Follow(step, post_op.operand);
    }
    if (step.op == "conv" || step.op == "deconv") {
      Want(step.args[0], step.args[0].dims.size() > 1 && step.args[0].dims[1] >= kLeastChannels);
      Want(step.out, true);
    } else if (step.op == "max_pool" || step.op == "avg_pool_include" || step.op == "avg_pool_exclude") {
      Want(step.args[0], true);
      Want(step.out, true);
    } else if (step.op == "eltwise" || step.op == "batch_norm") {
      Follow(step, step.args[0]);
    } else if (step.op == "binary") {
      for (const View& arg : step.args) Follow(step, arg);
    } else if (step.op == "concat") {
      for (const View& arg : step.args) {
        if (IsWhole(arg) && IsWhole(step.out)) class_of_[Find(arg.value)] = Find(step.out.value);
      }
    } else {
      for (const View& arg : step.args) row_major_[arg.value] = true;
      row_major_[step.out.value] = true;
    }
  }

  const Description& description_;
  std::vector<int> class_of_;
  std::vector<bool> last_, row_major_;  // wanted
};

}  // namespace

backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition) {
  const absl::StatusOr<Lowered> lowered = Lower(partition);
  if (!lowered.ok()) return {};
  const Description& d = lowered->description;
  const Layouts layouts(d);
  backend::ChannelsLast result;
  for (int input = 0; input < d.num_inputs; ++input) {
    if (!d.values[input].constant && layouts.IsChannelsLast(input)) result.params.push_back(input);
  }
  for (size_t output = 0; output < d.outputs.size(); ++output) {
    const int value = d.outputs[output];
    const bool renamed = partition.body.results[output].tensor_type().Shape() != d.values[value].dims;  // a reshape
    if (!renamed && layouts.IsChannelsLast(value)) result.results.push_back(static_cast<int64_t>(output));
  }
  return result;
}

}  // namespace inlay::onednn
