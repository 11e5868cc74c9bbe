#include "core/jit/loaded_module.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/jit/orc_jit.h"
#include "core/runtime/executor.h"

namespace inlay::jit {
namespace {

absl::Status ToAbsl(const runtime::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

absl::StatusOr<std::vector<runtime::FunctionPointers>> LookUpFunctions(const JitCode& code,
                                                                       const runtime::ExecutionPlan& plan) {
  std::vector<runtime::FunctionPointers> functions;
  for (const runtime::PlanFunction& f : plan.functions) {
    runtime::FunctionPointers pointers;
    INLAY_ASSIGN_OR_RETURN(void* run, code.Lookup(f.symbol + "_run"));
    pointers.run = reinterpret_cast<InlayRunFunction>(run);
    if (f.has_state) {
      INLAY_ASSIGN_OR_RETURN(void* init, code.Lookup(f.symbol + "_init"));
      INLAY_ASSIGN_OR_RETURN(void* destroy, code.Lookup(f.symbol + "_destroy"));
      pointers.init = reinterpret_cast<InlayInitFunction>(init);
      pointers.destroy = reinterpret_cast<InlayDestroyFunction>(destroy);
    }
    functions.push_back(pointers);
  }
  return functions;
}

}  // namespace

// Members are destroyed from the last to the first: the executor (whose states' destroy functions are code), then the
// parameters, then the code.
struct LoadedModule::Impl {
  std::unique_ptr<JitCode> code;
  std::vector<ParamBytes> params;
  int64_t param_bytes = 0;  // of those kept
  std::unique_ptr<runtime::Executor> executor;
};

LoadedModule::LoadedModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedModule::~LoadedModule() = default;

absl::StatusOr<std::unique_ptr<LoadedModule>> LoadedModule::Load(
    absl::string_view plan_json, const std::vector<const proto::StaticLibrary*>& libraries,
    absl::Span<const proto::ParamRef> params, const std::function<absl::StatusOr<ParamBytes>(const Digest&)>& get_param,
    Options options) {
  runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(std::string(plan_json));
  if (!plan.ok()) return ToAbsl(plan.status());
  if (params.size() != plan->params.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has ", plan->params.size(), " params, the executable ", params.size()));
  }
  auto impl = std::make_unique<Impl>();
  INLAY_ASSIGN_OR_RETURN(impl->code, JitCode::Load(libraries));
  INLAY_ASSIGN_OR_RETURN(std::vector<runtime::FunctionPointers> functions, LookUpFunctions(*impl->code, *plan));
  std::vector<const void*> addresses;
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string where = absl::StrCat("param '", plan->params[i].name, "'");
    INLAY_ASSIGN_OR_RETURN(Digest digest, Annotate(Digest::FromBytes(params[i].digest()), where));
    INLAY_ASSIGN_OR_RETURN(ParamBytes bytes, Annotate(get_param(digest), where));
    if (static_cast<int64_t>(bytes.data.size()) != plan->params[i].type.NumBytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is ", plan->params[i].type.ToString(), ", its blob has ", bytes.data.size(), " bytes"));
    }
    addresses.push_back(bytes.data.data());
    impl->params.push_back(std::move(bytes));
  }
  auto executor =
      runtime::LoadExecutor(std::move(*plan), std::move(functions), std::move(addresses), {options.num_threads});
  if (!executor.ok()) return ToAbsl(executor.status());
  impl->executor = std::move(*executor);
  const std::vector<bool>& load_only = impl->executor->plan().param_load_only;
  for (size_t i = 0; i < impl->params.size(); ++i) {
    if (load_only[i]) {
      impl->params[i] = ParamBytes();
    } else {
      impl->param_bytes += static_cast<int64_t>(impl->params[i].data.size());
    }
  }
  return std::unique_ptr<LoadedModule>(new LoadedModule(std::move(impl)));
}

const std::vector<runtime::NamedTensor>& LoadedModule::inputs() const { return impl_->executor->plan().inputs; }
const std::vector<runtime::NamedTensor>& LoadedModule::outputs() const { return impl_->executor->plan().outputs; }

const std::vector<int32_t>& LoadedModule::updates() const { return impl_->executor->plan().updates; }

const runtime::OpenShapes& LoadedModule::shapes() const { return impl_->executor->plan().shapes; }

absl::Status LoadedModule::Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                               const std::function<bool()>& stop, const runtime::ShapeValues* values) const {
  const runtime::ExecutionPlan& plan = impl_->executor->plan();
  if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", plan.inputs.size(), " inputs and ", plan.outputs.size(),
                                                   " outputs, got ", inputs.size(), " and ", outputs.size()));
  }
  return ToAbsl(stop ? impl_->executor->RunUnlessStopped(inputs.data(), outputs.data(), stop, values)
                     : impl_->executor->Run(inputs.data(), outputs.data(), values));
}

int64_t LoadedModule::memory_bytes() const {
  return impl_->code->code_bytes() + impl_->param_bytes + impl_->executor->memory_bytes();
}

}  // namespace inlay::jit
