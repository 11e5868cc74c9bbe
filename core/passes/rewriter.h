// Rewriter: what passes derive that replace single bindings, in one walk over a function.
//
// The walk goes in execution order and builds a new list of bindings. For each binding, its operands already replaced,
// Visit may append bindings before it (Call), change it, or name an operand that stands for its value from now on.
// Nested blocks are walked too, before the binding that holds them. One Rewriter serves one function.
#ifndef INLAY_CORE_PASSES_REWRITER_H_
#define INLAY_CORE_PASSES_REWRITER_H_

#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/ir/ir_module.h"

namespace inlay::passes {

class Rewriter {
 public:
  virtual ~Rewriter() = default;
  absl::StatusOr<ir::Function> Run(ir::Function function);

 protected:
  // Whether the pass asks for NumUses; counting costs a walk.
  explicit Rewriter(bool counts_uses = false) : counts_uses_(counts_uses) {}

  using Replacement = absl::StatusOr<absl::optional<ir::Operand>>;

  // nullopt: the binding, as it is now, is appended. Otherwise it is dropped, and its Var becomes that operand, which
  // must have the same type. Called on every kind of binding.
  virtual Replacement Visit(ir::Binding* binding) = 0;

  // Appends a call. Its location is that of the binding that is visited.
  absl::StatusOr<ir::Operand> Call(absl::string_view op, std::vector<ir::Operand> args, ir::Attrs attrs = {});

  // The same of a reshape to `dims`, of which some may be open.
  absl::StatusOr<ir::Operand> Reshape(const ir::Operand& x, const std::vector<ir::Dim>& dims);

  // Appends the tuple's item.
  ir::Operand Item(const ir::Operand& tuple, int index);

  // What defines an operand, among what has been appended so far; nullptr: a parameter or a constant.
  const ir::Binding* Def(const ir::Operand& operand) const;
  // The same where it is a call of `op`.
  const ir::Binding* DefCall(const ir::Operand& operand, absl::string_view op) const;
  // The same where it is a value times, or by, one of rank 0.
  const ir::Binding* DefScaling(const ir::Operand& operand) const;
  // Uses in the function before the walk; of a value that the walk added, those of the one that it replaced.
  int NumUses(const ir::Operand& operand) const;
  // Whether it is a call whose elements are each of those at their place, broadcast perhaps.
  static bool IsPointwise(const ir::Binding& binding);
  bool HasOneUse(const ir::Operand& operand) const { return NumUses(operand) == 1; }

 private:
  // A block under way. Bindings that stay are not moved until it is done, nor are new ones: addresses hold. Most passes
  // change little, and a block in which nothing is new or dropped is not copied at all.
  struct Edits {
    struct New {
      size_t before;  // index of the binding that was visited
      ir::Binding binding;
    };
    std::deque<New> added;
    std::vector<bool> dropped;
    bool any_dropped = false;
    size_t at = 0;
  };

  absl::Status Walk(ir::Block* block);
  ir::Operand AppendBinding(ir::Binding binding);
  static void Apply(Edits* edits, std::vector<ir::Binding>* bindings);
  ir::Operand Replaced(const ir::Operand& operand) const;
  void CountUses(const ir::Block& block);

  const bool counts_uses_;
  Edits* edits_ = nullptr;
  const ir::Binding* visited_ = nullptr;
  absl::flat_hash_map<const ir::Var*, ir::Operand> replaced_;
  absl::flat_hash_map<const ir::Var*, const ir::Binding*> defs_;
  absl::flat_hash_map<const ir::Var*, int> uses_;
};

// One that knows what depends on constants alone, weights among them.
class ConstantsRewriter : public Rewriter {
 protected:
  ConstantsRewriter() : Rewriter(/*counts_uses=*/true) {}

  bool IsConstant(const ir::Operand& operand) const {
    return operand.constant != nullptr || constants_.contains(operand.var.get());
  }
  // Whether a binding that is visited is such, and remembers it.
  bool VisitConstant(const ir::Binding& binding);
  // Of constants.
  absl::StatusOr<ir::Operand> CallConstant(absl::string_view op, std::vector<ir::Operand> args, ir::Attrs attrs = {});
  // A constant that is broadcast to images of that type as one value a channel, of `shape`, which has as many elements;
  // nullopt where it varies along another axis.
  Replacement PerChannel(const ir::Operand& factor, const ir::TensorType& images, const std::vector<int64_t>& shape);

 private:
  absl::flat_hash_set<const ir::Var*> constants_;
};

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_REWRITER_H_
