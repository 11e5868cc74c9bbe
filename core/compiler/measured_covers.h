// Covers of a model by what its sites took when they were measured.
#ifndef INLAY_CORE_COMPILER_MEASURED_COVERS_H_
#define INLAY_CORE_COMPILER_MEASURED_COVERS_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/collage/partitioner.h"
#include "core/compiler/site_costs.h"
#include "core/compiler/sites.h"

namespace inlay::compiler {

using SitesByPositions = std::map<std::vector<int>, const Site*>;

// Null: no site.
inline const Site* SiteAt(const SitesByPositions& sites, const std::vector<int>& positions) {
  auto found = sites.find(positions);
  return found == sites.end() ? nullptr : found->second;
}

struct MeasuredModel {
  const collage::FunctionSpace& main;
  const std::vector<Site>& sites;
  const SitesByPositions& site_at;
  const SiteCosts& costs;
  const collage::CostEstimator& transitions;  // what borders and calls take, as measured
};

// The cheapest cover by what was measured, twice: as measured, and with neighbours of a library drawn together. `base`:
// a cover of the module, of which all but main is kept. Empty where nothing was measured.
absl::StatusOr<std::vector<collage::Cover>> CheapestAsMeasured(const MeasuredModel& model, const collage::Cover& base);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_MEASURED_COVERS_H_
