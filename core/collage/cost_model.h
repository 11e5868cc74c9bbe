// CostModel: what is known of a machine beyond the constants that backends estimate with: what it costs there to go
// from one partition to the next, and by what factors the estimates are off. Empty where nothing was measured: the
// backends' constants then. A value; any thread.
#ifndef INLAY_CORE_COLLAGE_COST_MODEL_H_
#define INLAY_CORE_COLLAGE_COST_MODEL_H_

#include <map>
#include <string>

#include "core/backend/backend.h"
#include "core/collage/scale_fit.h"
#include "proto/cost_table.pb.h"

namespace inlay::collage {

class CostModel {
 public:
  CostModel() = default;
  explicit CostModel(proto::TransitionCosts transitions, ScaleFit fit = {});

  // What a call takes besides what the backend's own estimate says of it: a constant, or as much as makes the estimate
  // of a call that does next to nothing what was measured. May then be negative.
  double CallMicros(const std::string& backend) const;
  // What no call takes less than.
  double LeastMicros(const std::string& backend) const;
  // Of one crossing of a border of the backend's partitions: Backend::TransitionMicros, times measured over estimated
  // of tensors of about that size.
  double TransitionMicros(const backend::Backend& backend, const ir::TensorType& tensor,
                          const target::Target& target) const;

  // How uncertain it is: an estimate of another backend must be lower than the fallback's by this factor before an
  // analytic search takes that backend. What was measured is sure of more (a tie is decided by its spread).
  double Margin() const;

  // What a backend's estimate of a partition is multiplied by.
  double Scale(const std::string& backend, const std::string& kind) const { return fit_.Scale(backend, kind); }

  const proto::TransitionCosts& transitions() const { return transitions_; }
  const ScaleFit& fit() const { return fit_; }

 private:
  proto::TransitionCosts transitions_;
  ScaleFit fit_;
  std::map<std::string, proto::TransitionCosts::Dispatch> dispatch_;
  std::map<std::string, std::map<double, double>> layouts_;  // backend -> log(bytes) -> measured / estimated
};

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_COST_MODEL_H_
