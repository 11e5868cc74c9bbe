// FoldParams: does at compile time what depends on weights alone.
//
// A runtime without a loader has no moment at which transform_params could run: its results become weights of the
// model, made on the server's own CPU. They are new blobs in the BlobStore, so what follows sees weights like any
// other.
#ifndef INLAY_CORE_COMPILER_FOLD_PARAMS_H_
#define INLAY_CORE_COMPILER_FOLD_PARAMS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cache/blob_store.h"
#include "core/ir/ir_module.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

// Compiles a module without inputs for this machine, runs it, and returns the bytes of its results.
using EvaluateFn = std::function<absl::StatusOr<std::vector<std::string>>(const ir::IRModule& module)>;

// transform_params alone, as "main" of a module for this machine.
ir::IRModule TransformParamsAlone(const ir::IRModule& module);

// `module` with the results of its transform_params as weights, and without it; as it is where it has none.
absl::StatusOr<ir::IRModule> FoldParams(ir::IRModule module, cache::BlobStore* blobs, const EvaluateFn& evaluate);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_FOLD_PARAMS_H_
