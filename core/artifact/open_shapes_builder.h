// OpenShapesBuilder: from the symbols in a module's types to shape registers and extents (core/runtime/open_shapes.h).
#ifndef INLAY_CORE_ARTIFACT_OPEN_SHAPES_BUILDER_H_
#define INLAY_CORE_ARTIFACT_OPEN_SHAPES_BUILDER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/dim_expr.h"
#include "core/ir/ir_module.h"
#include "core/runtime/open_shapes.h"

namespace inlay::artifact {

class OpenShapesBuilder {
 public:
  // Once, before all else. A name is found where an input's dimension is that name, or a multiple of it plus what is
  // known by then.
  absl::Status AddInputs(const std::vector<ir::VarPtr>& inputs);

  // INVALID_ARGUMENT: no input has a name that it depends on.
  absl::StatusOr<int64_t> ExtentOf(const ir::Dim& dim);         // an index into extents
  absl::StatusOr<int32_t> RegisterOf(const std::string& name);  // of a name or an opaque part
  absl::StatusOr<runtime::TensorType> TypeOf(const ir::TensorType& type);

  const std::string& NameOf(int64_t extent) const { return shapes_.extents[extent].name; }
  runtime::OpenShapes Take() { return std::move(shapes_); }

 private:
  absl::StatusOr<runtime::ExtentSum> SumOf(const std::vector<ir::DimTerm>& terms);
  absl::StatusOr<bool> Bind(int64_t input, int64_t axis, const ir::Dim& dim, bool opaque);

  runtime::OpenShapes shapes_;
  std::map<std::string, int32_t> registers_;
  std::map<std::string, int64_t> extents_;
};

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_OPEN_SHAPES_BUILDER_H_
