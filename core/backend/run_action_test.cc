#include "core/backend/run_action.h"

#include <functional>
#include <string>

#include "core/backend/backend.h"
#include "core/ir/proto_conversion.h"
#include "core/runtime/kernel_abi.h"
#include "gtest/gtest.h"

namespace inlay::backend {
namespace {

// For the backend `fake`, which knows of no layouts.
proto::CompileAction Action(const std::function<void(ir::Function*)>& change = {}) {
  ir::IRModule module;
  ir::Function& function = module.functions["inlay_f"];
  ir::Builder builder(&function);
  auto x = builder.Param("x", ir::MakeTensorType(ir::DType::kF32, {1, 2, 3, 3}));
  builder.Return({*builder.Call("reshape", {x}, {{"shape", std::vector<int64_t>{18}}})});
  function.attrs.Set(kConstantParams, std::vector<int64_t>{});
  if (change) change(&function);
  proto::CompileAction action;
  *action.mutable_module() = ir::ToProto(module);
  action.set_backend("fake");
  action.set_backend_version(CodegenRegistry::Global().Find("fake")->version());
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  action.mutable_target()->set_kind("llvm");
  action.mutable_codegen_target()->set_kind("fake");
  return action;
}

absl::Status StatusOf(const proto::CompileAction& action) { return RunAction(action, testing::TempDir()).status(); }

void ExpectRefused(const proto::CompileAction& action, absl::StatusCode code, const std::string& what) {
  const absl::Status status = StatusOf(action);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(what), std::string::npos) << status;
}

TEST(RunAction, ImplementsEveryFunction) { EXPECT_TRUE(StatusOf(Action()).ok()) << StatusOf(Action()); }

// It would take them for row-major ones, and compute nonsense.
TEST(RunAction, RefusesChannelsLastWhereTheBackendDoesNotKnowOfIt) {
  for (const char* attr : {kChannelsLastParams, kChannelsLastResults}) {
    ExpectRefused(Action([&](ir::Function* f) { f->attrs.Set(attr, std::vector<int64_t>{0}); }),
                  absl::StatusCode::kInvalidArgument, "function inlay_f has tensors with their channels last");
  }
}

TEST(RunAction, RefusesWhatIsForAnotherWorker) {
  proto::CompileAction action = Action();
  action.set_backend("elsewhere");
  ExpectRefused(action, absl::StatusCode::kNotFound, "this worker has no backend 'elsewhere'");
  action = Action();
  action.set_backend_version("1.2");
  ExpectRefused(action, absl::StatusCode::kFailedPrecondition, "the action wants '1.2'");
  action = Action();
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION + 1);
  ExpectRefused(action, absl::StatusCode::kFailedPrecondition, "kernel ABI");
  action = Action();
  action.clear_module();
  ExpectRefused(action, absl::StatusCode::kInvalidArgument, "the action has no partition");
}

}  // namespace
}  // namespace inlay::backend
