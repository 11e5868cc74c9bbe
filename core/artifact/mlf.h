// Model Library Format: a compiled model as a .tar of C sources (or objects), for a target whose compiler and linker
// its user has: a micro controller, another architecture. core/artifact/MLF.md says what is in it.
//
// The entry point is made from the ExecutionPlan: straight calls with static offsets, no heap, nothing interpreted.
// Thread-safe; the same inputs give the same bytes.
#ifndef INLAY_CORE_ARTIFACT_MLF_H_
#define INLAY_CORE_ARTIFACT_MLF_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/artifact/param_source.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

struct MlfRequest {
  std::vector<const proto::StaticLibrary*> libraries;
  const runtime::ExecutionPlan* plan = nullptr;
  std::vector<proto::ParamRef> params;  // in the plan's order
  ParamSource param_source;
  std::string model_name = "default";  // letters, digits, '_': in every name of the generated code
  std::string ir_text;                 // src/relax.txt
  std::vector<std::string> targets;    // as text, for metadata.json
  bool c_interface = false;            // interface_api=c: structs of pointers; else one array of pointers ("packed")
  bool unpacked_api = false;           // kernels are called with plain pointers; else through an array of them
  bool system_lib = false;             // registers the functions by name
  int workspace_alignment = 16;
  std::string output;  // path of the tar; replaced atomically
};

// INVALID_ARGUMENT: the model's name, or a parameter's bytes. FAILED_PRECONDITION: a StaticLibrary that does not pass
// CheckStaticLibraries. UNIMPLEMENTED: what the entry point can't do (naming the function).
absl::Status WriteModelLibrary(const MlfRequest& request);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MLF_H_
