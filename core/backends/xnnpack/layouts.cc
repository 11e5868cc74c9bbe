#include "core/backends/xnnpack/layouts.h"

#include <algorithm>

#include "core/backends/xnnpack/lowering.h"

namespace inlay::xnnpack {

backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition) {
  const absl::StatusOr<Lowered> lowered = Lower(partition);
  if (!lowered.ok()) return {};
  const Description& d = lowered->description;
  // An input that every step wants transposed, a result that is what a transpose made.
  auto transposes = [](const Step& step, const ir::TensorType& type, bool from_row_major) {
    const Dims dims = type.Shape();
    if (step.op != "transpose" || dims.size() < 3 || step.batch != dims[0]) return false;
    return (from_row_major ? step.rows : step.channels) == dims[1];
  };
  backend::ChannelsLast result;
  for (int input = 0; input < d.num_inputs; ++input) {
    bool read = false, last = !d.values[input].constant;
    for (const Step& step : d.steps) {
      if (std::count(step.args.begin(), step.args.end(), input) == 0) continue;
      read = true;
      last &= transposes(step, partition.params[input]->type.tensor(), true);
    }
    if (read && last) result.params.push_back(input);
  }
  for (int output = 0; output < d.num_outputs; ++output) {
    const ir::TensorType& type = partition.body.results[output].tensor_type();
    const bool last = std::any_of(d.steps.begin(), d.steps.end(), [&](const Step& step) {
      return d.values[step.out].output == output && transposes(step, type, false);
    });
    if (last) result.results.push_back(output);
  }
  return result;
}

}  // namespace inlay::xnnpack
