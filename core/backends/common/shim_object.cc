#include "core/backends/common/shim_object.h"

#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

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
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
  });
  const std::string triple = target.attr("mtriple");
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (llvm_target == nullptr) return absl::InvalidArgumentError(absl::StrCat("target triple '", triple, "': ", error));
  // Calls only: no feature of the CPU is asked for.
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
      triple, "", "", llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Less));
  if (machine == nullptr) return absl::InternalError(absl::StrCat("no LLVM target machine for '", triple, "'"));

  llvm::LLVMContext context;
  ShimModule shims(component, &context);
  shims.module()->setTargetTriple(triple);
  shims.module()->setDataLayout(machine->createDataLayout());
  for (const ShimFunction& function : functions) shims.Add(function);

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream out(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return absl::InternalError(absl::StrCat("LLVM can't write objects for '", triple, "'"));
  }
  passes.run(*shims.module());
  return std::string(object.begin(), object.end());
}

}  // namespace inlay::backends
