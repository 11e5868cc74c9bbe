#include "core/backends/native/function_emitter.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/backends/native/lowering.h"
#include "core/base/status_macros.h"
#include "core/runtime/kernel_abi.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace inlay::native {

namespace LLVM = mlir::LLVM;
using mlir::Value;

namespace {

constexpr double kParallelCycles = 60000;  // below, waking the other threads costs more than it saves
// The closure of a kernel: {args, workspace, state, iteration, threads, open workspace}, eight bytes each.
constexpr int64_t kIterationOffset = 24, kThreadsOffset = 32, kOpenWorkspaceOffset = 40, kClosureBytes = 48;
constexpr int64_t kAlignment = 64;
constexpr int64_t kChunk = 4096;  // elements of a work item where one row is all there is

LLVM::LLVMPointerType PointerType(mlir::OpBuilder& b) { return LLVM::LLVMPointerType::get(b.getContext()); }

Value Field(Ops& o, Value structure, int64_t byte_offset, mlir::Type type) {
  return o.b.create<LLVM::LoadOp>(o.loc, type, o.At(structure, byte_offset, o.b.getI8Type()), 4);
}

}  // namespace

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
      Value args = Field(o, closure_, 0, type);
      pointer = Field(o, args, buffer.value * 8, type);
      break;
    }
    case Buffer::Kind::kWorkspace:
      pointer = o.At(Field(o, closure_, 8, type), buffer.value, o.b.getI8Type());
      break;
    case Buffer::Kind::kState:
      pointer = o.At(Field(o, closure_, 16, type), buffer.value, o.b.getI8Type());
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
  AssignResults();
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
  if (result.has_state) {
    EmitEntry(Phase::kInit);
    EmitDestroy();
  }
  EmitEntry(Phase::kRun);
  return result;
}

absl::Status FunctionEmitter::EmitPlan(const KernelPlan& plan) {
  const Lowering* lowering = FindLowering(plan.node->op);
  if (plan.root != nullptr && !plan.has_tail) {
    Pointwise(*plan.root);
    return absl::OkStatus();
  }
  return lowering->kernel(*this, *plan.node);
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
  for (size_t i = 0; i < slots; ++i) end = end + open_slots_[i].bytes + kAlignment;
  return end;
}

Extent FunctionEmitter::OpenWorkspaceOffset(int64_t slot) const {
  return CeilDiv(OpenWorkspaceEnd(slot), kAlignment) * kAlignment;
}

Buffer FunctionEmitter::AllocateWorkspace(const Extent& size) {
  if (!size.is_static()) {
    size_t slot = 0;
    while (slot < open_slots_.size() && (open_slots_[slot].live || open_slots_[slot].bytes != size)) ++slot;
    if (slot == open_slots_.size()) open_slots_.push_back({size, true});
    open_slots_[slot].live = true;
    return {Buffer::Kind::kOpenWorkspace, static_cast<int64_t>(slot)};
  }
  int64_t bytes = (std::max<int64_t>(size.value(), 1) + 63) / 64 * 64;
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
  state_bytes_ += (std::max<int64_t>(bytes, 1) + 63) / 64 * 64;
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
  ResolveOpenExtents([&] { return Field(ops_, kernel.closure_, 0, PointerType(builder_)); }, kernel.entry_point_,
                     &kernel.extents_);
  if (current_ != nullptr && current_->has_tail) {
    kernel.tail_anchor = current_->node->outputs[0];
    kernel.tail_root = current_->root;
  }
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

void FunctionEmitter::Repeat(int64_t times, const std::function<void()>& emit) {
  repetitions_.push_back(times);
  repeating_ = true;
  emit();
  repeating_ = false;
}

namespace {

// Whether vectors of `lanes` along `extent` never reach beyond it (a last one may begin earlier).
bool AlwaysFits(const Extent& extent, int64_t lanes) {
  return lanes == 1 || extent.is_static() || extent.IsMultipleOf(lanes);
}

}  // namespace

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

std::vector<const Tensor*> FunctionEmitter::Expression(const Tensor& root, const Tensor* stop, bool* pointwise,
                                                       int* cost) const {
  std::vector<const Tensor*> tensors;
  std::set<const Tensor*> seen;
  bool all = true;
  int sum = 0;
  std::function<void(const Tensor&, bool)> visit = [&](const Tensor& t, bool expand) {
    if (!seen.insert(&t).second) return;
    tensors.push_back(&t);
    if (&t == stop || !expand) return;
    const Lowering* lowering = FindLowering(t.producer->op);
    all &= lowering->pointwise;
    sum += lowering->cost;
    for (const Tensor* in : t.producer->inputs) visit(*in, in->inlined);
  };
  visit(root, root.inlined || (root.producer != nullptr && current_ != nullptr && current_->root == &root));
  if (pointwise != nullptr) *pointwise = all;
  if (cost != nullptr) *cost = sum;
  return tensors;
}

const Tensor& FunctionEmitter::StoredTensor(const Node& node) const {
  return current_->has_tail ? *current_->root : *node.outputs[0];
}

namespace {

// The shape padded in front to the rank of `root`.
Shape Padded(const Tensor& t, int rank) {
  Shape shape(rank - t.rank(), Extent(1));
  shape.insert(shape.end(), t.dims.begin(), t.dims.end());
  return shape;
}

// Whether each tensor is either full or 1 in all of root's dimensions [begin, end).
bool GroupMerges(const std::vector<const Tensor*>& tensors, const Tensor& root, int begin, int end) {
  for (const Tensor* t : tensors) {
    if (t->rank() > root.rank()) return false;
    Shape shape = Padded(*t, root.rank());
    bool full = true, one = true;
    for (int i = begin; i < end; ++i) {
      full &= shape[i] == root.dims[i];
      one &= shape[i] == Extent(1);
    }
    if (!full && !one) return false;
  }
  return true;
}

}  // namespace

std::vector<int> FunctionEmitter::MergeableGroups(const Tensor& root, const std::vector<bool>& boundary_before) {
  bool pointwise = true;
  const Tensor* stop = current_ != nullptr && current_->has_tail ? current_->node->outputs[0] : nullptr;
  std::vector<const Tensor*> tensors = Expression(root, stop, &pointwise);
  std::vector<int> groups;
  for (int begin = 0; begin < root.rank();) {
    int end = begin + 1;
    while (pointwise && end < root.rank() && (boundary_before.empty() || !boundary_before[end]) &&
           GroupMerges(tensors, root, begin, end + 1)) {
      ++end;
    }
    groups.push_back(end - begin);
    begin = end;
  }
  return groups;
}

bool FunctionEmitter::MergeDimsOf(const Tensor& root, const std::vector<int>& groups, ShapeMap* shapes) {
  bool pointwise = true;
  const Tensor* stop = current_ != nullptr && current_->has_tail ? current_->node->outputs[0] : nullptr;
  std::vector<const Tensor*> tensors = Expression(root, stop, &pointwise);
  bool trivial = std::all_of(groups.begin(), groups.end(), [](int g) { return g == 1; });
  auto merge = [&](const Tensor& t) {
    if (trivial) return t.dims;
    Shape shape = Padded(t, root.rank()), merged;
    int begin = 0;
    for (int size : groups) {
      merged.push_back(Product(shape, begin, begin + size));
      begin += size;
    }
    return merged;
  };
  // One tensor may be read by what comes before a reduction and by what comes after it: it has one shape in a kernel.
  for (const Tensor* t : tensors) {
    if (auto found = shapes->find(t); found != shapes->end() && found->second != merge(*t)) return false;
  }
  if (!trivial && !pointwise) return false;
  int begin = 0;
  for (int size : groups) {
    if (!trivial && !GroupMerges(tensors, root, begin, begin + size)) return false;
    begin += size;
  }
  for (const Tensor* t : tensors) (*shapes)[t] = merge(*t);
  return true;
}

bool FunctionEmitter::MergeDims(const Node& node, const std::vector<int>& groups, ShapeMap* shapes) {
  const Tensor& stored = StoredTensor(node);
  if (current_->has_tail) return MergeDimsOf(stored, groups, shapes);
  Shape merged;
  int begin = 0;
  for (int size : groups) {
    merged.push_back(Product(stored.dims, begin, begin + size));
    begin += size;
  }
  (*shapes)[&stored] = merged;
  return true;
}

int64_t FunctionEmitter::LanesForBytes(int64_t widest, const Extent& extent) const {
  int64_t lanes = std::max<int64_t>(cpu_.vector_bytes / widest, 1);
  while (extent.is_static() && lanes > extent.value() && lanes > 1) lanes /= 2;
  return lanes;
}

int64_t FunctionEmitter::LanesFor(const std::vector<const Tensor*>& tensors, const Extent& extent) const {
  int64_t widest = 1;
  for (const Tensor* t : tensors) {
    widest =
        std::max(widest, ir::IsFloat(t->dtype) ? std::max<int64_t>(4, ir::ByteSize(t->dtype)) : ir::ByteSize(t->dtype));
  }
  return LanesForBytes(widest, extent);
}

void FunctionEmitter::Pointwise(const Tensor& root) {
  if (root.IsEmpty()) return;
  bool pointwise = false;
  int cost = 0;
  std::vector<const Tensor*> tensors = Expression(root, nullptr, &pointwise, &cost);
  Loop loop{root, 0, {}, {}, false, cost};
  if (pointwise) MergeDimsOf(root, MergeableGroups(root), &loop.shapes);
  loop.shape = loop.shapes.count(&root) ? loop.shapes[&root] : root.dims;
  loop.scalar = loop.shape.empty();
  if (loop.scalar) loop.shape.emplace_back(1);
  while (root.producer->outputs[loop.output] != &root) ++loop.output;

  const Extent& inner = loop.shape.back();
  int64_t lanes = LanesFor(tensors, inner);
  // What is emitted last computes with vectors along these extents: scalars where one of them is too short in a call.
  auto finish = [&](const std::vector<Condition>& vectors) {
    std::vector<Condition> conditions;
    for (const Condition& c : vectors) {
      if (!AlwaysFits(c.extent, c.least)) conditions.push_back(c);
    }
    if (conditions.empty()) return;
    run_steps_.back().conditions = conditions;
    Either(conditions, [] {}, [&] { EmitRows(loop, 1); });
  };
  EmitRows(loop, lanes);
  if (lanes == 1 || last_irregular_ == 0) return finish({{inner, lanes, INT64_MAX}});
  // Perhaps another dimension is the one along which memory is contiguous (a transposition).
  int irregular = last_irregular_;
  for (int along = static_cast<int>(loop.shape.size()) - 2; along >= 0; --along) {
    int64_t side = std::min({LanesFor(tensors, loop.shape[along]), LanesFor(tensors, inner), int64_t{16}});
    if (side < 4 || root.dtype == ir::DType::kBool) continue;
    DropLastKernel();
    EmitTransposed(loop, along, side);
    if (last_irregular_ == 0) return finish({{inner, side, INT64_MAX}, {loop.shape[along], side, INT64_MAX}});
    DropLastKernel();
    EmitRows(loop, lanes);
  }
  // A vector's worth of scalar loads costs about as much as `lanes` cycles; short computations do not earn that back.
  if (cost >= 2 * lanes * irregular) return finish({{inner, lanes, INT64_MAX}});
  DropLastKernel();
  EmitRows(loop, 1);
}

void FunctionEmitter::EmitRows(const Loop& loop, int64_t lanes) {
  const Node& node = *loop.root.producer;
  const Lowering& lowering = *FindLowering(node.op);
  Shape outer(loop.shape.begin(), loop.shape.end() - 1);
  Extent inner = loop.shape.back(), rows = Product(outer);
  bool chunked = rows.is_static() && rows.value() < 8 && (!inner.is_static() || inner.value() >= 2 * kChunk);
  Extent chunk = chunked ? Extent(kChunk) : inner, chunks = chunked ? CeilDiv(inner, kChunk) : Extent(1);
  Cycles cycles = Cycles(chunk) / lanes * (loop.cost + 2);
  ParallelEach(rows * chunks, cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, o.Div(item, chunks), outer);
    Value low = o.Mul(o.Rem(item, chunks), chunk);
    Value high = chunks == Extent(1) ? o.Int(inner) : o.Min(o.Add(low, chunk), o.Int(inner));
    o.For(low, high, lanes, [&](Value i) {
      // The last vector of a row whose length is no multiple starts earlier: some elements are stored twice.
      if (!inner.IsMultipleOf(lanes)) i = o.Min(i, o.Int(inner - lanes));
      Eval e(k, lanes);
      Indices at = indices;
      at.push_back(Index(i, lanes == 1 ? 0 : 1));
      if (loop.scalar) at.clear();
      k.StoreElement(loop.root, at, lowering.element(e, node, loop.output, at));
    });
  });
}

namespace {

// rows[i][j] -> rows[j][i], by exchanging blocks of 1, 2, 4, ... lanes between pairs of rows.
void TransposeSquare(Ops& o, std::vector<Value>* rows) {
  int64_t side = static_cast<int64_t>(rows->size());
  for (int64_t step = 1; step < side; step *= 2) {
    std::vector<int64_t> low, high;
    for (int64_t lane = 0; lane < side; ++lane) {
      low.push_back((lane & step) == 0 ? lane : side + lane - step);
      high.push_back((lane & step) == 0 ? lane + step : side + lane);
    }
    for (int64_t i = 0; i < side; ++i) {
      if ((i & step) != 0) continue;
      Value a = (*rows)[i], b = (*rows)[i + step];
      (*rows)[i] = o.Shuffle(a, b, low);
      (*rows)[i + step] = o.Shuffle(a, b, high);
    }
  }
}

}  // namespace

void FunctionEmitter::EmitTransposed(const Loop& loop, int along, int64_t side) {
  const Node& node = *loop.root.producer;
  const Lowering& lowering = *FindLowering(node.op);
  Shape outer = loop.shape;
  int last = static_cast<int>(loop.shape.size()) - 1;
  Extent length = loop.shape[along], inner = loop.shape[last];
  outer[along] = CeilDiv(length, side);
  outer.pop_back();
  Cycles cycles = Cycles(inner) * (loop.cost + 8);
  ParallelEach(Product(outer), cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, item, outer);
    Value band = o.Min(o.Mul(indices[along].base, side), o.Int(length - side));
    o.For(o.Int(0), o.Int(inner), side, [&](Value i) {
      if (!inner.IsMultipleOf(side)) i = o.Min(i, o.Int(inner - side));
      Indices at = indices;
      at.push_back(i);
      at[along] = Index(band, 1);
      std::vector<Value> square;
      for (int64_t r = 0; r < side; ++r) {
        Eval e(k, side);
        at[last] = o.Add(i, r);
        square.push_back(lowering.element(e, node, loop.output, at));
      }
      TransposeSquare(o, &square);
      at[last] = Index(i, 1);
      for (int64_t r = 0; r < side; ++r) {
        at[along] = o.Add(band, r);
        k.StoreElement(loop.root, at, square[r]);
      }
    });
  });
}

// --- entry points

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
  store(args, 0);
  Value workspace = Field(ops_, context, offsetof(InlayCallContext, workspace), pointer);
  store(workspace, 8);
  if (!open_slots_.empty()) store(ops_.At(workspace, workspace_bytes_, builder_.getI8Type()), kOpenWorkspaceOffset);

  auto run_steps = [&](Value state) {
    store(state, 16);
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
  Value threads = Field(ops_, context, offsetof(InlayCallContext, num_threads), i32);
  Value several = ops_.CompareI(Compare::kGt, threads, ops_.ConstI(i32, 1), true);
  auto store = [&](Value v, int64_t offset) {
    builder_.create<LLVM::StoreOp>(ops_.loc, v, ops_.At(closure, offset, builder_.getI8Type()), 8);
  };
  store(ops_.ExtendI(threads, i64, true), kThreadsOffset);
  for (size_t first = 0; first < steps.size();) {
    size_t last = first + 1;
    if (steps[first].repetition < 0) {
      EmitCall(steps[first], context, closure, several);
    } else {
      while (last < steps.size() && steps[last].repetition == steps[first].repetition) ++last;
      ops_.For(repetitions_[steps[first].repetition], [&](Value i) {
        store(i, kIterationOffset);
        for (size_t s = first; s < last; ++s) EmitCall(steps[s], context, closure, several);
      });
    }
    first = last;
  }
}

void FunctionEmitter::EmitCall(const Step& step, Value context, Value closure, Value several) {
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
    Value worth = IsWorthThreads(step, several);
    worth ? ops_.If(worth, parallel, serial) : serial();
  };
  Value runs = RunsWhere(step);
  runs ? ops_.If(runs, call) : call();
}

Value FunctionEmitter::RunsWhere(const Step& step) {
  Value all;
  auto add = [&](Value holds) { all = all ? ops_.And(all, holds) : holds; };
  for (const Condition& c : step.conditions) {
    Value extent = ops_.Int(c.extent);
    add(ops_.CompareI(Compare::kGe, extent, ops_.Int(c.least), true));
    if (c.most != INT64_MAX) add(ops_.CompareI(Compare::kLe, extent, ops_.Int(c.most), true));
  }
  return all && step.negated ? ops_.Not(all) : all;
}

Value FunctionEmitter::IsWorthThreads(const Step& step, Value several) {
  if (step.items.is_static() && step.cost.times().is_static()) {
    int64_t items = step.items.value();
    return items > 1 && items * step.cost.constant() > kParallelCycles ? several : nullptr;
  }
  if (step.items == Extent(1)) return nullptr;
  mlir::Type f64 = builder_.getF64Type();
  auto number = [&](const Extent& e) { return ops_.IntToFloat(ops_.Int(e), f64, true); };
  Value cost = ops_.ConstF(f64, step.cost.constant());
  if (step.cost.factor() != 0) {
    cost = ops_.AddF(cost, ops_.MulF(number(step.cost.times()), ops_.ConstF(f64, step.cost.factor())));
  }
  Value all = ops_.MulF(number(step.items), cost);
  Value enough = ops_.CompareF(Compare::kGt, all, ops_.ConstF(f64, kParallelCycles));
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
