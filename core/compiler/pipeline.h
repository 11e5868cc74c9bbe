// Pipeline: one compile request, from a module on the wire to an Executable (ARCHITECTURE's "life of a compile
// request", steps 3 to 5 and the plan).
//
// Thread-safe: any number of requests at once. Identical ones under way at once are compiled once.
#ifndef INLAY_CORE_COMPILER_PIPELINE_H_
#define INLAY_CORE_COMPILER_PIPELINE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/cache/blob_store.h"
#include "core/cache/key_value_table.h"
#include "core/collage/cover.h"
#include "core/compiler/caching_compiler.h"
#include "core/compiler/measurer.h"
#include "core/compiler/plan_cache.h"
#include "core/compiler/progress.h"
#include "core/compiler/single_flight.h"
#include "proto/artifact.pb.h"
#include "proto/ir.pb.h"

namespace inlay::compiler {

// What a Pipeline keeps besides blobs and actions. None is owned; all outlive it.
struct PipelineTables {
  // The digests of the Executables that pipelines on this cache made. Nobody else writes to it: a client may put any
  // blob into the BlobStore, so this alone tells an Executable whose code may be loaded.
  cache::KeyValueTable* published = nullptr;
  cache::KeyValueTable* plans = nullptr;  // PlanCache's
  cache::KeyValueTable* costs = nullptr;  // the cost table: what candidates took where they were measured
};

struct CompileResult {
  proto::Executable executable;
  Digest executable_digest;  // stored in the BlobStore
  proto::CompileReport report;
};

class Pipeline {
 public:
  // `measurer`: null where nothing is measured (search.mode MEASURED is then refused). `build`: identity of this
  // program.
  Pipeline(CachingCompiler* compiler, Measurer* measurer, PipelineTables tables, std::string build)
      : compiler_(compiler), measurer_(measurer), tables_(tables), plans_(tables.plans, std::move(build)) {}

  // INVALID_ARGUMENT: the module, naming the place. FAILED_PRECONDITION: weights that are not in the BlobStore, or a
  // target that no backend serves. UNIMPLEMENTED: what the README's table says. CANCELLED, DEADLINE_EXCEEDED.
  absl::StatusOr<CompileResult> Compile(const proto::IRModule& module, CancelToken* token, const ProgressFn& progress);

 private:
  absl::StatusOr<CompileResult> CompileAlone(const proto::IRModule& module, CancelToken* token,
                                             const ProgressFn& progress);
  // Pinned, out of the plan cache, or searched for.
  absl::StatusOr<collage::Cover> ChooseCover(const ir::IRModule& module, const proto::SearchOptions& options,
                                             CancelToken* token, const ProgressFn& progress,
                                             proto::CompileReport* report);
  absl::Status Publish(CompileResult* result);

  CachingCompiler* compiler_;
  Measurer* measurer_;
  PipelineTables tables_;
  PlanCache plans_;
  SingleFlight<CompileResult> flights_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PIPELINE_H_
