// Pass: one rewrite of a module that keeps its meaning. One pass a file; its header comment shows the IR before and
// after.
//
// A pass gets a module that the verifier accepts and returns one. It never looks at a weight's digest or data. Passes
// are stateless: any thread.
#ifndef INLAY_CORE_PASSES_PASS_H_
#define INLAY_CORE_PASSES_PASS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"
#include "core/target/compilation_config.h"

namespace inlay::passes {

class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string name() const = 0;
  // The lowest config.opt_level at which it runs; 0: always (what follows relies on it).
  virtual int min_opt_level() const { return 1; }
  virtual absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig& config) const = 0;
};
using PassPtr = std::unique_ptr<const Pass>;

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASS_H_
