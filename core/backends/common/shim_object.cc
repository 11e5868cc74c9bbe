#include "core/backends/common/shim_object.h"

#include <utility>

#include "core/backends/common/emit_object.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace inlay::backends {
namespace {

class ShimModule {
 public:
  ShimModule(const std::string& component, llvm::LLVMContext* context)
      : module_("shim", *context), builder_(*context), component_(component) {}

  llvm::Module* module() { return &module_; }

  void Add(const ShimFunction& function) {
    llvm::Type* pointer = builder_.getPtrTy();
    auto* bytes = llvm::ConstantDataArray::getString(module_.getContext(), function.description, /*AddNull=*/false);
    auto* description = new llvm::GlobalVariable(module_, bytes->getType(), /*isConstant=*/true,
                                                 llvm::GlobalValue::PrivateLinkage, bytes, "description");
    description->setAlignment(llvm::Align(64));
    llvm::Value* size = builder_.getInt64(function.description.size());
    AddCall(function.symbol, "_init", builder_.getInt32Ty(), {pointer, pointer, pointer}, {description, size});
    AddCall(function.symbol, "_run", builder_.getInt32Ty(), {pointer, pointer}, {});
    AddCall(function.symbol, "_destroy", builder_.getVoidTy(), {pointer}, {});
  }

 private:
  // <symbol><suffix>(parameters...) { return inlay_<component><suffix>(parameters..., more...); }
  void AddCall(const std::string& symbol, const std::string& suffix, llvm::Type* result,
               llvm::SmallVector<llvm::Type*> parameters, llvm::SmallVector<llvm::Value*> more) {
    auto* type = llvm::FunctionType::get(result, parameters, false);
    auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol + suffix, module_);
    function->setDoesNotThrow();
    llvm::SmallVector<llvm::Value*> args;
    for (llvm::Argument& argument : function->args()) args.push_back(&argument);
    for (llvm::Value* value : more) {
      args.push_back(value);
      parameters.push_back(value->getType());
    }
    auto shim =
        module_.getOrInsertFunction("inlay_" + component_ + suffix, llvm::FunctionType::get(result, parameters, false));
    builder_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "", function));
    auto* call = builder_.CreateCall(shim, args);
    call->setDoesNotThrow();
    result->isVoidTy() ? builder_.CreateRetVoid() : builder_.CreateRet(call);
  }

  llvm::Module module_;
  llvm::IRBuilder<> builder_;
  std::string component_;
};

}  // namespace

absl::StatusOr<std::string> EmitShimObject(const std::string& component, const std::vector<ShimFunction>& functions,
                                           const target::Target& target) {
  llvm::LLVMContext context;
  ShimModule shims(component, &context);
  for (const ShimFunction& function : functions) shims.Add(function);
  return EmitObject(shims.module(), target);
}

}  // namespace inlay::backends
