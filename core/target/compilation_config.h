// CompilationConfig: the whole configuration of one compilation, checked and completed in one place (FromProto).
#ifndef INLAY_CORE_TARGET_COMPILATION_CONFIG_H_
#define INLAY_CORE_TARGET_COMPILATION_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/target/target.h"

namespace inlay::proto {
class CompilationConfig;
}

namespace inlay::target {

enum class ExecutorKind { kGraph, kAot, kVm };
enum class RuntimeKind { kCpp, kCrt };
enum class SearchMode { kNone, kAnalytic, kMeasured };

struct CompilationConfig {
  Target target_host;
  std::vector<Target> targets;  // [0] is the device; others are external codegen targets, by backend name
  ExecutorKind executor = ExecutorKind::kGraph;
  RuntimeKind runtime = RuntimeKind::kCpp;
  bool link_params = true;
  SearchMode search_mode = SearchMode::kAnalytic;
  std::vector<std::string> backends;  // empty: all
  int opt_level = 3;
  std::vector<std::string> disabled_passes;
  int num_threads = 0;

  static CompilationConfig Default();  // llvm, x86-64-v3
  // Completes the targets, checks every combination; INVALID_ARGUMENT says which two fields disagree, UNIMPLEMENTED
  // what is not there yet.
  static absl::StatusOr<CompilationConfig> FromProto(const proto::CompilationConfig& proto);
  proto::CompilationConfig ToProto() const;

  const Target& target() const { return targets[0]; }
  // The external codegen target of a backend, or one without attributes.
  Target CodegenTarget(const std::string& backend) const;
  bool ShouldLinkParams() const { return link_params; }
};

}  // namespace inlay::target

#endif  // INLAY_CORE_TARGET_COMPILATION_CONFIG_H_
