// PassManager: runs passes in order, by the config's optimisation level and list of disabled passes, and times them.
//
//   PassManager passes = BuildNormalisePipeline(module.config());
//   INLAY_ASSIGN_OR_RETURN(module, passes.Run(std::move(module)));
//
// Not thread-safe: one manager a request (passes themselves are stateless and cheap to make).
#ifndef INLAY_CORE_PASSES_PASS_MANAGER_H_
#define INLAY_CORE_PASSES_PASS_MANAGER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/passes/pass.h"

namespace inlay::passes {

struct PassTiming {
  std::string name;
  double millis = 0;
};

class PassManager {
 public:
  explicit PassManager(target::CompilationConfig config) : config_(std::move(config)) {}

  void Add(std::unique_ptr<Pass> pass) { passes_.push_back(std::move(pass)); }

  // INVALID_ARGUMENT where the config disables a pass that there is not, or that can't be disabled.
  absl::Status CheckConfig() const;
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module);

  // Called after each pass that ran ("inlay compile --dump-ir").
  void set_dump(std::function<void(const PassTiming& pass, const ir::IRModule& module)> dump) {
    dump_ = std::move(dump);
  }
  // Verifies after each pass, so that a message names the pass that broke the module. For tests: costs time.
  void set_verify_each(bool on) { verify_each_ = on; }

  const std::vector<PassTiming>& timings() const { return timings_; }  // of the last Run
  std::vector<const Pass*> DistinctPasses() const;                     // by name, in order

 private:
  bool Enabled(const Pass& pass) const;

  target::CompilationConfig config_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::function<void(const PassTiming&, const ir::IRModule&)> dump_;
  bool verify_each_ = false;
  std::vector<PassTiming> timings_;
};

// What core/README.md calls a normalised module comes out of this.
PassManager BuildNormalisePipeline(const target::CompilationConfig& config);

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASS_MANAGER_H_
