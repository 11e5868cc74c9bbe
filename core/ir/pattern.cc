#include "core/ir/pattern.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_set.h"

namespace inlay::ir {
namespace {

std::shared_ptr<Pattern> Make(Pattern::Kind kind, std::string name) {
  auto pattern = std::make_shared<Pattern>();
  pattern->kind = kind;
  pattern->name = std::move(name);
  return pattern;
}

// Backtracking search: each step matches one operand, then calls the rest of the work; a step that fails undoes what it
// recorded, so that the next alternative starts clean.
class Matcher {
 public:
  Matcher(const Binding& root, const DefUse& def_use) : root_(root), def_use_(def_use) {}

  using Rest = std::function<bool()>;

  bool MatchBinding(const Pattern& pattern, const Binding& binding, const Rest& rest) {
    if (pattern.kind == Pattern::Kind::kOr) {
      for (const PatternPtr& choice : pattern.choices) {
        if (MatchBinding(*choice, binding, rest)) return true;
      }
      return false;
    }
    if (pattern.kind == Pattern::Kind::kTupleItem) {
      if (binding.kind != Binding::Kind::kTupleGetItem) return false;
    } else {
      if (pattern.kind != Pattern::Kind::kOp || binding.kind != Binding::Kind::kCall) return false;
      if (std::find(pattern.ops.begin(), pattern.ops.end(), binding.callee) == pattern.ops.end()) return false;
    }
    if (pattern.args.size() > binding.args.size()) return false;
    if (&binding != &root_ && def_use_.IsResult(binding.var)) return false;
    if (pattern.predicate && !pattern.predicate(binding)) return false;
    return Record(pattern, Operand(binding.var), &binding, [&] {
      if (MatchArgs(pattern, binding, {0, 1}, 0, rest)) return true;
      return pattern.commutative && binding.args.size() == 2 && MatchArgs(pattern, binding, {1, 0}, 0, rest);
    });
  }

  // Whether all that was matched forms one sub-graph with the root as its only exit; fills `match`.
  bool Finish(PatternMatch* match) const {
    absl::flat_hash_set<const Binding*> inside(bindings_.begin(), bindings_.end());
    for (const Binding* binding : inside) {
      if (binding == &root_) continue;
      if (def_use_.IsResult(binding->var)) return false;
      for (const Binding* user : def_use_.Users(binding->var)) {
        if (!inside.contains(user)) return false;
      }
    }
    match->bindings.assign(inside.begin(), inside.end());
    std::sort(match->bindings.begin(), match->bindings.end(),
              [&](const Binding* a, const Binding* b) { return def_use_.Position(a) < def_use_.Position(b); });
    match->named_operands.clear();
    match->named_bindings.clear();
    for (const Named& named : named_) {
      match->named_operands.emplace(*named.name, named.operand);
      // The name may have been recorded where the pattern was Any(): look up what defines it.
      const Binding* def = named.binding;
      if (def == nullptr && named.operand.is_var()) def = def_use_.Def(named.operand.var);
      if (def != nullptr && inside.contains(def)) match->named_bindings.emplace(*named.name, def);
    }
    return true;
  }

 private:
  struct Named {
    const std::string* name;
    Operand operand;
    const Binding* binding;
  };

  bool MatchArgs(const Pattern& pattern, const Binding& binding, const std::array<int, 2>& order, size_t i,
                 const Rest& rest) {
    if (i == pattern.args.size()) return rest();
    const Operand& operand = binding.args[pattern.commutative ? order[i] : i];
    return MatchOperand(*pattern.args[i], operand, [&] { return MatchArgs(pattern, binding, order, i + 1, rest); });
  }

  bool MatchOperand(const Pattern& pattern, const Operand& operand, const Rest& rest) {
    switch (pattern.kind) {
      case Pattern::Kind::kAny:
        return Record(pattern, operand, nullptr, rest);
      case Pattern::Kind::kConstant:
        return def_use_.IsConstant(operand) && Record(pattern, operand, nullptr, rest);
      case Pattern::Kind::kLiteral:
        return operand.is_literal() && Record(pattern, operand, nullptr, rest);
      case Pattern::Kind::kOp:
      case Pattern::Kind::kTupleItem: {
        if (!operand.is_var()) return false;
        const Binding* def = def_use_.Def(operand.var);
        return def != nullptr && MatchBinding(pattern, *def, rest);
      }
      case Pattern::Kind::kOr:
        for (const PatternPtr& choice : pattern.choices) {
          if (MatchOperand(*choice, operand, rest)) return true;
        }
        return false;
    }
    return false;
  }

  bool Record(const Pattern& pattern, const Operand& operand, const Binding* binding, const Rest& rest) {
    bool named = !pattern.name.empty();
    for (const Named& other : named_) {
      if (!named || *other.name != pattern.name) continue;
      if (!(other.operand == operand)) return false;
      named = false;  // recorded already
      break;
    }
    if (named) named_.push_back({&pattern.name, operand, binding});
    if (binding != nullptr) bindings_.push_back(binding);
    if (rest()) return true;
    if (binding != nullptr) bindings_.pop_back();
    if (named) named_.pop_back();
    return false;
  }

  const Binding& root_;
  const DefUse& def_use_;
  std::vector<const Binding*> bindings_;  // a binding reached by two paths is here twice
  std::vector<Named> named_;
};

}  // namespace

PatternPtr Any(std::string name) { return Make(Pattern::Kind::kAny, std::move(name)); }
PatternPtr IsConstant(std::string name) { return Make(Pattern::Kind::kConstant, std::move(name)); }
PatternPtr IsLiteral(std::string name) { return Make(Pattern::Kind::kLiteral, std::move(name)); }

PatternPtr Op(std::string op, std::vector<PatternPtr> args, std::string name) {
  return OpOf({std::move(op)}, std::move(args), std::move(name));
}

PatternPtr OpOf(std::vector<std::string> ops, std::vector<PatternPtr> args, std::string name) {
  auto pattern = Make(Pattern::Kind::kOp, std::move(name));
  pattern->ops = std::move(ops);
  pattern->args = std::move(args);
  return pattern;
}

PatternPtr CommutativeOp(std::string op, PatternPtr a, PatternPtr b, std::string name) {
  auto pattern = Make(Pattern::Kind::kOp, std::move(name));
  pattern->ops = {std::move(op)};
  pattern->args = {std::move(a), std::move(b)};
  pattern->commutative = true;
  return pattern;
}

PatternPtr Or(std::vector<PatternPtr> choices) {
  auto pattern = Make(Pattern::Kind::kOr, "");
  pattern->choices = std::move(choices);
  return pattern;
}

PatternPtr Optional(std::string op, PatternPtr inner, std::string name) {
  return Or({Op(std::move(op), {inner}, std::move(name)), inner});
}

PatternPtr TupleItem(PatternPtr tuple, std::string name) {
  auto pattern = Make(Pattern::Kind::kTupleItem, std::move(name));
  pattern->args = {std::move(tuple)};
  return pattern;
}

PatternPtr Chain(PatternPtr inner, int most, const std::function<PatternPtr(PatternPtr)>& step) {
  PatternPtr chain = inner;
  for (int i = 0; i < most; ++i) chain = Or({step(chain), inner});
  return chain;
}

PatternPtr If(PatternPtr op_pattern, std::function<bool(const Binding&)> predicate) {
  auto pattern = std::make_shared<Pattern>(*op_pattern);
  if (pattern->kind == Pattern::Kind::kOr) {
    for (PatternPtr& choice : pattern->choices) choice = If(choice, predicate);
  } else if (pattern->predicate) {
    pattern->predicate = [first = pattern->predicate, predicate](const Binding& b) { return first(b) && predicate(b); };
  } else {
    pattern->predicate = std::move(predicate);
  }
  return pattern;
}

const Binding* PatternMatch::Find(const std::string& name) const {
  auto it = named_bindings.find(name);
  return it == named_bindings.end() ? nullptr : it->second;
}

bool Match(const PatternPtr& pattern, const Binding& root, const DefUse& def_use, PatternMatch* match) {
  Matcher matcher(root, def_use);
  return matcher.MatchBinding(*pattern, root, [&] { return matcher.Finish(match); });
}

}  // namespace inlay::ir
