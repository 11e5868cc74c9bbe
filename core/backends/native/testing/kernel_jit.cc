#include "core/backends/native/testing/kernel_jit.h"

#include "absl/strings/str_cat.h"
#include "core/backends/native/cpu_features.h"
#include "core/backends/native/llvm_compile.h"
#include "core/backends/native/testing/measuring.h"
#include "core/target/target.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native::testing {
namespace {

using mlir::Value;

target::Target TargetOf(const std::string& cpu) {
  if (cpu.empty()) return target::HostTarget();
  return target::Target::Parse(absl::StrCat("llvm -mcpu=", cpu)).value().Completed().value();
}

std::unique_ptr<llvm::orc::LLJIT> MakeJit() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  return llvm::cantFail(llvm::orc::LLJITBuilder().create());
}

}  // namespace

struct KernelJit::Impl {
  explicit Impl(const std::string& cpu) : target(TargetOf(cpu)) {}

  std::string Code(const std::string& name, int num_pointers, const Body& body, CodeForm form) const {
    ContextLease context;
    mlir::OpBuilder b(context.get());
    const mlir::Location loc = b.getUnknownLoc();
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
    b.setInsertionPointToStart(module->getBody());
    const mlir::Type pointer = mlir::LLVM::LLVMPointerType::get(context.get());
    const mlir::Type nothing = mlir::LLVM::LLVMVoidType::get(context.get());
    auto function = b.create<mlir::LLVM::LLVMFuncOp>(loc, name, mlir::LLVM::LLVMFunctionType::get(nothing, {pointer}));
    mlir::Block* entry = function.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    KernelBuilder kb(b, loc);
    std::vector<Value> pointers;
    for (int i = 0; i < num_pointers; ++i) {
      pointers.push_back(b.create<mlir::LLVM::LoadOp>(loc, pointer, kb.At(entry->getArgument(0), i, pointer), 8));
    }
    body(kb, pointers);
    b.create<mlir::LLVM::ReturnOp>(loc, mlir::ValueRange{});
    return CompileModule(*module, target, form).value();
  }

  const target::Target target;
  const std::unique_ptr<llvm::orc::LLJIT> jit = MakeJit();
  int count = 0;  // of functions
};

KernelJit::KernelJit(const std::string& cpu) : impl_(std::make_unique<Impl>(cpu)) {}
KernelJit::~KernelJit() = default;

Core KernelJit::core() const { return FeaturesOf(impl_->target).core; }

KernelJit::Function KernelJit::Compile(int num_pointers, const Body& body) {
  const double start = Seconds();
  const std::string name = absl::StrCat("kernel_", impl_->count++);
  const std::string object = impl_->Code(name, num_pointers, body, CodeForm::kObject);
  llvm::cantFail(impl_->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object, name)));
  const Function function = llvm::cantFail(impl_->jit->lookup(name)).toPtr<Function>();
  compile_ms = (Seconds() - start) * 1e3;
  return function;
}

std::string KernelJit::Assembly(int num_pointers, const Body& body) {
  return impl_->Code("kernel", num_pointers, body, CodeForm::kAssembly);
}

mlir::Value BiasRelu(KernelBuilder& kb, mlir::Value acc, mlir::Value bias) {
  if (mlir::isa<mlir::VectorType>(acc.getType())) bias = kb.Splat(bias, acc.getType());
  mlir::Value x = kb.b.create<mlir::arith::AddFOp>(kb.loc, acc, bias), zero = kb.Zero(acc.getType());
  return kb.Select(kb.b.create<mlir::arith::CmpFOp>(kb.loc, mlir::arith::CmpFPredicate::OGT, zero, x), zero, x);
}

}  // namespace inlay::native::testing
