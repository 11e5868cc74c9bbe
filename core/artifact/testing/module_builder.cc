#include "core/artifact/testing/module_builder.h"

namespace inlay::artifact::testing {

proto::TensorType ToProto(const ir::TensorType& type) {
  proto::TensorType proto;
  proto.set_dtype(static_cast<proto::DType>(type.dtype));
  for (const ir::Dim& dim : type.dims) {
    dim.is_static() ? proto.add_dims()->set_value(dim.value()) : proto.add_dims()->set_symbol(dim.symbol());
  }
  return proto;
}

Signature& Signature::In(const ir::TensorType& type) {
  inputs_.push_back(type);
  *entry_.add_inputs() = ToProto(type);
  return *this;
}
Signature& Signature::Out(const ir::TensorType& type) {
  outputs_.push_back(type);
  *entry_.add_outputs() = ToProto(type);
  return *this;
}
Signature& Signature::Constant(std::vector<int> inputs) {
  for (int i : inputs) entry_.add_constant_inputs(i);
  return *this;
}
Signature& Signature::InitOnly(std::vector<int> inputs) {
  for (int i : inputs) entry_.add_init_only_inputs(i);
  return State();
}
Signature& Signature::InPlace(std::vector<int> inputs) {
  for (int i : inputs) entry_.add_in_place(i);
  return *this;
}
Signature& Signature::State() {
  entry_.set_has_state(true);
  return *this;
}
Signature& Signature::Symbols(const std::vector<std::string>& names) {
  for (const std::string& name : names) entry_.add_symbols(name);
  return *this;
}
Signature& Signature::WorkspaceExpr(std::string expr) {
  entry_.set_workspace_expr(std::move(expr));
  return *this;
}
Signature& Signature::Workspace(int64_t bytes) {
  entry_.set_workspace_bytes(bytes);
  return *this;
}

ModuleBuilder::ModuleBuilder() { module_.functions["main"]; }

void ModuleBuilder::Declare(const Signature& signature) {
  ir::Function f;
  f.attrs.Set("backend", "test");
  for (const ir::TensorType& type : signature.inputs()) f.params.push_back(ir::MakeVar("p", type));
  for (const ir::TensorType& type : signature.outputs()) f.body.results.push_back(ir::MakeVar("r", type));
  module_.functions[signature.entry().symbol()] = std::move(f);
}

void ModuleBuilder::Manifest(const Signature& signature) {
  proto::StaticLibraryManifest manifest;
  manifest.set_backend("test");
  *manifest.add_functions() = signature.entry();
  manifests_.push_back(std::move(manifest));
}

ir::VarPtr ModuleBuilder::Input(std::string name, ir::TensorType type) {
  ir::VarPtr var = ir::MakeVar(std::move(name), std::move(type));
  main().params.push_back(var);
  return var;
}

ir::Binding ModuleBuilder::MakeCall(const std::string& function, std::vector<ir::Operand> args) {
  ir::Binding binding;
  binding.kind = ir::Binding::Kind::kCallFunction;
  binding.callee = function;
  binding.args = std::move(args);
  const std::vector<ir::Operand>& results = module_.functions.at(function).body.results;
  if (results.size() == 1) {
    binding.var = ir::MakeVar("v", results[0].type());
  } else {
    ir::TupleType tuple;
    for (const ir::Operand& r : results) tuple.fields.push_back(r.type());
    binding.var = ir::MakeVar("v", tuple);
  }
  return binding;
}

ir::VarPtr ModuleBuilder::Call(const std::string& function, std::vector<ir::Operand> args, std::string location) {
  ir::Binding binding = MakeCall(function, std::move(args));
  binding.location = std::move(location);
  main().body.bindings.push_back(binding);
  return binding.var;
}

ir::VarPtr ModuleBuilder::GetItem(ir::VarPtr tuple, int index) {
  ir::Binding binding;
  binding.kind = ir::Binding::Kind::kTupleGetItem;
  binding.args = {tuple};
  binding.index = index;
  binding.var = ir::MakeVar("item", tuple->type.tuple().fields[index]);
  main().body.bindings.push_back(binding);
  return binding.var;
}

ir::VarPtr ModuleBuilder::Tuple(std::vector<ir::Operand> items) {
  ir::Binding binding;
  binding.kind = ir::Binding::Kind::kTuple;
  binding.args = std::move(items);
  ir::TupleType type;
  for (const ir::Operand& item : binding.args) type.fields.push_back(item.type());
  binding.var = ir::MakeVar("tuple", type);
  main().body.bindings.push_back(binding);
  return binding.var;
}

ir::VarPtr ModuleBuilder::Lift(const std::string& function, std::vector<ir::Operand> args) {
  ir::Binding binding = MakeCall(function, std::move(args));
  ir::Function& transform = module_.functions["transform_params"];
  transform.body.bindings.push_back(binding);
  transform.body.results.push_back(binding.var);
  lifted_.push_back(ir::MakeVar("lifted", binding.var->type));
  return lifted_.back();
}

void ModuleBuilder::Return(std::vector<ir::Operand> results, std::vector<std::string> names) {
  ir::Function& f = main();
  f.body.results = std::move(results);
  f.result_names = std::move(names);
  f.params.insert(f.params.end(), lifted_.begin(), lifted_.end());
  if (!lifted_.empty()) f.attrs.Set("num_lifted_params", static_cast<int64_t>(lifted_.size()));
}

}  // namespace inlay::artifact::testing
