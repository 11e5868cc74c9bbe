// Actions for the fake backend. For tests.
#ifndef INLAY_SERVER_WORKER_TESTING_H_
#define INLAY_SERVER_WORKER_TESTING_H_

#include <string>

#include "core/backend/backend.h"
#include "core/ir/ir_module.h"
#include "core/ir/proto_conversion.h"
#include "core/runtime/kernel_abi.h"
#include "core/target/target.h"
#include "proto/worker.pb.h"

namespace inlay::server {

// One reshape; `fake` are the attributes that say what its code generation does ("behaviour": "crash").
inline proto::CompileAction FakeAction(const std::map<std::string, std::string>& fake = {}) {
  ir::IRModule module;
  ir::Function& function = module.functions["inlay_f"];
  ir::Builder builder(&function);
  auto x = builder.Param("x", ir::MakeTensorType(ir::DType::kF32, {2, 3}));
  auto y = builder.Call("reshape", {x}, {{"shape", std::vector<int64_t>{6}}});
  builder.Return({*y});
  function.attrs.Set(backend::kConstantParams, std::vector<int64_t>{});
  proto::CompileAction action;
  action.set_backend("fake");
  action.set_backend_version("fake 1");
  *action.mutable_module() = ir::ToProto(module);
  action.mutable_module()->clear_config();
  const target::Target target = target::Target::Parse("llvm")->Completed().value();
  action.mutable_target()->set_kind(target.kind);
  for (const auto& [name, value] : target.attrs) (*action.mutable_target()->mutable_attrs())[name] = value;
  action.mutable_codegen_target()->set_kind("fake");
  for (const auto& [name, value] : fake) (*action.mutable_codegen_target()->mutable_attrs())[name] = value;
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  return action;
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_TESTING_H_
