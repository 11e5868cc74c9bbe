// LoadedModule: an Executable loaded into this process. Its code (JitCode), its parameters, and a graph executor.
//
// Run may be called from any threads at once. Destroying waits for nobody: the owner makes sure that no Run is under
// way (hold it by shared_ptr).
#ifndef INLAY_CORE_JIT_LOADED_MODULE_H_
#define INLAY_CORE_JIT_LOADED_MODULE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/digest.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::jit {

// Bytes of a blob that stay where they are as long as `owner` lives (a mapped file). Their digest has been verified by
// whoever gives them.
struct ParamBytes {
  absl::string_view data;
  std::shared_ptr<const void> owner;
};

class LoadedModule {
 public:
  struct Options {
    int num_threads = 0;  // 0: the plan's default
  };
  // Params are asked for by digest, one after the other, and let go after load where the plan says that no run reads
  // them. Errors: FAILED_PRECONDITION (StaticLibrary or CPU), INVALID_ARGUMENT (plan, params), a kernel's own.
  static absl::StatusOr<std::unique_ptr<LoadedModule>> Load(
      absl::string_view plan_json, const std::vector<const proto::StaticLibrary*>& libraries,
      absl::Span<const proto::ParamRef> params,
      const std::function<absl::StatusOr<ParamBytes>(const Digest&)>& get_param, Options options);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const std::vector<runtime::NamedTensor>& inputs() const;
  const std::vector<runtime::NamedTensor>& outputs() const;
  const std::vector<int32_t>& updates() const;  // ExecutionPlan::updates
  const runtime::OpenShapes& shapes() const;    // not empty: what of these is open

  // Dense row-major data, one pointer an input and an output, of the sizes that inputs() and outputs() say; no output
  // overlaps anything else.
  // CANCELLED where `stop`, which loops ask at every turn, says so (may be empty). `values`: of shapes(), as
  // runtime::CallTypes finds them.
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   const std::function<bool()>& stop = {}, const runtime::ShapeValues* values = nullptr) const;

  // Code, constants, packed weights, parameters that are kept, and the arenas that exist now.
  int64_t memory_bytes() const;

 private:
  struct Impl;
  explicit LoadedModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::jit

#endif  // INLAY_CORE_JIT_LOADED_MODULE_H_
