// Computes equal things once.
//
//   %0 = sub(%x, %m)
//   %1 = sub(%x, %m)          becomes      %0 = sub(%x, %m)
//   %2 = mul(%0, %1)                       %1 = mul(%0, %0)
//
// Weights are equal only where they are one object, never by digest; literals are equal by type and bytes.
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;

bool SameOperand(const Operand& a, const Operand& b) {
  if (a == b) return true;
  if (!a.is_literal() || !b.is_literal()) return false;
  return a.constant->type == b.constant->type && a.constant->data == b.constant->data;
}

size_t HashOf(const Binding& binding) {
  size_t hash = absl::HashOf(static_cast<int>(binding.kind), binding.callee, binding.index);
  for (const Operand& arg : binding.args) {
    hash = arg.is_literal() ? absl::HashOf(hash, arg.constant->data)
                            : absl::HashOf(hash, static_cast<const void*>(arg.var.get()),
                                           static_cast<const void*>(arg.constant.get()));
  }
  return hash;  // attributes are compared, not hashed
}

// 0.0 == -0.0, but full(0.0) is not full(-0.0).
bool SameAttrs(const ir::Attrs& a, const ir::Attrs& b) {
  if (!(a == b)) return false;
  for (auto i = a.values().begin(), j = b.values().begin(); i != a.values().end(); ++i, ++j) {
    const double* x = std::get_if<double>(&i->second);
    if (x != nullptr && std::signbit(*x) != std::signbit(std::get<double>(j->second))) return false;
  }
  return true;
}

bool Same(const Binding& a, const Binding& b) {
  if (a.kind != b.kind || a.callee != b.callee || a.index != b.index || a.args.size() != b.args.size()) return false;
  for (size_t i = 0; i < a.args.size(); ++i) {
    if (!SameOperand(a.args[i], b.args[i])) return false;
  }
  return SameAttrs(a.attrs, b.attrs) && a.var->type == b.var->type;
}

class Deduplicator : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall && binding->kind != Binding::Kind::kTupleGetItem) return absl::nullopt;
    absl::InlinedVector<ir::VarPtr, 1>& candidates = seen_[HashOf(*binding)];
    for (const ir::VarPtr& candidate : candidates) {
      // One of a nested block that is done is no longer defined here.
      const Binding* def = Def(Operand(candidate));
      if (def != nullptr && Same(*def, *binding)) return {Operand(candidate)};
    }
    candidates.push_back(binding->var);
    return absl::nullopt;
  }

 private:
  absl::flat_hash_map<size_t, absl::InlinedVector<ir::VarPtr, 1>> seen_;
};

class CommonSubexpressionPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "common_subexpression"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Deduplicator().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> CommonSubexpression() { return std::make_unique<CommonSubexpressionPass>(); }

}  // namespace inlay::passes
