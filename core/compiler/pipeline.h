// Pipeline: one compile request, from a module on the wire to an Executable (ARCHITECTURE's "life of a compile
// request", steps 3 to 5 and the plan).
//
// Thread-safe: any number of requests at once. Identical ones under way at once are compiled once.
#ifndef INLAY_CORE_COMPILER_PIPELINE_H_
#define INLAY_CORE_COMPILER_PIPELINE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

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

// Loads an Executable that was compiled for this machine, has no inputs and is trusted, runs it, and returns the bytes
// of its results. Any thread.
using RunHereFn = std::function<absl::StatusOr<std::vector<std::string>>(
    const proto::Executable& executable, const std::vector<CompiledPartition>& partitions)>;

// A pass that ran, and the module after it as text.
struct PassTrace {
  std::string name;
  double millis = 0;
  std::string ir;
};

struct CompileResult {
  proto::Executable executable;
  Digest executable_digest;  // stored in the BlobStore
  proto::CompileReport report;
  std::vector<PassTrace> passes;  // where they were asked for
};

class Pipeline {
 public:
  // `measurer`: null where nothing is measured (search.mode MEASURED is then refused). `build`: identity of this
  // program.
  // `run_here`: empty where the server may not run compiled code; runtime crt is then refused for models whose weights
  // want work.
  Pipeline(CachingCompiler* compiler, Measurer* measurer, PipelineTables tables, std::string build,
           RunHereFn run_here = nullptr)
      : compiler_(compiler),
        measurer_(measurer),
        tables_(tables),
        plans_(tables.plans, std::move(build)),
        run_here_(std::move(run_here)) {}

  // INVALID_ARGUMENT: the module, naming the place. FAILED_PRECONDITION: weights that are not in the BlobStore, or a
  // target that no backend serves. UNIMPLEMENTED: what the README's table says. CANCELLED, DEADLINE_EXCEEDED.
  absl::StatusOr<CompileResult> Compile(const proto::IRModule& module, CancelToken* token, const ProgressFn& progress,
                                        bool trace_passes = false);

  // The configuration as Compile would use it, or what Compile would find wrong with it. No work is done.
  static absl::StatusOr<target::CompilationConfig> CheckConfig(const proto::CompilationConfig& config);

 private:
  absl::StatusOr<CompileResult> CompileAlone(const proto::IRModule& module, CancelToken* token,
                                             const ProgressFn& progress, bool trace_passes);
  // Pinned, out of the plan cache, or searched for.
  absl::StatusOr<collage::Cover> ChooseCover(const ir::IRModule& module, const proto::SearchOptions& options,
                                             CancelToken* token, const ProgressFn& progress,
                                             proto::CompileReport* report);
  // What FoldParams evaluates with.
  absl::StatusOr<std::vector<std::string>> Evaluate(const ir::IRModule& module, CancelToken* token,
                                                    const ProgressFn& progress);
  absl::Status Publish(CompileResult* result);

  CachingCompiler* compiler_;
  Measurer* measurer_;
  PipelineTables tables_;
  PlanCache plans_;
  const RunHereFn run_here_;
  SingleFlight<CompileResult> flights_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PIPELINE_H_
