#include "core/collage/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace inlay::collage {
namespace {

// One call through the executor's plan, measured at 20-50 ns, and the cold start of a kernel's loops.
constexpr double kCallMicros = 0.2;
// Of 3,724 pairs of another backend and native code that were timed on the same calls (30 models of timm, one core, Zen
// 5, 2026-11-22) 124 others were faster by a tenth and more, 69 by a fifth. So an estimate that promises less than a
// quarter is more likely wrong than right. The margins themselves are judged, not fitted.
constexpr double kHandSetMargin = 1.25, kFittedMargin = 1.15;
// A border whose cost drowned in the noise of two convolutions is not free, and none is that dear.
constexpr double kLeastRatio = 0.05, kMostRatio = 20;

}  // namespace

CostModel::CostModel(proto::TransitionCosts transitions, ScaleFit fit)
    : transitions_(std::move(transitions)), fit_(std::move(fit)) {
  for (const auto& dispatch : transitions_.dispatch()) {
    if (dispatch.failed().empty()) dispatch_[dispatch.backend()] = dispatch;
  }
  for (const auto& layout : transitions_.layouts()) {
    if (!layout.failed().empty() || layout.bytes() <= 0 || layout.estimated_us() <= 0) continue;
    layouts_[layout.backend()][std::log(layout.bytes())] =
        std::clamp(layout.us() / layout.estimated_us(), kLeastRatio, kMostRatio);
  }
}

double CostModel::CallMicros(const std::string& backend) const {
  auto found = dispatch_.find(backend);
  return found == dispatch_.end() ? kCallMicros : found->second.us() - found->second.estimated_us();
}

double CostModel::LeastMicros(const std::string& backend) const {
  auto found = dispatch_.find(backend);
  return found == dispatch_.end() ? kCallMicros : found->second.us();
}

double CostModel::Margin() const { return fit_.num_samples() > 0 ? kFittedMargin : kHandSetMargin; }

double CostModel::TransitionMicros(const backend::Backend& backend, const ir::TensorType& tensor,
                                   const target::Target& target) const {
  const double estimate = backend.TransitionMicros(tensor, target);
  auto found = layouts_.find(backend.name());
  if (estimate <= 0 || found == layouts_.end()) return estimate;
  const std::map<double, double>& ratios = found->second;
  const double size = std::log(static_cast<double>(std::max<int64_t>(1, tensor.NumBytes())));
  auto above = ratios.lower_bound(size);
  if (above == ratios.begin()) return estimate * above->second;
  auto below = std::prev(above);
  if (above == ratios.end()) return estimate * below->second;
  const double part = (size - below->first) / (above->first - below->first);
  return estimate * (below->second + part * (above->second - below->second));
}

}  // namespace inlay::collage
