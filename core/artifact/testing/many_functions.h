// ManyFunctions: a model of n different partitions, each with its StaticLibrary, and optionally a big weight: for
// benchmarks of linking and loading.
#ifndef INLAY_CORE_ARTIFACT_TESTING_MANY_FUNCTIONS_H_
#define INLAY_CORE_ARTIFACT_TESTING_MANY_FUNCTIONS_H_

#include <vector>

#include "core/artifact/planner.h"
#include "core/artifact/testing/test_library.h"

namespace inlay::artifact::testing {

struct ManyFunctions {
  std::vector<proto::StaticLibrary> libraries;
  BuiltPlan built;
  std::vector<proto::ParamRef> params;
  std::string weight;  // every param's bytes

  // `weight_bytes`: of a weight that is a second output.
  explicit ManyFunctions(int n, int64_t weight_bytes = 0);
  std::vector<const proto::StaticLibrary*> library_pointers() const;
};

}  // namespace inlay::artifact::testing

#endif  // INLAY_CORE_ARTIFACT_TESTING_MANY_FUNCTIONS_H_
