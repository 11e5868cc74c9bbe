#include "core/backends/onednn/workspace.h"

#include <algorithm>
#include <vector>

namespace inlay::onednn {
namespace {

constexpr int64_t kBlock = 16;           // blocked layouts round the channels up to it
constexpr int64_t kScratch = 256 << 10;  // of one primitive: seen up to 200 KB with one thread
constexpr int64_t kSlack = 64;           // alignment, a tensor

int64_t PaddedBytes(const Dims& dims) {
  int64_t elements = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    elements *= i == 1 ? (dims[i] + kBlock - 1) / kBlock * kBlock : dims[i];
  }
  return elements * static_cast<int64_t>(sizeof(float)) + kSlack;
}

}  // namespace

int64_t EstimateWorkspace(const Description& description) {
  const int num_steps = static_cast<int>(description.steps.size());
  // Every value from the step that makes it (an input: from its first use, when it may be reordered) to its last use.
  std::vector<int> first(description.values.size(), num_steps), last(description.values.size(), -1);
  auto use = [&](const View& view, int step) {
    if (view.value < 0 || description.values[view.value].constant) return;
    first[view.value] = std::min(first[view.value], step);
    last[view.value] = std::max(last[view.value], step);
  };
  for (int i = 0; i < num_steps; ++i) {
    const Step& step = description.steps[i];
    for (const View& arg : step.args) use(arg, i);
    for (const PostOp& post_op : step.post_ops) use(post_op.operand, i);
    use(step.out, i);
  }
  int64_t most = 0;
  for (int i = 0; i < num_steps; ++i) {
    int64_t alive = kScratch;
    for (size_t value = 0; value < description.values.size(); ++value) {
      if (first[value] <= i && i <= last[value]) alive += PaddedBytes(description.values[value].dims);
    }
    most = std::max(most, alive);
  }
  // Holes that the offsets leave.
  return most + most / 8;
}

}  // namespace inlay::onednn
