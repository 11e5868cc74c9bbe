#include "core/backends/native/function_emitter.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/backends/native/closure.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/depthwise_block.h"
#include "core/backends/native/rounding.h"
#include "core/base/status_macros.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace inlay::native {

namespace LLVM = mlir::LLVM;
using mlir::Value;

Indices Delinearise(Ops& o, Value linear, const Shape& shape) {
  Indices indices(shape.size());
  Value rest = linear;
  int first = 0;
  while (first < static_cast<int>(shape.size()) && shape[first] == Extent(1)) ++first;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    if (shape[i] == Extent(1)) {
      indices[i] = o.Int(0);
    } else if (i == first) {
      indices[i] = rest;
    } else {
      indices[i] = o.Rem(rest, shape[i]);
      rest = o.Div(rest, shape[i]);
    }
  }
  return indices;
}

// --- Kernel

Value Kernel::Pointer(const Tensor& tensor) { return Pointer(function_->BufferOf(tensor)); }

Value Kernel::Pointer(const Buffer& buffer) {
  Value& pointer = pointers_[{static_cast<int>(buffer.kind), buffer.value}];
  if (pointer) return pointer;
  mlir::OpBuilder::InsertionGuard guard(o.b);
  o.b.setInsertionPoint(entry_point_);
  mlir::Type type = PointerType(o.b);
  switch (buffer.kind) {
    case Buffer::Kind::kArg: {
      (init_ ? function_->init_args_ : function_->run_args_).insert(buffer.value);
      Value args = Field(o, closure_, kArgsOffset, type);
      pointer = Field(o, args, buffer.value * 8, type);
      break;
    }
    case Buffer::Kind::kWorkspace:
      pointer = o.At(Field(o, closure_, kWorkspaceOffset, type), buffer.value, o.b.getI8Type());
      break;
    case Buffer::Kind::kState:
      pointer = o.At(Field(o, closure_, kStateOffset, type), buffer.value, o.b.getI8Type());
      break;
    case Buffer::Kind::kLiteral:
      pointer = function_->DataPointer(buffer.value);
      break;
    case Buffer::Kind::kOpenWorkspace:
      pointer = o.At(Field(o, closure_, kOpenWorkspaceOffset, type),
                     o.Int(function_->OpenWorkspaceOffset(buffer.value)), o.b.getI8Type());
      break;
    case Buffer::Kind::kNone:
      std::abort();  // a tensor without memory is never asked for its address
  }
  return pointer;
}

void Kernel::Computes(const KernelPlan& plan) {
  tail_anchor = plan.has_tail ? plan.node->outputs[0] : nullptr;
  tail_root = plan.has_tail ? plan.root : nullptr;
}

Value Kernel::AtEntry(const std::function<Value()>& emit) {
  mlir::OpBuilder::InsertionGuard guard(o.b);
  o.b.setInsertionPoint(entry_point_);
  return emit();
}

Value Kernel::Scratch(int64_t bytes) {
  return AtEntry([&] { return o.StackBytes(std::max<int64_t>(bytes, 64)); });
}

Value Kernel::Iteration() {
  return AtEntry([&] { return Field(o, closure_, kIterationOffset, o.b.getI64Type()); });
}

Value Kernel::NumThreads() {
  return AtEntry([&] { return Field(o, closure_, kThreadsOffset, o.b.getI64Type()); });
}

// --- FunctionEmitter

FunctionEmitter::FunctionEmitter(mlir::ModuleOp module, const CpuFeatures& cpu, std::string symbol, Graph* graph)
    : module_(module),
      cpu_(cpu),
      symbol_(std::move(symbol)),
      graph_(graph),
      builder_(module.getContext()),
      ops_(builder_, mlir::UnknownLoc::get(module.getContext()), &module_, cpu) {}

absl::StatusOr<EmittedFunction> FunctionEmitter::Emit() {
  INLAY_ASSIGN_OR_RETURN(plans_, PlanKernels(graph_));
  FuseDepthwiseBlocks(*this, &plans_);
  AssignResults();
  MakeByteTables();
  std::map<const Tensor*, int> last_use;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    for (const Tensor* t : plans_[i].reads) last_use[t] = i;
  }
  for (const Tensor* t : graph_->results) last_use[t->Base()] = static_cast<int>(plans_.size());
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    const KernelPlan& plan = plans_[i];
    std::vector<const Tensor*> written;
    if (plan.root != nullptr) {
      written.push_back(plan.root);
    } else {
      for (const Tensor* out : plan.node->outputs) {
        if (!out->inlined && out->alias_of == nullptr) written.push_back(out);
      }
    }
    for (const Tensor* t : written) {
      if (buffers_.count(t) == 0) buffers_[t] = AllocateWorkspace(t->Bytes());
      last_use.emplace(t, i);
    }
    current_ = &plan;
    INLAY_RETURN_IF_ERROR(Annotate(EmitPlan(plan), ir::Describe(*plan.node->binding)));
    current_ = nullptr;
    for (const Buffer& buffer : temporaries_) FreeWorkspace(buffer);
    temporaries_.clear();
    for (const auto& [tensor, last] : last_use) {
      auto found = buffers_.find(tensor);
      if (last == i && found != buffers_.end()) FreeWorkspace(found->second);
    }
  }
  CopyRemainingResults();
  EmittedFunction result;
  result.workspace_bytes = workspace_bytes_;
  if (!open_slots_.empty()) {
    result.workspace_bytes = Extent(workspace_bytes_) + OpenWorkspaceEnd(open_slots_.size());
    if (result.workspace_bytes.kind() != Extent::Kind::kPolynomial) {
      return absl::UnimplementedError("native: a workspace whose size is no short polynomial of the open dimensions");
    }
  }
  result.has_state = state_bytes_ > 0;
  for (int i = 0; i < static_cast<int>(graph_->params.size()); ++i) {
    if (init_args_.count(i) > 0 && run_args_.count(i) == 0) result.init_only_params.push_back(i);
  }
  result.in_place = in_place_;
  if (result.has_state) {
    EmitEntry(Phase::kInit);
    EmitDestroy();
  }
  EmitEntry(Phase::kRun);
  return result;
}

absl::Status FunctionEmitter::EmitPlan(const KernelPlan& plan) {
  if (!plan.within.empty()) {
    EmitDepthwiseBlock(*this, plan);
    return absl::OkStatus();
  }
  const Lowering* lowering = FindLowering(plan.node->op);
  if (plan.root != nullptr && !plan.has_tail) {
    Pointwise(*plan.root);
    return absl::OkStatus();
  }
  return lowering->kernel(*this, *plan.node);
}

void FunctionEmitter::For(const KernelPlan& plan, const std::function<void()>& f) {
  const KernelPlan* outer = current_;
  current_ = &plan;
  f();
  current_ = outer;
}

void FunctionEmitter::AssignResults() {
  for (size_t i = 0; i < graph_->params.size(); ++i) {
    buffers_[graph_->params[i]] = {Buffer::Kind::kArg, static_cast<int64_t>(i)};
  }
  for (size_t i = 0; i < graph_->results.size(); ++i) {
    const Tensor* base = graph_->results[i]->Base();
    if (base->producer == nullptr || buffers_.count(base) > 0) continue;
    buffers_[base] = {Buffer::Kind::kArg, static_cast<int64_t>(graph_->params.size() + i)};
  }
}

void FunctionEmitter::CopyRemainingResults() {
  for (size_t i = 0; i < graph_->results.size(); ++i) {
    const Tensor& result = *graph_->results[i];
    Buffer from = BufferOf(result);
    Buffer to = {Buffer::Kind::kArg, static_cast<int64_t>(graph_->params.size() + i)};
    if ((from.kind == to.kind && from.value == to.value) || result.IsEmpty()) continue;
    Parallel(1, 0, [&](Kernel& k, Value, Value) { k.o.CopyBytes(k.Pointer(to), k.Pointer(from), result.Bytes()); });
  }
}

bool FunctionEmitter::MayBeOne(const Tensor& from, const Tensor& to) {
  const Tensor* param = &from;
  while (param->alias_of != nullptr && param->users.size() == 1 && !param->is_result) param = param->alias_of;
  if (param->param < 0 || param->users.size() != 1 || param->is_result || graph_->param_is_constant[param->param]) {
    return false;
  }
  const auto of_to = [&](const Tensor* result) { return result->Base() == &to; };
  const auto result = std::find_if(graph_->results.begin(), graph_->results.end(), of_to);
  if (result == graph_->results.end() || from.dtype != to.dtype || (*result)->dims != param->dims) return false;
  in_place_.resize(graph_->results.size(), -1);
  in_place_[result - graph_->results.begin()] = param->param;
  return true;
}

Buffer FunctionEmitter::BufferOf(const Tensor& tensor) {
  const Tensor* base = tensor.Base();
  auto found = buffers_.find(base);
  if (found != buffers_.end()) return found->second;
  if (base->literal != nullptr) {
    return buffers_[base] = Data(base->literal->data);
  }
  return {};
}

Buffer FunctionEmitter::Data(std::string bytes) {
  data_.push_back(std::move(bytes));
  return {Buffer::Kind::kLiteral, static_cast<int64_t>(data_.size()) - 1};
}

bool FunctionEmitter::IsConstantParam(const Tensor& tensor) const {
  const Tensor* base = tensor.Base();
  return base->param >= 0 && graph_->param_is_constant[base->param];
}

Value FunctionEmitter::DataPointer(int64_t number) {
  std::string name = absl::StrCat(symbol_, ".l", number);
  if (!module_.lookupSymbol<LLVM::GlobalOp>(name)) {
    mlir::OpBuilder::InsertionGuard guard(builder_);
    builder_.setInsertionPointToStart(module_.getBody());
    const std::string& data = data_[number];
    auto type = LLVM::LLVMArrayType::get(builder_.getI8Type(), data.size());
    builder_.create<LLVM::GlobalOp>(ops_.loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name,
                                    builder_.getStringAttr(data), /*alignment=*/64);
  }
  return builder_.create<LLVM::AddressOfOp>(ops_.loc, PointerType(builder_), name);
}

// --- memory

// Sizes that symbols decide are no numbers to fit together: each has a slot, which later ones of equal size take over.
// Slots lie behind each other, each with room to begin at a multiple of the alignment.
Extent FunctionEmitter::OpenWorkspaceEnd(size_t slots) const {
  Extent end = 0;
  for (size_t i = 0; i < slots; ++i) end = end + open_slots_[i].bytes + kLineBytes;
  return end;
}

Extent FunctionEmitter::OpenWorkspaceOffset(int64_t slot) const { return RoundUp(OpenWorkspaceEnd(slot), kLineBytes); }

Buffer FunctionEmitter::AllocateWorkspace(const Extent& size) {
  if (!size.is_static()) {
    size_t slot = 0;
    while (slot < open_slots_.size() && (open_slots_[slot].live || open_slots_[slot].bytes != size)) ++slot;
    if (slot == open_slots_.size()) open_slots_.push_back({size, true});
    open_slots_[slot].live = true;
    return {Buffer::Kind::kOpenWorkspace, static_cast<int64_t>(slot)};
  }
  int64_t bytes = RoundUp(std::max<int64_t>(size.value(), 1), kLineBytes);
  int64_t offset = 0;
  auto at = live_.begin();
  for (; at != live_.end() && at->offset - offset < bytes; ++at) offset = at->offset + at->bytes;
  live_.insert(at, {offset, bytes});
  workspace_bytes_ = std::max(workspace_bytes_, offset + bytes);
  return {Buffer::Kind::kWorkspace, offset};
}

void FunctionEmitter::FreeWorkspace(const Buffer& buffer) {
  if (buffer.kind == Buffer::Kind::kOpenWorkspace) open_slots_[buffer.value].live = false;
  if (buffer.kind != Buffer::Kind::kWorkspace) return;
  for (auto at = live_.begin(); at != live_.end(); ++at) {
    if (at->offset != buffer.value) continue;
    live_.erase(at);
    return;
  }
}

Buffer FunctionEmitter::Temporary(const Extent& bytes) {
  temporaries_.push_back(AllocateWorkspace(bytes));
  return temporaries_.back();
}

Buffer FunctionEmitter::State(int64_t bytes) {
  Buffer buffer{Buffer::Kind::kState, state_bytes_};
  state_bytes_ += RoundUp(std::max<int64_t>(bytes, 1), kLineBytes);
  return buffer;
}

// --- kernels

void FunctionEmitter::ResolveOpenExtents(const std::function<Value()>& args, mlir::Operation* entry_point,
                                         std::map<std::string, Value>* known) {
  ops_.open = [this, args, entry_point, known](const Extent& e) {
    Value& value = (*known)[e.Key()];
    if (value) return value;
    mlir::OpBuilder::InsertionGuard guard(builder_);
    builder_.setInsertionPoint(entry_point);
    int64_t behind = static_cast<int64_t>(graph_->params.size() + graph_->results.size());
    Value made = ops_.EvaluateOpen(e, [&](const std::string& name) {
      Value& symbol = (*known)[absl::StrCat("symbol ", name)];
      if (symbol) return symbol;
      const auto& names = graph_->symbols;
      int64_t number = std::find(names.begin(), names.end(), name) - names.begin();
      return symbol =
                 Field(ops_, Field(ops_, args(), behind * 8, PointerType(builder_)), number * 8, builder_.getI64Type());
    });
    return value = made;
  };
}

void FunctionEmitter::Parallel(const Extent& items, const Cycles& cost, const Body& body, Phase phase) {
  if (items.is_static() && items.value() <= 0) return;
  mlir::OpBuilder::InsertionGuard guard(builder_);
  builder_.setInsertionPointToEnd(module_.getBody());
  std::string name = absl::StrCat(symbol_, ".k", num_kernels_++);
  mlir::Type pointer = PointerType(builder_), i64 = builder_.getI64Type(), i32 = builder_.getI32Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder_.getContext()), {pointer, i64, i64, i32});
  auto function = builder_.create<LLVM::LLVMFuncOp>(ops_.loc, name, type, LLVM::Linkage::Internal);
  // It is called in two ways, at once and through parallel_for: inlined into one, its code would be compiled twice.
  function.setPassthroughAttr(builder_.getStrArrayAttr({"noinline"}));
  mlir::Block* entry = function.addEntryBlock(builder_);
  builder_.setInsertionPointToEnd(entry);
  Kernel kernel(this, &ops_);
  kernel.entry_ = entry;
  kernel.init_ = phase == Phase::kInit;
  kernel.closure_ = entry->getArgument(0);
  kernel.worker = entry->getArgument(3);
  kernel.entry_point_ = ops_.Int(0).getDefiningOp();
  ResolveOpenExtents([&] { return Field(ops_, kernel.closure_, kArgsOffset, PointerType(builder_)); },
                     kernel.entry_point_, &kernel.extents_);
  if (current_ != nullptr) kernel.Computes(*current_);
  body(kernel, entry->getArgument(1), entry->getArgument(2));
  ops_.open = nullptr;
  builder_.create<LLVM::ReturnOp>(ops_.loc, mlir::ValueRange());
  last_irregular_ = kernel.irregular;
  auto& steps = phase == Phase::kRun ? run_steps_ : init_steps_;
  int64_t repetition = repeating_ ? static_cast<int64_t>(repetitions_.size()) - 1 : -1;
  steps.push_back({name, items, cost, repetition, conditions_, negated_});
}

void FunctionEmitter::ParallelEach(const Extent& items, const Cycles& cost,
                                   const std::function<void(Kernel&, Value)>& body, Phase phase) {
  Parallel(
      items, cost,
      [&](Kernel& k, Value begin, Value end) {
        if (items == Extent(1)) return body(k, k.o.Int(0));
        k.o.For(begin, end, 1, [&](Value i) { body(k, i); });
      },
      phase);
}

void FunctionEmitter::Repeat(const Extent& times, const std::function<void()>& emit) {
  repetitions_.push_back(times);
  repeating_ = true;
  emit();
  repeating_ = false;
}

void FunctionEmitter::WithLanesOrScalar(const Extent& extent, int64_t lanes, int cost,
                                        const std::function<void(int64_t)>& emit) {
  last_irregular_ = 0;
  WithLanes(extent, lanes, emit);
  // A vector's worth of scalar loads costs about as much as `lanes` cycles; short computations do not earn that back.
  int irregular = last_irregular_;
  if (lanes == 1 || irregular == 0 || cost >= 2 * lanes * irregular) return;
  DropLastKernel();
  if (!AlwaysFits(extent, lanes)) DropLastKernel();
  emit(1);
}

void FunctionEmitter::FirstRegular(const std::vector<std::function<void()>>& ways) {
  for (const auto& way : ways) {
    way();
    if (last_irregular_ == 0) return;
    DropLastKernel();
  }
  ways[0]();
}

void FunctionEmitter::WithLanes(const Extent& extent, int64_t lanes, const std::function<void(int64_t)>& emit) {
  if (AlwaysFits(extent, lanes)) return emit(lanes);
  int irregular = 0;
  Either(
      {{extent, lanes, INT64_MAX}},
      [&] {
        emit(lanes);
        irregular = last_irregular_;
      },
      [&] { emit(1); });
  last_irregular_ = irregular;
}

void FunctionEmitter::Either(const std::vector<Condition>& conditions, const std::function<void()>& emit,
                             const std::function<void()>& otherwise) {
  conditions_ = conditions;
  emit();
  negated_ = true;
  otherwise();
  negated_ = false;
  conditions_.clear();
}

void FunctionEmitter::DropLastKernel() {
  module_.lookupSymbol<LLVM::LLVMFuncOp>(run_steps_.back().function).erase();
  run_steps_.pop_back();
}

}  // namespace inlay::native
