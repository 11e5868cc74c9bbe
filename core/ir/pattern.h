// Dataflow patterns: what a sub-graph must look like, and what matched. Patterns are immutable and shared.
//
//   auto conv = Op("conv", {Any(), Any()}, "conv");             // named parts can be found in the match
//   auto p = Optional("relu", Op("add", {conv, Any()}));         // the relu may be there or not
//
// A name that occurs more than once in a pattern must match the same operand each time: Any("x") twice = one value used
// twice. Unnamed patterns are free, also where one object is used in several places.
#ifndef INLAY_CORE_IR_PATTERN_H_
#define INLAY_CORE_IR_PATTERN_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

class Pattern;
using PatternPtr = std::shared_ptr<const Pattern>;

class Pattern {
 public:
  enum class Kind { kAny, kConstant, kLiteral, kOp, kTupleItem, kOr };
  Kind kind = Kind::kAny;
  std::vector<std::string> ops;     // kOp: any of these
  std::vector<PatternPtr> args;     // kOp: empty = arguments are not looked at; fewer than the call has = the rest is
                                    // free. kTupleItem: the tuple
  bool commutative = false;         // kOp with two arguments: also the other way round
  std::vector<PatternPtr> choices;  // kOr, tried in order
  std::function<bool(const Binding&)> predicate;  // kOp
  std::string name;                               // "" = not recorded
};

PatternPtr Any(std::string name = "");
PatternPtr IsConstant(std::string name = "");  // weight, literal, or a Var that DefUse was told is constant
PatternPtr IsLiteral(std::string name = "");
PatternPtr Op(std::string op, std::vector<PatternPtr> args = {}, std::string name = "");
PatternPtr OpOf(std::vector<std::string> ops, std::vector<PatternPtr> args = {}, std::string name = "");
PatternPtr CommutativeOp(std::string op, PatternPtr a, PatternPtr b, std::string name = "");
PatternPtr Or(std::vector<PatternPtr> choices);
PatternPtr Optional(std::string op, PatternPtr inner, std::string name = "");  // op(inner) or inner
PatternPtr TupleItem(PatternPtr tuple, std::string name = "");  // any item: what a TupleGetItem binding takes
// Up to `most` bindings upon `inner`, as many as there are: step(x) is the pattern of one more on x.
PatternPtr Chain(PatternPtr inner, int most, const std::function<PatternPtr(PatternPtr)>& step);
PatternPtr If(PatternPtr op_pattern, std::function<bool(const Binding&)> predicate);

struct PatternMatch {
  std::vector<const Binding*> bindings;  // what was matched, in execution order; the root is the last
  std::map<std::string, const Binding*> named_bindings;
  std::map<std::string, Operand> named_operands;
  const Binding* Find(const std::string& name) const;  // nullptr: that optional part is not there
};

// Who defines a Var and who uses it, within one block. It points into the block, which must outlive it unchanged.
class DefUse {
 public:
  // `constants`: Vars of outside that are constant after load (lifted parameters of main, constant_params).
  explicit DefUse(const Block& block, std::unordered_set<const Var*> constants = {});
  const Binding* Def(const VarPtr& var) const;  // nullptr: a parameter
  int NumUses(const VarPtr& var) const;         // uses by bindings (nested blocks too) and by the block's results
  // In order, each once; a use in a nested block counts as one of the binding that holds the block.
  const std::vector<const Binding*>& Users(const VarPtr& var) const;
  bool IsResult(const VarPtr& var) const;
  int Position(const Binding* binding) const;  // of a binding of this block
  bool IsConstant(const Operand& operand) const;

 private:
  struct Uses {
    const Binding* def = nullptr;
    std::vector<const Binding*> users;
    int count = 0;
    bool is_result = false;
  };
  const Uses* Find(const VarPtr& var) const;
  void AddBlockUses(const Block& block, const Binding* user);

  const Block* block_;
  absl::flat_hash_map<const Var*, Uses> uses_;
  std::unordered_set<const Var*> constants_;
};

// Matches at `root`. Inner bindings (all but the root) must have all of their uses inside the match; with the root as
// the only exit the sub-graph is then convex (a path that leaves it leaves from the root, and nothing leads back up).
// Tries alternatives (Or, Optional, commuted arguments) in order until one fits as a whole. False: *match is
// unspecified.
bool Match(const PatternPtr& pattern, const Binding& root, const DefUse& def_use, PatternMatch* match);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_PATTERN_H_
