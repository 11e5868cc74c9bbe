#include "core/compiler/action.h"

#include "absl/strings/str_cat.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::compiler {

Action MakeAction(const ir::IRModule& module, const std::string& function, const std::string& backend_version) {
  const target::CompilationConfig& config = module.config();
  const ir::Function& partition = module.functions.at(function);
  const std::string backend = partition.attrs.String("backend");
  const target::Target codegen_target = config.CodegenTarget(backend);

  Action result;
  result.name = function;
  ir::IRModule alone;
  alone.functions[function] = partition;
  proto::CompileAction& action = result.action;
  action.set_backend(backend);
  action.set_backend_version(backend_version);
  *action.mutable_module() = ir::ToProto(alone);
  action.mutable_module()->clear_config();  // what matters of it is in the action's own fields
  action.mutable_target()->set_kind(config.target().kind);
  for (const auto& [name, value] : config.target().attrs) (*action.mutable_target()->mutable_attrs())[name] = value;
  action.mutable_codegen_target()->set_kind(codegen_target.kind);
  for (const auto& [name, value] : codegen_target.attrs) {
    (*action.mutable_codegen_target()->mutable_attrs())[name] = value;
  }
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);

  result.key.components = {
      {"structure", ir::StructuralHash(partition).hex()},
      {"backend", backend},
      {"backend_version", backend_version},
      {"target", config.target().ToString()},
      {"codegen_target", codegen_target.ToString()},
      {"abi", absl::StrCat(INLAY_KERNEL_ABI_VERSION)},
  };
  Hasher hasher;
  hasher.UpdateField("inlay compile action/1");
  for (const auto& [name, value] : result.key.components) hasher.UpdateField(name).UpdateField(value);
  result.key.digest = hasher.Finish();
  return result;
}

}  // namespace inlay::compiler
