// Runs a CompileAction with the code generation that is linked into this process: what a worker does with a request.
#ifndef INLAY_CORE_BACKEND_RUN_ACTION_H_
#define INLAY_CORE_BACKEND_RUN_ACTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "proto/artifact.pb.h"
#include "proto/worker.pb.h"

namespace inlay::backend {

// INVALID_ARGUMENT: the action (its module, its targets), naming the place. NOT_FOUND: no such backend here.
// FAILED_PRECONDITION: another version of the backend, or of the kernel ABI. Else what Codegen answers; INTERNAL where
// its manifest is not that of the action. `scratch_dir` is private to the action and exists.
absl::StatusOr<proto::StaticLibrary> RunAction(const proto::CompileAction& action, const std::string& scratch_dir);

}  // namespace inlay::backend

#endif  // INLAY_CORE_BACKEND_RUN_ACTION_H_
