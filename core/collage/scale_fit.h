// ScaleFit: by what factor the backends' estimates are off on a machine, from what was measured there, for each backend
// and kind of operator (operator_kind.h). A value; any thread.
//
// Logarithms of measured / estimated, and medians of them, so that single mistimed samples do not matter. What is
// compared is backends at calls of one kind, and the samples of one backend are of other sub-graphs than another's: so
// the factor of a kind is the fallback's, and another backend's that one times its median beside the fallback's where
// both were measured (Granite Rapids, matrix products: by all samples of each oneDNN looked 20% faster than native
// code, which on the same ones was 15% faster). The hand-set estimates are the prior: a median of n samples counts
// n / (n + 4) beside the machine's, and one of n differences beside none. Below 8 samples of the machine, or 3 of a
// kind, nothing is concluded: a backend of which nothing is known looks neither better nor worse for it. Depends on the
// samples alone, not on their order.
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

// `samples` with `more`, which is newer: replaces what both have, and what other versions of its backends took. Of a
// kind at most 64 sites: those where the fallback and another were measured before others, then those with the lowest
// keys, which are hashes: the same whatever came first. By key.
proto::CostSamples MergeSamples(const proto::CostSamples& samples, const proto::CostSamples& more);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_SCALE_FIT_H_
