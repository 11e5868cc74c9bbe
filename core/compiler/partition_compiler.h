// PartitionCompiler: runs a CompileAction. Implemented by the worker pool (server/worker) and, for tests, in process.
#ifndef INLAY_CORE_COMPILER_PARTITION_COMPILER_H_
#define INLAY_CORE_COMPILER_PARTITION_COMPILER_H_

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "proto/artifact.pb.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

class PartitionCompiler {
 public:
  virtual ~PartitionCompiler() = default;
  // Blocks. Any thread, several at once; at most parallelism() of them make progress at a time.
  virtual absl::StatusOr<proto::StaticLibrary> Compile(const proto::CompileAction& action, CancelToken* token) = 0;
  virtual int parallelism() const = 0;
  // Of a backend's code generation; NOT_FOUND where no worker has it.
  virtual absl::StatusOr<std::string> BackendVersion(const std::string& backend) = 0;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PARTITION_COMPILER_H_
