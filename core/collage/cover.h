// Cover: which partitions a module is cut into. A search yields it, the plan cache keeps it, a user may pin it.
#ifndef INLAY_CORE_COLLAGE_COVER_H_
#define INLAY_CORE_COLLAGE_COVER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/ir/ir_module.h"
#include "proto/config.pb.h"

namespace inlay::collage {

// A partition to be.
struct Group {
  std::vector<int> positions;
  const backend::Backend* backend = nullptr;  // nullptr: a binding that stays as it is (a function call, an If)
  std::vector<std::string> rules;
  double cost_us = 0;
};

struct Cover {
  std::string name;
  // By function; in an order in which each group comes after those it needs.
  std::map<std::string, std::vector<Group>> functions;
  bool whole_batch = false;  // not a few rows at a time (micro_batches.h), whatever that promises
  double estimated_us = 0;   // of main, borders included
  double cautious_us = 0;    // the same with CostEstimator::Margin on the parts of other backends than the fallback

  // Whether both cut main into the same partitions for the same backends.
  bool SameCuts(const Cover& other) const;
};

// The functions of a normalised module, each of which is covered: transform_params, main, then those that control flow
// calls.
std::vector<std::string> FunctionsToCut(const ir::IRModule& module);

// `module_hash`: ir::StructuralHash of the module that the cover was made for.
proto::Cover ToProto(const Cover& cover, const Digest& module_hash);

// Checks that the cover fits the module: INVALID_ARGUMENT says where it does not (another module, positions that are
// missing or double, a backend that `backends` has not, partitions that would need each other).
absl::StatusOr<Cover> FromProto(const proto::Cover& proto, const ir::IRModule& module, const Digest& module_hash,
                                const std::vector<const backend::Backend*>& backends);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_COVER_H_
