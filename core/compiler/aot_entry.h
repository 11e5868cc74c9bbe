// Executor aot: an Executable's run steps compiled into one function (core/runtime/aot/ENTRY.md), by an action as any
// other: run by a worker, cached by its key, which is the plan without names.
#ifndef INLAY_CORE_COMPILER_AOT_ENTRY_H_
#define INLAY_CORE_COMPILER_AOT_ENTRY_H_

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/compiler/caching_compiler.h"
#include "core/target/compilation_config.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

// Adds the entry's StaticLibrary to the executable and names it in its plan.
absl::StatusOr<CompiledPartition> AddAotEntry(const target::CompilationConfig& config, CachingCompiler* compiler,
                                              CancelToken* token, proto::Executable* executable);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_AOT_ENTRY_H_
