// The worker's half of a backend over a GEMM library: descriptions in an object that calls the shim. Links LLVM.
// Any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_GEMM_CODEGEN_H_
#define INLAY_CORE_BACKENDS_COMMON_GEMM_CODEGEN_H_

#include <string>

#include "core/backend/backend.h"
#include "core/backends/common/gemm_backend.h"

namespace inlay::backends {

class GemmCodegen : public backend::BackendCodegen {
 public:
  // library_id: version and digest of the library that is linked into artifacts.
  GemmCodegen(const GemmLibrary& library, const std::string& library_id) : library_(library), library_id_(library_id) {}
  std::string name() const override { return library_.name; }
  std::string version() const override;
  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override;

 private:
  GemmLibrary library_;
  std::string library_id_;
};

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_GEMM_CODEGEN_H_
