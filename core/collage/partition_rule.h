// PartitionRule: finds candidates in a graph. Base rules find, combinators filter and join; a rule's name stays on what
// it found, so that a choice can be explained (the idea is that of TVM's relay/collage).
//
// Rules are immutable; any thread.
#ifndef INLAY_CORE_COLLAGE_PARTITION_RULE_H_
#define INLAY_CORE_COLLAGE_PARTITION_RULE_H_

#include <memory>
#include <string>
#include <vector>

#include "core/collage/candidate.h"
#include "core/collage/dataflow_graph.h"
#include "core/target/target.h"

namespace inlay::collage {

class PartitionRule {
 public:
  virtual ~PartitionRule() = default;
  virtual std::string name() const = 0;
  // Appends what was refused to *refusals where that is not null.
  virtual std::vector<Candidate> Find(const DataflowGraph& graph, const target::Target& target,
                                      std::vector<Refusal>* refusals) const = 0;
};
using PartitionRulePtr = std::unique_ptr<const PartitionRule>;

// The patterns that one backend declares, and those that a configuration adds (Backend::ConfiguredRules); without its
// own: the latter alone. At most kMaxCandidatesPerRoot a root, those of higher priority first.
inline constexpr int kMaxCandidatesPerRoot = 12;
PartitionRulePtr BackendPatterns(const backend::Backend* backend, std::vector<backend::PatternRule> configured = {},
                                 bool with_own = true);

// What any of the rules finds.
PartitionRulePtr UnionOf(std::string name, std::vector<PartitionRulePtr> rules);

// Where the configuration asks for a match (PatternRule::intended), nothing else that would cover any of it.
PartitionRulePtr OnlyIntended(PartitionRulePtr rule);

// Only what could stand as a partition: every needed call is one, and no path leaves the sub-graph and comes back.
PartitionRulePtr OnlyValid(PartitionRulePtr rule);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_PARTITION_RULE_H_
