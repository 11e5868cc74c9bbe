// A PartitionCompiler that runs codegen in this process: for tests. The daemon never does (a backend's crash would be
// its own); it uses the worker pool.
#ifndef INLAY_CORE_COMPILER_IN_PROCESS_COMPILER_H_
#define INLAY_CORE_COMPILER_IN_PROCESS_COMPILER_H_

#include <atomic>
#include <string>

#include "core/compiler/partition_compiler.h"

namespace inlay::compiler {

class InProcessCompiler : public PartitionCompiler {
 public:
  explicit InProcessCompiler(std::string scratch_dir) : scratch_dir_(std::move(scratch_dir)) {}

  absl::StatusOr<proto::StaticLibrary> Compile(const proto::CompileAction& action, CancelToken* token) override;
  int parallelism() const override { return 1; }
  absl::StatusOr<std::string> BackendVersion(const std::string& backend) override;

  int actions_run() const { return actions_run_; }
  // What a changed backend looks like: the versions that BackendVersion answers end in this.
  void set_version_suffix(std::string suffix) { version_suffix_ = std::move(suffix); }

 private:
  std::string scratch_dir_;
  std::string version_suffix_;
  std::atomic<int> actions_run_{0};
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_IN_PROCESS_COMPILER_H_
