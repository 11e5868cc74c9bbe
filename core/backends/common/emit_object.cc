#include "core/backends/common/emit_object.h"

#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

namespace inlay::backends {

absl::StatusOr<std::string> EmitObject(llvm::Module* module, const target::Target& target) {
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
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
      triple, "", "", llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Less));
  if (machine == nullptr) return absl::InternalError(absl::StrCat("no LLVM target machine for '", triple, "'"));
  module->setTargetTriple(triple);
  module->setDataLayout(machine->createDataLayout());
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream out(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return absl::InternalError(absl::StrCat("LLVM can't write objects for '", triple, "'"));
  }
  passes.run(*module);
  return std::string(object.begin(), object.end());
}

}  // namespace inlay::backends
