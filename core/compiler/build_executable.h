// From a module that is cut into partitions to an Executable: its actions, their StaticLibraries, the plan.
#ifndef INLAY_CORE_COMPILER_BUILD_EXECUTABLE_H_
#define INLAY_CORE_COMPILER_BUILD_EXECUTABLE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/collage/partitioner.h"
#include "core/compiler/caching_compiler.h"
#include "core/compiler/progress.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

// One for each partition, in the order of `partitioned.partitions`.
absl::StatusOr<std::vector<Action>> MakeActions(const collage::Partitioned& partitioned, PartitionCompiler* compiler);

// Out of the cache, else compiled, on as many threads as the workers can make use of. The first action that fails fails
// the call, and no further one is started.
absl::StatusOr<std::vector<CompiledPartition>> CompileActions(const std::vector<Action>& actions,
                                                              CachingCompiler* compiler, CancelToken* token,
                                                              const ProgressFn& progress);

// The same, where one that fails is no reason not to go on with the others.
std::vector<absl::StatusOr<CompiledPartition>> CompileEachAction(const std::vector<Action>& actions,
                                                                 CachingCompiler* compiler, CancelToken* token,
                                                                 const ProgressFn& progress);

// `compiled`: of each partition, as CompileActions gives them.
absl::StatusOr<proto::Executable> BuildExecutable(const collage::Partitioned& partitioned,
                                                  const std::vector<CompiledPartition>& compiled);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_BUILD_EXECUTABLE_H_
