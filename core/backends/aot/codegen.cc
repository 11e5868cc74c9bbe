// The worker's code generation of executor aot: a plan becomes an object with one function. It claims no part of a
// model, so it has no Backend.
#include "absl/strings/str_cat.h"
#include "core/artifact/aot_entry.h"
#include "core/backend/backend.h"
#include "core/backends/aot/entry_object.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/base/status_macros.h"

namespace inlay::aot {
namespace {

void AddTypes(const std::vector<runtime::NamedTensor>& tensors,
              google::protobuf::RepeatedPtrField<proto::TensorType>* types) {
  for (const runtime::NamedTensor& tensor : tensors) {
    proto::TensorType* type = types->Add();
    type->set_dtype(static_cast<proto::DType>(tensor.type.dtype));
    for (int64_t extent : tensor.type.shape) type->add_dims()->set_value(extent);
  }
}

class AotCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "aot"; }
  std::string version() const override { return absl::StrCat("aot 1, worker ", backends::ExecutableBuildId()); }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(request.entry_plan);
    if (!plan.ok()) return absl::InvalidArgumentError(plan.status().message());
    const std::string symbol = artifact::EntrySymbol(request.entry_plan);
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    proto::PrimitiveFunction* primitive = manifest->add_functions();
    primitive->set_symbol(symbol);
    AddTypes(plan->inputs, primitive->mutable_inputs());
    AddTypes(plan->outputs, primitive->mutable_outputs());
    primitive->set_workspace_bytes(plan->arena_bytes);
    backends::FillManifest(name(), version(), request.target, manifest);
    manifest->set_target_features("");  // calls only
    std::vector<bool> called(plan->functions.size());
    for (const runtime::Step& step : plan->run_steps) {
      if (step.function >= 0) called[step.function] = true;
    }
    for (size_t i = 0; i < called.size(); ++i) {
      if (called[i]) manifest->add_calls(plan->functions[i].symbol);
    }
    INLAY_ASSIGN_OR_RETURN(std::string object, EmitEntryObject(symbol, *plan, request.target));
    proto::ObjectFile* file = library.add_objects();
    file->set_name("entry.o");
    file->set_data(std::move(object));
    return library;
  }
};

INLAY_REGISTER_CODEGEN(AotCodegen);

}  // namespace
}  // namespace inlay::aot
