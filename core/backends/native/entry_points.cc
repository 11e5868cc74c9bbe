// FunctionEmitter's functions of the kernel ABI: <symbol>_run and _init, which call the kernels in turn, and _destroy.
#include "absl/strings/str_cat.h"
#include "core/backends/native/closure.h"
#include "core/backends/native/function_emitter.h"
#include "core/runtime/kernel_abi.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"

namespace inlay::native {

namespace LLVM = mlir::LLVM;
using mlir::Value;

namespace {

// Of less work, waking the other threads costs more than it saves. But what many have written lies in their caches,
// from where one alone fetches it at a third of the speed (Emerald Rapids, 16 threads, us: leaky_relu of 12x4800 by
// itself 21, of 24x1200 10, with the lines near 6 and 3). Whole models there, for 20000 and 7000, with 16 threads: an
// XCiT 1.23 times as fast, a HiFi-GAN 1.16, a RegNet 1.15, a small MobileNetV2 1.11, GhostNet 1.07, 11 others level;
// with 8 1.20, 1.12, 1.01, 1.04, 1.07 to 1.12; with 4 0.93 to 1.17.
constexpr double kParallelCycles = 20000, kParallelCyclesOfMany = 7000;
constexpr int64_t kManyThreads = 8;

}  // namespace

void FunctionEmitter::EmitEntry(Phase phase) {
  mlir::OpBuilder::InsertionGuard guard(builder_);
  builder_.setInsertionPointToEnd(module_.getBody());
  bool init = phase == Phase::kInit;
  mlir::Type pointer = PointerType(builder_), i32 = builder_.getI32Type();
  std::vector<mlir::Type> params(init ? 3 : 2, pointer);
  auto function = builder_.create<LLVM::LLVMFuncOp>(ops_.loc, absl::StrCat(symbol_, init ? "_init" : "_run"),
                                                    LLVM::LLVMFunctionType::get(i32, params));
  mlir::Block* entry = function.addEntryBlock(builder_);
  builder_.setInsertionPointToEnd(entry);
  Value context = entry->getArgument(0), args = entry->getArgument(1);
  mlir::Operation* entry_point = ops_.Int(0).getDefiningOp();
  std::map<std::string, Value> extents;
  ResolveOpenExtents([args] { return args; }, entry_point, &extents);
  Value closure = ops_.StackBytes(open_slots_.empty() ? kOpenWorkspaceOffset : kClosureBytes);
  auto store = [&](Value v, int64_t offset) {
    builder_.create<LLVM::StoreOp>(ops_.loc, v, ops_.At(closure, offset, builder_.getI8Type()), 8);
  };
  store(args, kArgsOffset);
  Value workspace = Field(ops_, context, offsetof(InlayCallContext, workspace), pointer);
  store(workspace, kWorkspaceOffset);
  if (!open_slots_.empty()) store(ops_.At(workspace, workspace_bytes_, builder_.getI8Type()), kOpenWorkspaceOffset);

  auto run_steps = [&](Value state) {
    store(state, kStateOffset);
    EmitSteps(init ? init_steps_ : run_steps_, context, closure);
  };
  Value zero = ops_.ConstI(i32, INLAY_OK);
  if (!init) {
    run_steps(Field(ops_, context, offsetof(InlayCallContext, state), pointer));
    builder_.create<LLVM::ReturnOp>(ops_.loc, zero);
    return;
  }
  Value owner = Field(ops_, context, offsetof(InlayCallContext, owner), pointer);
  Value alloc = Field(ops_, context, offsetof(InlayCallContext, alloc), pointer);
  auto alloc_type = LLVM::LLVMFunctionType::get(pointer, {pointer, builder_.getI64Type()});
  Value state =
      builder_.create<LLVM::CallOp>(ops_.loc, alloc_type, mlir::ValueRange{alloc, owner, ops_.Int(state_bytes_)})
          .getResult();
  Value null = builder_.create<LLVM::ZeroOp>(ops_.loc, pointer);
  Value failed = builder_.create<LLVM::ICmpOp>(ops_.loc, LLVM::ICmpPredicate::eq, state, null);
  Value code = ops_.IfElse(
      failed, {i32}, [&] { return std::vector<Value>{ops_.ConstI(i32, INLAY_E_NO_MEMORY)}; },
      [&] {
        run_steps(state);
        builder_.create<LLVM::StoreOp>(ops_.loc, state, entry->getArgument(2), 8);
        return std::vector<Value>{zero};
      })[0];
  builder_.create<LLVM::ReturnOp>(ops_.loc, code);
}

void FunctionEmitter::EmitSteps(const std::vector<Step>& steps, Value context, Value closure) {
  mlir::Type i32 = builder_.getI32Type(), i64 = builder_.getI64Type();
  Value threads = ops_.ExtendI(Field(ops_, context, offsetof(InlayCallContext, num_threads), i32), i64, true);
  auto store = [&](Value v, int64_t offset) {
    builder_.create<LLVM::StoreOp>(ops_.loc, v, ops_.At(closure, offset, builder_.getI8Type()), 8);
  };
  store(threads, kThreadsOffset);
  for (size_t first = 0; first < steps.size();) {
    size_t last = first + 1;
    if (steps[first].repetition < 0) {
      EmitCall(steps[first], context, closure, threads);
    } else {
      while (last < steps.size() && steps[last].repetition == steps[first].repetition) ++last;
      ops_.For(ops_.Int(0), ops_.Int(repetitions_[steps[first].repetition]), 1, [&](Value i) {
        store(i, kIterationOffset);
        for (size_t s = first; s < last; ++s) EmitCall(steps[s], context, closure, threads);
      });
    }
    first = last;
  }
}

void FunctionEmitter::EmitCall(const Step& step, Value context, Value closure, Value threads) {
  mlir::Type pointer = PointerType(builder_), i32 = builder_.getI32Type(), i64 = builder_.getI64Type();
  auto serial = [&] {
    builder_.create<LLVM::CallOp>(ops_.loc, mlir::TypeRange(), step.function,
                                  mlir::ValueRange{closure, ops_.Int(0), ops_.Int(step.items), ops_.ConstI(i32, 0)});
  };
  auto parallel = [&] {
    Value pool = Field(ops_, context, offsetof(InlayCallContext, pool), pointer);
    Value parallel_for = Field(ops_, context, offsetof(InlayCallContext, parallel_for), pointer);
    Value task = builder_.create<LLVM::AddressOfOp>(ops_.loc, pointer, step.function);
    auto type =
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder_.getContext()), {pointer, i64, pointer, pointer});
    builder_.create<LLVM::CallOp>(ops_.loc, type,
                                  mlir::ValueRange{parallel_for, pool, ops_.Int(step.items), task, closure});
  };
  auto call = [&] {
    Value worth = IsWorthThreads(step, threads);
    worth ? ops_.If(worth, parallel, serial) : serial();
  };
  Value runs = RunsWhere(step, threads);
  runs ? ops_.If(runs, call) : call();
}

Value FunctionEmitter::RunsWhere(const Step& step, Value threads) {
  Value all;
  auto add = [&](Value holds) { all = all ? ops_.And(all, holds) : holds; };
  for (const Condition& c : step.conditions) {
    Value extent = c.extent.has_value() ? ops_.Int(*c.extent) : threads;
    add(ops_.CompareI(Compare::kGe, extent, ops_.Int(c.least), true));
    if (c.most != INT64_MAX) add(ops_.CompareI(Compare::kLe, extent, ops_.Int(c.most), true));
  }
  return all && step.negated ? ops_.Not(all) : all;
}

Value FunctionEmitter::IsWorthThreads(const Step& step, Value threads) {
  Value several = ops_.Less(ops_.Int(1), threads);
  if (step.items.is_static() && step.cost.times().is_static()) {
    const double all = static_cast<double>(step.items.value()) * step.cost.constant();
    if (step.items.value() <= 1 || all <= kParallelCyclesOfMany) return nullptr;
    return all > kParallelCycles ? several : ops_.Less(ops_.Int(kManyThreads - 1), threads);
  }
  if (step.items == Extent(1)) return nullptr;
  mlir::Type f64 = builder_.getF64Type();
  auto number = [&](const Extent& e) { return ops_.IntToFloat(ops_.Int(e), f64, true); };
  Value cost = ops_.ConstF(f64, step.cost.constant());
  if (step.cost.factor() != 0) {
    cost = ops_.AddF(cost, ops_.MulF(number(step.cost.times()), ops_.ConstF(f64, step.cost.factor())));
  }
  Value all = ops_.MulF(number(step.items), cost);
  const Value many = ops_.Less(ops_.Int(kManyThreads - 1), threads);
  const Value least = ops_.Select(many, ops_.ConstF(f64, kParallelCyclesOfMany), ops_.ConstF(f64, kParallelCycles));
  Value enough = ops_.CompareF(Compare::kGt, all, least);
  return ops_.And(several, ops_.And(enough, ops_.Less(ops_.Int(1), ops_.Int(step.items))));
}

void FunctionEmitter::EmitDestroy() {
  mlir::OpBuilder::InsertionGuard guard(builder_);
  builder_.setInsertionPointToEnd(module_.getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder_.getContext()), {PointerType(builder_)});
  auto function = builder_.create<LLVM::LLVMFuncOp>(ops_.loc, absl::StrCat(symbol_, "_destroy"), type);
  builder_.setInsertionPointToEnd(function.addEntryBlock(builder_));
  builder_.create<LLVM::ReturnOp>(ops_.loc, mlir::ValueRange());
}

}  // namespace inlay::native
