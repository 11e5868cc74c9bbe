// FunctionTable: which manifest implements which primitive function.
#ifndef INLAY_CORE_ARTIFACT_FUNCTION_TABLE_H_
#define INLAY_CORE_ARTIFACT_FUNCTION_TABLE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/ir/ir_module.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

class FunctionTable {
 public:
  // FAILED_PRECONDITION: a function implemented twice, or whose entry contradicts itself. Keeps pointers into
  // `manifests`.
  static absl::StatusOr<FunctionTable> Make(absl::Span<const proto::StaticLibraryManifest> manifests);

  // The implementation of `symbol`, which must have the partition function's signature. FAILED_PRECONDITION, naming the
  // symbol, otherwise.
  absl::StatusOr<const proto::PrimitiveFunction*> Find(const std::string& symbol, const ir::Function& partition) const;

 private:
  struct Entry {
    const proto::PrimitiveFunction* function;
    const proto::StaticLibraryManifest* manifest;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_FUNCTION_TABLE_H_
