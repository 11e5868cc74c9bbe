#include "core/backends/aot/entry_object.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "core/backends/common/emit_object.h"
#include "core/runtime/kernel_abi.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"

namespace inlay::aot {
namespace {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::ExecutionPlan;
using runtime::Step;
using runtime::StepKind;

// An address that the entry knows: what a table that was made when the model was loaded holds at `slot`, or a caller's
// tensor, plus an offset.
struct Address {
  enum Base { kNull, kArena, kFixed, kArgument } base = kNull;
  int64_t slot = 0;
  int64_t offset = 0;
  bool operator==(const Address& o) const { return base == o.base && slot == o.slot && offset == o.offset; }
};

class EntryEmitter {
 public:
  EntryEmitter(const ExecutionPlan& plan, llvm::LLVMContext* context)
      : plan_(plan), module_("entry", *context), builder_(*context) {}

  llvm::Module* module() { return &module_; }

  void Emit(const std::string& symbol) {
    llvm::Type* pointer = builder_.getPtrTy();
    auto* type = llvm::FunctionType::get(builder_.getInt32Ty(), {pointer, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol + "_run", module_);
    function_->setDoesNotThrow();
    Begin();
    for (size_t i = 0; i < plan_.run_steps.size(); ++i) {
      const Step& step = plan_.run_steps[i];
      step.kind == StepKind::kCopy ? EmitCopy(step) : EmitCall(step, static_cast<int>(i));
    }
    builder_.CreateRet(builder_.getInt32(INLAY_OK));
    EmitFailure();
  }

 private:
  static constexpr int kStateField = 0, kWorkspaceField = 1;  // of the context, in pointers

  llvm::Value* At(llvm::Value* base, int64_t offset) {
    return offset == 0 ? base : builder_.CreateConstInBoundsGEP1_64(builder_.getInt8Ty(), base, offset);
  }
  llvm::Value* Load(llvm::Value* base, int64_t slot) {
    return builder_.CreateLoad(builder_.getPtrTy(), At(base, slot * 8));
  }

  // The copy of the caller's context, and the table of arguments.
  void Begin() {
    builder_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "", function_));
    caller_ = function_->getArg(0);
    arguments_ = function_->getArg(1);
    size_t width = 1;
    for (const Step& step : plan_.run_steps) width = std::max(width, step.args.size());
    auto* table_type = llvm::ArrayType::get(builder_.getPtrTy(), width);
    table_ = builder_.CreateAlloca(table_type);
    context_ = builder_.CreateAlloca(llvm::ArrayType::get(builder_.getInt8Ty(), sizeof(InlayCallContext)));
    context_->setAlignment(llvm::Align(16));
    builder_.CreateMemCpyInline(context_, llvm::MaybeAlign(16), caller_, llvm::MaybeAlign(8),
                                builder_.getInt64(sizeof(InlayCallContext)));
    fixed_ = Load(caller_, kStateField);
    arena_ = Load(caller_, kWorkspaceField);
    owner_ = Load(caller_, offsetof(InlayCallContext, owner) / 8);
    in_table_.resize(width);
  }

  Address AddressOf(int32_t arg) const {
    if (arg < 0) return {};
    const Buffer& buffer = plan_.buffers[arg];
    const auto params = static_cast<int64_t>(plan_.params.size());
    switch (buffer.kind) {
      case BufferKind::kInput:
        return {Address::kArgument, buffer.index, buffer.offset};
      case BufferKind::kOutput:
        return {Address::kArgument, static_cast<int64_t>(plan_.inputs.size()) + buffer.index, buffer.offset};
      case BufferKind::kConstant:
        return {Address::kFixed, 0, buffer.offset};
      case BufferKind::kParam:
        return {Address::kFixed, 1 + buffer.index, 0};
      case BufferKind::kLiteral:
        return {Address::kFixed, 1 + params + buffer.index, 0};
      case BufferKind::kArena:
        return {Address::kArena, 0, buffer.offset};
      case BufferKind::kLoad:
        break;  // no run step has one: Check
    }
    return {};
  }

  Address StateOf(const Step& step) const {
    if (step.state < 0) return {};
    return {Address::kFixed, static_cast<int64_t>(1 + plan_.params.size() + plan_.literals.size()) + step.state, 0};
  }

  llvm::Value* ValueOf(const Address& address) {
    switch (address.base) {
      case Address::kNull:
        return llvm::ConstantPointerNull::get(builder_.getPtrTy());
      case Address::kArena:
        return At(arena_, address.offset);
      case Address::kFixed:
        return At(Load(fixed_, address.slot), address.offset);
      case Address::kArgument:
        return At(Load(arguments_, address.slot), address.offset);
    }
    return nullptr;
  }

  // Stores unless the same is there already.
  void Set(llvm::Value* base, int64_t slot, const Address& address, std::optional<Address>* there) {
    if (*there == address) return;
    *there = address;
    builder_.CreateStore(ValueOf(address), At(base, slot * 8));
  }

  void EmitCopy(const Step& step) {
    const int64_t bytes = plan_.buffers[step.args[0]].bytes;
    if (bytes == 0) return;
    builder_.CreateMemCpy(ValueOf(AddressOf(step.args[1])), llvm::MaybeAlign(), ValueOf(AddressOf(step.args[0])),
                          llvm::MaybeAlign(), bytes);
  }

  void EmitCall(const Step& step, int index) {
    Address workspace;
    if (step.workspace_offset >= 0) workspace = {Address::kArena, 0, step.workspace_offset};
    Set(context_, kStateField, StateOf(step), &in_state_);
    Set(context_, kWorkspaceField, workspace, &in_workspace_);
    for (size_t i = 0; i < step.args.size(); ++i) {
      Set(table_, static_cast<int64_t>(i), AddressOf(step.args[i]), &in_table_[i]);
    }
    llvm::Type* pointer = builder_.getPtrTy();
    auto callee =
        module_.getOrInsertFunction(plan_.functions[step.function].symbol + "_run",
                                    llvm::FunctionType::get(builder_.getInt32Ty(), {pointer, pointer}, false));
    auto* rc = builder_.CreateCall(callee, {context_, table_});
    rc->setDoesNotThrow();
    // A task of a parallel loop can have set an error though the call returned 0.
    llvm::Value* failed = builder_.CreateZExt(builder_.CreateLoad(builder_.getInt8Ty(), owner_), builder_.getInt32Ty());
    llvm::Value* bad = builder_.CreateICmpNE(builder_.CreateOr(rc, failed), builder_.getInt32(0));
    llvm::BasicBlock* from = builder_.GetInsertBlock();
    auto* next = llvm::BasicBlock::Create(module_.getContext(), "", function_);
    if (failure_ == nullptr) failure_ = llvm::BasicBlock::Create(module_.getContext(), "failure");
    builder_.CreateCondBr(bad, failure_, next, llvm::MDBuilder(module_.getContext()).createUnlikelyBranchWeights());
    failures_.push_back({from, rc, index});
    builder_.SetInsertPoint(next);
  }

  // One end for all calls: says which step it was.
  void EmitFailure() {
    if (failure_ == nullptr) return;
    failure_->insertInto(function_);
    builder_.SetInsertPoint(failure_);
    auto* rc = builder_.CreatePHI(builder_.getInt32Ty(), failures_.size());
    auto* step = builder_.CreatePHI(builder_.getInt32Ty(), failures_.size());
    for (const Failure& f : failures_) {
      rc->addIncoming(f.rc, f.from);
      step->addIncoming(builder_.getInt32(f.step), f.from);
    }
    builder_.CreateStore(step, At(caller_, offsetof(InlayCallContext, reserved)));
    builder_.CreateRet(rc);
  }

  struct Failure {
    llvm::BasicBlock* from;
    llvm::Value* rc;
    int step;
  };

  const ExecutionPlan& plan_;
  llvm::Module module_;
  llvm::IRBuilder<> builder_;
  llvm::Function* function_ = nullptr;
  llvm::Value *caller_ = nullptr, *arguments_ = nullptr, *fixed_ = nullptr, *arena_ = nullptr, *owner_ = nullptr;
  llvm::AllocaInst *table_ = nullptr, *context_ = nullptr;
  llvm::BasicBlock* failure_ = nullptr;
  std::vector<Failure> failures_;
  std::optional<Address> in_state_, in_workspace_;  // what the context holds now
  std::vector<std::optional<Address>> in_table_;
};

}  // namespace

absl::StatusOr<std::string> EmitEntryObject(const std::string& symbol, const ExecutionPlan& plan,
                                            const target::Target& target) {
  llvm::LLVMContext context;
  EntryEmitter emitter(plan, &context);
  emitter.Emit(symbol);
  return backends::EmitObject(emitter.module(), target);
}

}  // namespace inlay::aot
