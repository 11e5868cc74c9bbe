// Links StaticLibraries, a plan and (where wanted) the parameters into a shared library with the tvm-ffi ABI.
// core/artifact/FORMAT.md says what is in it.
//
// ld.lld runs as a child process in a private directory; the same inputs give the same bytes. Thread-safe: several
// links may run at once.
#ifndef INLAY_CORE_ARTIFACT_LINKER_H_
#define INLAY_CORE_ARTIFACT_LINKER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/param_source.h"
#include "core/base/cancellation.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

// What a link needs of the machine; found once.
struct LinkToolchain {
  std::string lld;                        // ld.lld, version 19
  std::vector<std::string> runtime_dirs;  // hold libinlay_artifact_runtime.a and lib<component>_runtime.a
  std::vector<std::string> library_dirs;  // shared libraries by soname: libtvm_ffi.so, libgomp.so.1, libdnnl.so.3
  std::string crti, crtn, crt_begin, crt_end;
  std::vector<std::string> static_archives;  // libstdc++.a libgcc.a libgcc_eh.a
};

// `runtime_dirs` and `library_dirs` are searched in order; then the compiler's own. NOT_FOUND names what is missing.
absl::StatusOr<LinkToolchain> FindLinkToolchain(std::vector<std::string> runtime_dirs,
                                                std::vector<std::string> library_dirs);

struct LinkRequest {
  std::vector<const proto::StaticLibrary*> libraries;
  const runtime::ExecutionPlan* plan = nullptr;
  std::vector<proto::ParamRef> params;  // in the plan's order
  ParamSource param_source;             // may be empty where there are no params
  bool link_params = true;
  bool c_interface = false;                      // inlay_model_run and its like are exported too
  std::vector<const proto::ObjectFile*> addons;  // of a user's own; what is checked of them is that they are objects
  std::string output;                            // path of the library; replaced atomically
  const CancelToken* cancel = nullptr;           // may be null
};

struct LinkResult {
  std::vector<proto::RequiredLibrary> required_libraries;
  std::vector<std::string> linked_packages;  // of the StaticLibraries' manifests
  std::string params_path;  // "<output>.safetensors" where the parameters lie beside the library, else ""
};

// INVALID_ARGUMENT where an addon is no relocatable object of the target. FAILED_PRECONDITION where a StaticLibrary
// does not pass CheckStaticLibraries or the linker refuses (its message is in the error); INVALID_ARGUMENT where a
// parameter's bytes are not those of its digest and type.
absl::StatusOr<LinkResult> LinkLibrary(const LinkToolchain& toolchain, const LinkRequest& request);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_LINKER_H_
