// PassManager: runs passes in order, and the pipeline that every module goes through.
#ifndef INLAY_CORE_PASSES_PASS_MANAGER_H_
#define INLAY_CORE_PASSES_PASS_MANAGER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/passes/pass.h"

namespace inlay::passes {

class PassManager {
 public:
  struct Timing {
    std::string pass;
    absl::Duration time;
  };
  // Called after each pass (to dump the IR, to count).
  using Instrument = std::function<void(const Pass& pass, const ir::IRModule& after)>;

  void Add(PassPtr pass) { passes_.push_back(std::move(pass)); }
  void set_instrument(Instrument instrument) { instrument_ = std::move(instrument); }

  // Skips what config.disabled_passes names and what config.opt_level is too low for (but never min_opt_level() == 0).
  // An error is annotated with the pass's name.
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module);

  std::vector<std::string> names() const;
  const std::vector<Timing>& timings() const { return timings_; }  // of the last Run

 private:
  std::vector<PassPtr> passes_;
  Instrument instrument_;
  std::vector<Timing> timings_;
};

// Normalisation (core/README.md, point 1).
PassManager BuildNormalisePipeline(const target::CompilationConfig& config);

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASS_MANAGER_H_
