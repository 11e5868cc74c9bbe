#include "core/backends/native/llvm_compile.h"

#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"

namespace inlay::native {
namespace {

void InitLlvm() {
  static const bool done = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();  // of a system call
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeRISCVTargetInfo();
    LLVMInitializeRISCVTarget();
    LLVMInitializeRISCVTargetMC();
    LLVMInitializeRISCVAsmPrinter();
    // Both would keep the constants of a kernel's epilogue (GELU has twenty) in registers across the loop whose
    // accumulators fill them all, and spill those: one hoists them out of the loop over tiles (bias + GELU behind a
    // matmul of 128x768x3072 then runs at 131 GFLOP/s, else at 242), the other lets all tiles use what the first one
    // loaded where that has code of its own since it packs the panel (48 channels of 56x56 to 192 + GELU: 750 us, else
    // 462, on AVX-512).
    const char* arguments[] = {"native", "-disable-machine-licm", "-disable-machine-cse"};
    llvm::cl::ParseCommandLineOptions(3, arguments);
    return true;
  }();
  (void)done;
}

struct ContextPool {
  std::mutex mutex;
  std::vector<std::unique_ptr<mlir::MLIRContext>> free;
};
ContextPool& Pool() {
  static auto* pool = new ContextPool;
  return *pool;
}

std::unique_ptr<mlir::MLIRContext> NewContext() {
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  auto context = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  context->loadDialect<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::LLVM::LLVMDialect,
                       mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
  return context;
}

// All of the conversions as one set of patterns: one walk, where a pass each costs several times as much.
mlir::LogicalResult LowerToLlvmDialect(mlir::ModuleOp module) {
  mlir::MLIRContext* context = module.getContext();
  mlir::LLVMTypeConverter types(context);
  mlir::RewritePatternSet patterns(context);
  mlir::populateSCFToControlFlowConversionPatterns(patterns);
  mlir::cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  mlir::arith::populateArithToLLVMConversionPatterns(types, patterns);
  mlir::vector::populateVectorBroadcastLoweringPatterns(patterns);
  mlir::populateVectorToLLVMConversionPatterns(types, patterns);
  mlir::LLVMConversionTarget target(*context);
  target.addLegalOp<mlir::ModuleOp>();
  target.addIllegalDialect<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::scf::SCFDialect,
                           mlir::vector::VectorDialect>();
  return mlir::applyFullConversion(module, target, std::move(patterns));
}

// Of Linux distributions; the soft-float ABI is LLVM's default.
constexpr char kRiscvAbi[] = "lp64d";
bool IsRiscv(absl::string_view triple) { return absl::StartsWith(triple, "riscv64"); }

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const target::Target& target) {
  InitLlvm();
  std::string triple = target.attr("mtriple", "x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) return absl::UnimplementedError(absl::StrCat("native: target triple '", triple, "': ", error));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  if (IsRiscv(triple)) options.MCOptions.ABIName = kRiscvAbi;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.attr("mcpu", "x86-64-v3"), target.attr("mattr"), options,
                                 llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr) return absl::InternalError(absl::StrCat("native: LLVM makes no machine for '", triple, "'"));
  return machine;
}

void Optimise(llvm::Module* module, llvm::TargetMachine* machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions options;
  // What pays to be a vector or unrolled already is; on the rest these mostly spend compile time.
  options.SLPVectorization = false;
  options.LoopVectorization = false;
  options.LoopInterleaving = false;
  options.LoopUnrolling = false;
  llvm::PassBuilder builder(machine, options);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(*module, modules);
}

}  // namespace

ContextLease::ContextLease() {
  {
    std::lock_guard<std::mutex> lock(Pool().mutex);
    if (!Pool().free.empty()) {
      context_ = std::move(Pool().free.back());
      Pool().free.pop_back();
    }
  }
  if (context_ == nullptr) context_ = NewContext();
}

ContextLease::~ContextLease() {
  std::lock_guard<std::mutex> lock(Pool().mutex);
  Pool().free.push_back(std::move(context_));
}

absl::StatusOr<std::string> CompileModule(mlir::ModuleOp module, const target::Target& target, CodeForm form) {
  std::string messages;
  mlir::ScopedDiagnosticHandler diagnostics(module.getContext(), [&](mlir::Diagnostic& d) {
    absl::StrAppend(&messages, d.str(), "; ");
    return mlir::success();
  });
  if (mlir::failed(mlir::verify(module))) {
    return absl::InternalError(absl::StrCat("native: the emitted MLIR is not valid: ", messages));
  }
  if (mlir::failed(LowerToLlvmDialect(module))) {
    return absl::InternalError(absl::StrCat("native: lowering to the LLVM dialect failed: ", messages));
  }
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> ir = mlir::translateModuleToLLVMIR(module, context, "partition");
  if (ir == nullptr) return absl::InternalError(absl::StrCat("native: translation to LLVM IR failed: ", messages));
  auto machine = MakeTargetMachine(target);
  if (!machine.ok()) return machine.status();
  ir->setTargetTriple((*machine)->getTargetTriple().str());
  ir->setDataLayout((*machine)->createDataLayout());
  ir->setPICLevel(llvm::PICLevel::BigPIC);
  if (IsRiscv((*machine)->getTargetTriple().str())) {
    ir->addModuleFlag(llvm::Module::Error, "target-abi", llvm::MDString::get(context, kRiscvAbi));
  }
  std::string features = target.attr("mattr"), cpu = target.attr("mcpu", "x86-64-v3");
  for (llvm::Function& f : *ir) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", cpu);
    f.addFnAttr("prefer-vector-width", "512");
    f.addFnAttr("target-features", features);
    f.addFnAttr(llvm::Attribute::NoUnwind);
  }
  Optimise(ir.get(), machine->get());
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager emit;
  const auto type = form == CodeForm::kObject ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile;
  if ((*machine)->addPassesToEmitFile(emit, stream, nullptr, type, true)) {
    return absl::InternalError("native: LLVM can't emit code for this target");
  }
  emit.run(*ir);
  return std::string(buffer.begin(), buffer.end());
}

}  // namespace inlay::native
