// Pipeline: one compile request, from a module on the wire to an Executable (ARCHITECTURE's "life of a compile
// request", steps 3 to 5 and the plan).
//
// Thread-safe: any number of requests at once. Identical ones under way at once are compiled once.
#ifndef INLAY_CORE_COMPILER_PIPELINE_H_
#define INLAY_CORE_COMPILER_PIPELINE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/cache/blob_store.h"
#include "core/cache/key_value_table.h"
#include "core/compiler/caching_compiler.h"
#include "core/compiler/single_flight.h"
#include "proto/artifact.pb.h"
#include "proto/ir.pb.h"

namespace inlay::compiler {

struct Progress {
  std::string phase;
  int done = 0;
  int total = 0;
  std::string detail;
};
// Called in the thread of Compile, one at a time.
using ProgressFn = std::function<void(const Progress&)>;

// What a Pipeline keeps besides blobs and actions. None is owned; all outlive it.
struct PipelineTables {
  // The digests of the Executables that pipelines on this cache made. Nobody else writes to it: a client may put any
  // blob into the BlobStore, so this alone tells an Executable whose code may be loaded.
  cache::KeyValueTable* published = nullptr;
};

struct CompileResult {
  proto::Executable executable;
  Digest executable_digest;  // stored in the BlobStore
  proto::CompileReport report;
};

class Pipeline {
 public:
  Pipeline(CachingCompiler* compiler, PipelineTables tables) : compiler_(compiler), tables_(tables) {}

  // INVALID_ARGUMENT: the module, naming the place. FAILED_PRECONDITION: weights that are not in the BlobStore, or a
  // target that no backend serves. UNIMPLEMENTED: what the README's table says. CANCELLED, DEADLINE_EXCEEDED.
  absl::StatusOr<CompileResult> Compile(const proto::IRModule& module, CancelToken* token, const ProgressFn& progress);

 private:
  absl::StatusOr<CompileResult> CompileAlone(const proto::IRModule& module, CancelToken* token,
                                             const ProgressFn& progress);
  absl::Status Publish(CompileResult* result);

  CachingCompiler* compiler_;
  PipelineTables tables_;
  SingleFlight<CompileResult> flights_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PIPELINE_H_
