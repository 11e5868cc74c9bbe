// CompilationConfig: the whole configuration of one compilation, checked and completed in one place (FromProto). Plain
// value; every IRModule has one (ir::IRModule::config), so no pass needs to ask whether it is there.
#ifndef INLAY_CORE_TARGET_COMPILATION_CONFIG_H_
#define INLAY_CORE_TARGET_COMPILATION_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/target/target.h"

namespace inlay::proto {
class CompilationConfig;
}

namespace inlay::target {

enum class ExecutorKind { kGraph, kAot, kVm };
enum class InterfaceApi { kPacked, kC };
enum class RuntimeKind { kCpp, kCrt };
enum class SearchMode { kNone, kAnalytic, kMeasured };

struct Executor {
  ExecutorKind kind = ExecutorKind::kGraph;
  InterfaceApi interface_api = InterfaceApi::kPacked;  // kAot
  bool unpacked_api = false;                           // kAot
  int workspace_byte_alignment = 64;
};

struct Runtime {
  RuntimeKind kind = RuntimeKind::kCpp;
  bool system_lib = false;  // kCrt
};

struct CompilationConfig {
  Target target_host;
  std::vector<Target> targets;  // [0] is the device; others are external codegen targets, by backend name
  Executor executor;
  Runtime runtime;
  bool link_params = true;
  SearchMode search_mode = SearchMode::kAnalytic;
  std::vector<std::string> backends;  // empty: all
  // What estimates take the dimensions for that a model leaves open (executor vm); those not named: kDefaultDimHint.
  std::map<std::string, int64_t> dim_hints;
  int opt_level = 3;
  std::vector<std::string> disabled_passes;
  std::string mixed_precision;  // of products: "bf16", or as the model says
  int num_threads = 0;

  static CompilationConfig Default();                         // llvm, x86-64-v3
  static CompilationConfig FromTarget(const Target& target);  // a completed device, the rest by default
  // Completes the targets, the host among them; checks every combination. INVALID_ARGUMENT says which two fields
  // disagree, UNIMPLEMENTED what is not there yet.
  static absl::StatusOr<CompilationConfig> FromProto(const proto::CompilationConfig& proto);
  proto::CompilationConfig ToProto() const;

  const Target& target() const { return targets[0]; }
  // The external codegen target of a backend ("onednn"), or of another variant of it ("onednn#2": the second target of
  // that kind); one without attributes where there is none.
  Target CodegenTarget(const std::string& variant) const;
  int NumVariants(const std::string& backend) const;  // codegen targets of that kind; at least 1
  bool ShouldLinkParams() const { return link_params; }
  static constexpr int64_t kDefaultDimHint = 64;
  int64_t DimHint(const std::string& name, int64_t missing = kDefaultDimHint) const {
    const auto it = dim_hints.find(name);
    return it == dim_hints.end() ? missing : it->second;
  }
};

// "onednn" and 2 <-> "onednn#2"; the first is "onednn" itself.
std::string VariantName(const std::string& backend, int variant);
std::string BackendOfVariant(const std::string& name);

}  // namespace inlay::target

#endif  // INLAY_CORE_TARGET_COMPILATION_CONFIG_H_
