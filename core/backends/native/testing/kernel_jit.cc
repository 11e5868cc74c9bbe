#include "core/backends/native/testing/kernel_jit.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "core/target/x86_cpus.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

namespace inlay::native::testing {
namespace {

using mlir::Value;

// Milliseconds of this thread: machines that build are busy.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e3 + 1e-6 * now.tv_nsec;
}

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "kernel_jit: %s\n", what.c_str());
  abort();
}

template <typename T>
T Check(llvm::Expected<T> value) {
  if (!value) Die(llvm::toString(value.takeError()));
  return std::move(*value);
}

}  // namespace

struct KernelJit::Impl {
  std::string cpu;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  int counter = 0;
};

KernelJit::KernelJit(std::string cpu) : impl_(std::make_unique<Impl>()) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  impl_->cpu = cpu.empty() ? llvm::sys::getHostCPUName().str() : cpu;
  if (impl_->cpu == "generic") impl_->cpu = "znver4";
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  impl_->context.appendDialectRegistry(registry);
  impl_->context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                             mlir::scf::SCFDialect, mlir::vector::VectorDialect, mlir::math::MathDialect>();
  llvm::orc::JITTargetMachineBuilder builder(llvm::Triple("x86_64-unknown-linux-gnu"));
  builder.setCPU(impl_->cpu);
  builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  builder.setRelocationModel(llvm::Reloc::PIC_);
  impl_->machine = Check(builder.createTargetMachine());
  impl_->jit = Check(llvm::orc::LLJITBuilder().create());
}

KernelJit::~KernelJit() = default;

Core KernelJit::core() const {
  const target::Features* features = target::X86CpuFeatures(impl_->cpu);
  auto has = [&](const char* feature) { return features != nullptr && features->count(feature) > 0; };
  const target::X86Core core = target::X86CpuCore(impl_->cpu);
  const int64_t bytes = has("avx512vl") ? 64 : has("avx2") ? 32 : 16;
  return {bytes, bytes == 64 ? 32 : 16, core.l1_bytes, core.l2_bytes, bytes == 64 ? core.wide_multiply_adds : 2};
}

KernelJit::Function KernelJit::Compile(int num_pointers,
                                       const std::function<void(KernelBuilder&, const std::vector<Value>&)>& body) {
  double start = Now();
  mlir::OpBuilder b(&impl_->context);
  mlir::Location loc = b.getUnknownLoc();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  b.setInsertionPointToEnd(module->getBody());
  std::string name = "kernel_" + std::to_string(impl_->counter++);
  mlir::Type pointer = mlir::LLVM::LLVMPointerType::get(&impl_->context);
  auto function = b.create<mlir::func::FuncOp>(loc, name, b.getFunctionType({pointer}, {}));
  b.setInsertionPointToStart(function.addEntryBlock());
  KernelBuilder kb(b, loc);
  std::vector<Value> pointers;
  for (int i = 0; i < num_pointers; ++i) {
    pointers.push_back(b.create<mlir::LLVM::LoadOp>(loc, pointer, kb.At(function.getArgument(0), i, pointer), 8));
  }
  body(kb, pointers);
  b.create<mlir::func::ReturnOp>(loc);

  mlir::PassManager passes(&impl_->context);
  passes.addPass(mlir::createConvertSCFToCFPass());
  passes.addPass(mlir::createConvertVectorToLLVMPass());
  passes.addPass(mlir::createArithToLLVMConversionPass());
  passes.addPass(mlir::createConvertMathToLLVMPass());
  passes.addPass(mlir::createConvertFuncToLLVMPass());
  passes.addPass(mlir::createConvertControlFlowToLLVMPass());
  passes.addPass(mlir::createReconcileUnrealizedCastsPass());
  if (mlir::failed(passes.run(*module))) Die("lowering failed");
  auto context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> llvm_module = mlir::translateModuleToLLVMIR(*module, *context);
  if (!llvm_module) Die("translation failed");
  llvm_module->setDataLayout(impl_->machine->createDataLayout());
  llvm_module->setTargetTriple(impl_->machine->getTargetTriple().str());
  for (llvm::Function& f : *llvm_module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("prefer-vector-width", std::to_string(core().vector_bytes * 8));
    f.addFnAttr("target-cpu", impl_->cpu);
  }
  mlir_ms = Now() - start;

  start = Now();
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder pass_builder(impl_->machine.get(), tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  pass_builder.registerModuleAnalyses(modules);
  pass_builder.registerCGSCCAnalyses(graph);
  pass_builder.registerFunctionAnalyses(functions);
  pass_builder.registerLoopAnalyses(loops);
  pass_builder.crossRegisterProxies(loops, functions, graph, modules);
  pass_builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(*llvm_module, modules);
  opt_ms = Now() - start;

  if (!last_assembly_file.empty()) {
    std::error_code error;
    llvm::raw_fd_ostream out(last_assembly_file, error);
    llvm::legacy::PassManager emit;
    impl_->machine->addPassesToEmitFile(emit, out, nullptr, llvm::CodeGenFileType::AssemblyFile);
    emit.run(*llvm_module);
    last_assembly_file.clear();
  }
  start = Now();
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager emit;
  if (impl_->machine->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) Die("no emitter");
  emit.run(*llvm_module);
  codegen_ms = Now() - start;
  if (auto error = impl_->jit->addObjectFile(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes)))) {
    Die(llvm::toString(std::move(error)));
  }
  return Check(impl_->jit->lookup(name)).toPtr<Function>();
}

}  // namespace inlay::native::testing
