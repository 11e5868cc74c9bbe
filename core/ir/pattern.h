// Dataflow patterns: what a sub-graph must look like, and what matched. Patterns are immutable and shared.
//
//   auto conv = Op("conv", {Any(), Any()}).Named("conv");       // named parts can be found in the match
//   auto p = Optional("relu", Op("add", {conv, Any()}));         // the relu may be there or not
#ifndef INLAY_CORE_IR_PATTERN_H_
#define INLAY_CORE_IR_PATTERN_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ir/ir_module.h"

namespace inlay::ir {

class Pattern;
using PatternPtr = std::shared_ptr<const Pattern>;

class Pattern {
 public:
  enum class Kind { kAny, kConstant, kLiteral, kOp, kOr };
  Kind kind = Kind::kAny;
  std::vector<std::string> ops;  // kOp: any of these
  std::vector<PatternPtr> args;  // kOp: empty = arguments are not looked at; fewer than the call has = the rest is free
  bool commutative = false;      // kOp with two arguments: also the other way round
  std::vector<PatternPtr> choices;                // kOr, tried in order
  std::function<bool(const Binding&)> predicate;  // kOp
  std::string name;                               // "" = not recorded
};

PatternPtr Any(std::string name = "");
PatternPtr IsConstant(std::string name = "");  // weight or literal
PatternPtr IsLiteral(std::string name = "");
PatternPtr Op(std::string op, std::vector<PatternPtr> args = {}, std::string name = "");
PatternPtr OpOf(std::vector<std::string> ops, std::vector<PatternPtr> args = {}, std::string name = "");
PatternPtr CommutativeOp(std::string op, PatternPtr a, PatternPtr b, std::string name = "");
PatternPtr Or(std::vector<PatternPtr> choices);
PatternPtr Optional(std::string op, PatternPtr inner, std::string name = "");  // op(inner) or inner
PatternPtr If(PatternPtr op_pattern, std::function<bool(const Binding&)> predicate);

struct PatternMatch {
  std::vector<const Binding*> bindings;  // what was matched, in execution order; the root is the last
  std::map<std::string, const Binding*> named_bindings;
  std::map<std::string, Operand> named_operands;
  const Binding* Find(const std::string& name) const;  // nullptr: that optional part is not there
};

// Who defines a Var and who uses it, within one block.
class DefUse {
 public:
  explicit DefUse(const Block& block);
  const Binding* Def(const VarPtr& var) const;  // nullptr: a parameter
  int NumUses(const VarPtr& var) const;         // uses by bindings (nested blocks too) and by the block's results
  std::vector<const Binding*> Users(const VarPtr& var) const;
  bool IsResult(const VarPtr& var) const;
  int Position(const Binding* binding) const;
};

// Matches at `root`. Inner bindings (all but the root) must have all of their uses inside the match, and the sub-graph
// must be convex. False: *match is unspecified.
bool Match(const PatternPtr& pattern, const Binding& root, const DefUse& def_use, PatternMatch* match);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_PATTERN_H_
