#include "core/compiler/action.h"

#include "absl/strings/str_cat.h"
#include "core/artifact/aot_entry.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::compiler {
namespace {

void FillTarget(const target::Target& target, proto::Target* proto) {
  proto->set_kind(target.kind);
  for (const auto& [name, value] : target.attrs) (*proto->mutable_attrs())[name] = value;
}

Digest DigestOf(const std::map<std::string, std::string>& components) {
  Hasher hasher;
  hasher.UpdateField("inlay compile action/1");
  for (const auto& [name, value] : components) hasher.UpdateField(name).UpdateField(value);
  return hasher.Finish();
}

}  // namespace

Action MakeAction(const ir::IRModule& module, const std::string& function, const std::string& backend_version) {
  const target::CompilationConfig& config = module.config();
  const ir::Function& partition = module.functions.at(function);
  const std::string variant = partition.attrs.String("backend");
  const std::string backend = target::BackendOfVariant(variant);
  const target::Target codegen_target = config.CodegenTarget(variant);

  Action result;
  result.name = function;
  ir::IRModule alone;
  alone.functions[function] = partition;
  proto::CompileAction& action = result.action;
  action.set_backend(backend);
  action.set_backend_version(backend_version);
  *action.mutable_module() = ir::ToProto(alone);
  action.mutable_module()->clear_config();  // what matters of it is in the action's own fields
  FillTarget(config.target(), action.mutable_target());
  FillTarget(codegen_target, action.mutable_codegen_target());
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);

  result.key.components = {
      {"structure", ir::StructuralHash(partition).hex()},
      {"backend", backend},
      {"backend_version", backend_version},
      {"target", config.target().ToString()},
      {"codegen_target", codegen_target.ToString()},
      {"abi", absl::StrCat(INLAY_KERNEL_ABI_VERSION)},
  };
  result.key.digest = DigestOf(result.key.components);
  return result;
}

Action MakeEntryAction(const std::string& canonical_plan, const target::Target& target,
                       const std::string& backend_version) {
  Action result;
  result.name = artifact::EntrySymbol(canonical_plan);
  proto::CompileAction& action = result.action;
  action.set_backend("aot");
  action.set_backend_version(backend_version);
  action.set_entry_plan(canonical_plan);
  FillTarget(target, action.mutable_target());
  action.mutable_codegen_target()->set_kind("aot");
  action.set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  result.key.components = {
      {"structure", Digest::Of(canonical_plan).hex()},
      {"backend", "aot"},
      {"backend_version", backend_version},
      {"target", target.ToString()},
      {"abi", absl::StrCat(INLAY_KERNEL_ABI_VERSION)},
  };
  result.key.digest = DigestOf(result.key.components);
  return result;
}

}  // namespace inlay::compiler
