// From a Case to the partitions that a backend would be given.
#ifndef INLAY_CORE_BACKEND_TESTING_PARTITIONS_H_
#define INLAY_CORE_BACKEND_TESTING_PARTITIONS_H_

#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace inlay::backend::testing {

struct TestPartition {
  std::string name;  // the rule that found it, or "merged"
  ir::Function function;
};

// What the backend's rules claim of the function: one partition a match, and, where it merges or fuses its matches and
// they cover everything, the whole. Refused matches are left out; their reasons are appended to *refusals.
std::vector<TestPartition> PartitionsOf(const Backend& backend, const ir::Function& function,
                                        const target::Target& target, std::vector<std::string>* refusals);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_PARTITIONS_H_
