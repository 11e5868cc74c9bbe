// Pass: one step of normalisation. Stateless: one object may run on several modules, from several threads.
#ifndef INLAY_CORE_PASSES_PASS_H_
#define INLAY_CORE_PASSES_PASS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/ir/ir_module.h"

namespace inlay::passes {

class Pass {
 public:
  virtual ~Pass() = default;

  // In lower_snake_case, the name of its file: what CompilationConfig.passes.disabled_passes holds.
  virtual absl::string_view name() const = 0;
  // Runs from this optimisation level on. 0: later stages rely on what it does, and it can't be disabled.
  virtual int min_opt_level() const { return 1; }
  // A module that Verify accepts gives one that Verify accepts and that computes the same.
  virtual absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig& config) const = 0;
};

// A pass that looks at one function at a time.
class FunctionPass : public Pass {
 public:
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig& config) const final;

 protected:
  virtual absl::StatusOr<ir::Function> RunOnFunction(ir::Function function,
                                                     const target::CompilationConfig& config) const = 0;
};

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASS_H_
