// ModuleBuilder: partitioned modules and their manifests for tests, in a few lines.
#ifndef INLAY_CORE_ARTIFACT_TESTING_MODULE_BUILDER_H_
#define INLAY_CORE_ARTIFACT_TESTING_MODULE_BUILDER_H_

#include <string>
#include <vector>

#include "core/ir/ir_module.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact::testing {

proto::TensorType ToProto(const ir::TensorType& type);

// A primitive function: its IR signature and its manifest entry.
class Signature {
 public:
  explicit Signature(std::string symbol) { entry_.set_symbol(std::move(symbol)); }
  Signature& In(const ir::TensorType& type);
  Signature& Out(const ir::TensorType& type);
  Signature& Constant(std::vector<int> inputs);
  Signature& InitOnly(std::vector<int> inputs);  // implies State
  Signature& State();
  Signature& Workspace(int64_t bytes);
  Signature& InPlace(std::vector<int> inputs);  // one an output
  Signature& Symbols(const std::vector<std::string>& names);
  Signature& WorkspaceExpr(std::string expr);

  const proto::PrimitiveFunction& entry() const { return entry_; }
  const std::vector<ir::TensorType>& inputs() const { return inputs_; }
  const std::vector<ir::TensorType>& outputs() const { return outputs_; }

 private:
  proto::PrimitiveFunction entry_;
  std::vector<ir::TensorType> inputs_, outputs_;
};

class ModuleBuilder {
 public:
  ModuleBuilder();

  void Declare(const Signature& signature);   // the module's function
  void Manifest(const Signature& signature);  // an implementation of it
  void Implement(const Signature& signature) {
    Declare(signature);
    Manifest(signature);
  }

  ir::VarPtr Input(std::string name, ir::TensorType type);  // before any Lift
  ir::VarPtr Call(const std::string& function, std::vector<ir::Operand> args, std::string location = "");
  ir::VarPtr GetItem(ir::VarPtr tuple, int index);
  ir::VarPtr Tuple(std::vector<ir::Operand> items);
  // A call in transform_params; gives main's parameter that it becomes.
  ir::VarPtr Lift(const std::string& function, std::vector<ir::Operand> args);
  void Return(std::vector<ir::Operand> results, std::vector<std::string> names);

  ir::Function& main() { return module_.functions["main"]; }
  ir::IRModule& module() { return module_; }
  const std::vector<proto::StaticLibraryManifest>& manifests() const { return manifests_; }

 private:
  ir::Binding MakeCall(const std::string& function, std::vector<ir::Operand> args);

  ir::IRModule module_;
  std::vector<proto::StaticLibraryManifest> manifests_;
  std::vector<ir::VarPtr> lifted_;
};

}  // namespace inlay::artifact::testing

#endif  // INLAY_CORE_ARTIFACT_TESTING_MODULE_BUILDER_H_
