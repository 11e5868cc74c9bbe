// What is made wider (bf16 to f32, bool to f32) for several pointwise operators is so by each of them: a cast is an
// instruction that they do in passing, where one for all would have the wider value written to memory and read from it.
//
//   %1: f32 = cast(%0: bf16)               %1: f32 = cast(%0)
//   %2: f32 = relu(%1)          becomes    %2: f32 = relu(%1)
//   %3: f32 = add(%1, %x)                  %3: f32 = cast(%0)
//                                          %4: f32 = add(%3, %x)
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;

class Widener : public Rewriter {
 public:
  Widener() : Rewriter(/*counts_uses=*/true) {}

 protected:
  Replacement Visit(Binding* binding) override {
    if (!IsPointwise(*binding)) return absl::nullopt;
    absl::flat_hash_map<const ir::Var*, Operand> widened;  // for this reader
    for (Operand& arg : binding->args) {
      const ir::Var* wide = arg.var.get();
      const Binding* cast = DefCall(arg, "cast");
      if (cast == nullptr || HasOneUse(arg) || !Widens(*cast)) continue;
      // The first reader has the one that there is.
      if (first_reader_.emplace(wide, binding->var.get()).first->second == binding->var.get()) continue;
      if (widened.count(wide) == 0) {
        INLAY_ASSIGN_OR_RETURN(const Operand own, Call("cast", cast->args, cast->attrs));
        widened.emplace(wide, own);
      }
      arg = widened.at(wide);
    }
    return absl::nullopt;
  }

 private:
  static bool Widens(const Binding& cast) {
    return ir::ByteSize(cast.args[0].tensor_type().dtype) < ir::ByteSize(cast.var->type.tensor().dtype);
  }

  absl::flat_hash_map<const ir::Var*, const ir::Var*> first_reader_;  // of a cast, and what that makes
};

class WidenAtReadersPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "widen_at_readers"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Widener().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> WidenAtReaders() { return std::make_unique<WidenAtReadersPass>(); }

}  // namespace inlay::passes
