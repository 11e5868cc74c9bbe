// ScaleFit: by what factor the backends' estimates are off on a machine, from what was measured there, for each backend
// and kind of operator (operator_kind.h). A value; any thread.
//
// Medians of logarithms of measured / estimated, so that single mistimed samples do not matter. The hand-set estimates
// are the prior: the median of a backend and kind counts n / (n + 4) beside the factor of that kind whatever the
// backend, and that one likewise beside the machine's. For what is compared is backends at calls of one kind: one of
// which nothing is known must look neither better nor worse for it. Below 8 samples of the machine, or 3 of a kind,
// nothing is concluded. Depends on the samples alone, not on their order.
#ifndef INLAY_CORE_COLLAGE_SCALE_FIT_H_
#define INLAY_CORE_COLLAGE_SCALE_FIT_H_

#include <map>
#include <string>
#include <utility>

#include "proto/cost_table.pb.h"

namespace inlay::collage {

class ScaleFit {
 public:
  ScaleFit() = default;
  explicit ScaleFit(const proto::CostSamples& samples);

  // 1 where nothing is known.
  double Scale(const std::string& backend, const std::string& kind) const;
  int num_samples() const { return num_samples_; }  // that it rests on; 0: too few

 private:
  int num_samples_ = 0;
  double machine_ = 0;  // logarithms, all three
  std::map<std::string, double> kinds_;
  std::map<std::pair<std::string, std::string>, double> backends_;  // and kinds
};

// `samples` with `more`: of a key that both have the first, and of a backend and kind at most 64 (those with the lowest
// keys, which are hashes: the same whatever came first). By key.
proto::CostSamples MergeSamples(const proto::CostSamples& samples, const proto::CostSamples& more);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_SCALE_FIT_H_
