// Sites: the sub-graphs of a model that a measured search compares backends on.
//
// A site is what several backends could take as a partition; each of them is an alternative, and so is always the
// fallback (native code), however many partitions it makes of it: that one is the reference of the others' results.
// Structurally equal sub-graphs are one site, so that a layer that is repeated is measured once.
#ifndef INLAY_CORE_COMPILER_SITES_H_
#define INLAY_CORE_COMPILER_SITES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/digest.h"
#include "core/collage/partitioner.h"

namespace inlay::compiler {

struct Alternative {
  const backend::Backend* backend = nullptr;
  std::string rule;  // that proposed it
  double estimate_us = 0;
  collage::Cover cover;  // of the site's module
};

struct Occurrence {
  std::vector<int> positions;  // in the model's main
};

struct Site {
  Digest structure;
  ir::IRModule module;                    // the sub-graph alone as main, with weights for what is constant
  std::vector<Alternative> alternatives;  // [0]: the fallback's
  std::vector<Occurrence> occurrences;
};

// At most so many are measured, those of the covers first.
inline constexpr int kMaxSites = 256;

// The sites that matter for the choice between `covers` and their mixtures: every partition of a cover, every biggest
// match of a library, and what is left of the fallback's partitions beside those.
absl::StatusOr<std::vector<Site>> FindSites(const ir::IRModule& module, const collage::Partitioner& partitioner,
                                            const collage::CostEstimator* estimator, const collage::SearchSpace& space,
                                            const std::vector<collage::Cover>& covers);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_SITES_H_
