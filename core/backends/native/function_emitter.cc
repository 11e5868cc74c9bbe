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
// The closure of a kernel: {args, workspace, state, iteration, threads}, eight bytes each.
constexpr int64_t kIterationOffset = 24, kThreadsOffset = 32, kClosureBytes = 40;
constexpr int64_t kChunk = 4096;  // elements of a work item where one row is all there is

LLVM::LLVMPointerType PointerType(mlir::OpBuilder& b) { return LLVM::LLVMPointerType::get(b.getContext()); }

Value Field(Ops& o, Value structure, int64_t byte_offset, mlir::Type type) {
  return o.b.create<LLVM::LoadOp>(o.loc, type, o.At(structure, byte_offset, o.b.getI8Type()), 4);
}

}  // namespace

Indices Delinearise(Ops& o, Value linear, const std::vector<int64_t>& shape) {
  Indices indices(shape.size());
  Value rest = linear;
  int first = 0;
  while (first < static_cast<int>(shape.size()) && shape[first] == 1) ++first;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    if (shape[i] == 1) {
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
      if (buffers_.count(t) == 0) buffers_[t] = AllocateWorkspace(t->NumBytes());
      last_use.emplace(t, i);
    }
    current_ = &plan;
    INLAY_RETURN_IF_ERROR(Annotate(EmitPlan(plan), ir::Describe(*plan.node->binding)));
    current_ = nullptr;
    for (const Buffer& buffer : temporaries_) FreeWorkspace(buffer);
    temporaries_.clear();
    for (const auto& [tensor, last] : last_use) {
      auto found = buffers_.find(tensor);
      if (last == i && found != buffers_.end() && found->second.kind == Buffer::Kind::kWorkspace) {
        FreeWorkspace(found->second);
      }
    }
  }
  CopyRemainingResults();
  EmittedFunction result;
  result.workspace_bytes = workspace_bytes_;
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
    if ((from.kind == to.kind && from.value == to.value) || result.NumElements() == 0) continue;
    Parallel(1, 0, [&](Kernel& k, Value, Value) { k.o.CopyBytes(k.Pointer(to), k.Pointer(from), result.NumBytes()); });
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

Buffer FunctionEmitter::AllocateWorkspace(int64_t bytes) {
  bytes = (std::max<int64_t>(bytes, 1) + 63) / 64 * 64;
  int64_t offset = 0;
  auto at = live_.begin();
  for (; at != live_.end() && at->offset - offset < bytes; ++at) offset = at->offset + at->bytes;
  live_.insert(at, {offset, bytes});
  workspace_bytes_ = std::max(workspace_bytes_, offset + bytes);
  return {Buffer::Kind::kWorkspace, offset};
}

void FunctionEmitter::FreeWorkspace(const Buffer& buffer) {
  for (auto at = live_.begin(); at != live_.end(); ++at) {
    if (at->offset != buffer.value) continue;
    live_.erase(at);
    return;
  }
}

Buffer FunctionEmitter::Temporary(int64_t bytes) {
  temporaries_.push_back(AllocateWorkspace(bytes));
  return temporaries_.back();
}

Buffer FunctionEmitter::State(int64_t bytes) {
  Buffer buffer{Buffer::Kind::kState, state_bytes_};
  state_bytes_ += (std::max<int64_t>(bytes, 1) + 63) / 64 * 64;
  return buffer;
}

// --- kernels

void FunctionEmitter::Parallel(int64_t items, double cost, const Body& body, Phase phase) {
  if (items <= 0) return;
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
  if (current_ != nullptr && current_->has_tail) {
    kernel.tail_anchor = current_->node->outputs[0];
    kernel.tail_root = current_->root;
  }
  body(kernel, entry->getArgument(1), entry->getArgument(2));
  builder_.create<LLVM::ReturnOp>(ops_.loc, mlir::ValueRange());
  last_irregular_ = kernel.irregular;
  auto& steps = phase == Phase::kRun ? run_steps_ : init_steps_;
  int64_t repetition = repeating_ ? static_cast<int64_t>(repetitions_.size()) - 1 : -1;
  steps.push_back({name, items, items > 1 && items * cost > kParallelCycles, repetition});
}

void FunctionEmitter::ParallelEach(int64_t items, double cost, const std::function<void(Kernel&, Value)>& body,
                                   Phase phase) {
  Parallel(
      items, cost,
      [&](Kernel& k, Value begin, Value end) {
        if (items == 1) return body(k, k.o.Int(0));
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

void FunctionEmitter::WithLanesOrScalar(int64_t lanes, int cost, const std::function<void(int64_t)>& emit) {
  last_irregular_ = 0;
  emit(lanes);
  // A vector's worth of scalar loads costs about as much as `lanes` cycles; short computations do not earn that back.
  if (lanes == 1 || last_irregular_ == 0 || cost >= 2 * lanes * last_irregular_) return;
  DropLastKernel();
  emit(1);
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
std::vector<int64_t> Padded(const Tensor& t, int rank) {
  std::vector<int64_t> shape(rank - t.rank(), 1);
  shape.insert(shape.end(), t.shape.begin(), t.shape.end());
  return shape;
}

// Whether each tensor is either full or 1 in all of root's dimensions [begin, end).
bool GroupMerges(const std::vector<const Tensor*>& tensors, const Tensor& root, int begin, int end) {
  for (const Tensor* t : tensors) {
    if (t->rank() > root.rank()) return false;
    std::vector<int64_t> shape = Padded(*t, root.rank());
    bool full = true, one = true;
    for (int i = begin; i < end; ++i) {
      full &= shape[i] == root.shape[i];
      one &= shape[i] == 1;
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

bool FunctionEmitter::MergeDimsOf(const Tensor& root, const std::vector<int>& groups,
                                  std::map<const Tensor*, std::vector<int64_t>>* shapes) {
  bool pointwise = true;
  const Tensor* stop = current_ != nullptr && current_->has_tail ? current_->node->outputs[0] : nullptr;
  std::vector<const Tensor*> tensors = Expression(root, stop, &pointwise);
  bool trivial = std::all_of(groups.begin(), groups.end(), [](int g) { return g == 1; });
  auto merge = [&](const Tensor& t) {
    if (trivial) return t.shape;
    std::vector<int64_t> shape = Padded(t, root.rank()), merged;
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

bool FunctionEmitter::MergeDims(const Node& node, const std::vector<int>& groups,
                                std::map<const Tensor*, std::vector<int64_t>>* shapes) {
  const Tensor& stored = StoredTensor(node);
  if (current_->has_tail) return MergeDimsOf(stored, groups, shapes);
  std::vector<int64_t> merged;
  int begin = 0;
  for (int size : groups) {
    merged.push_back(Product(stored.shape, begin, begin + size));
    begin += size;
  }
  (*shapes)[&stored] = merged;
  return true;
}

int64_t FunctionEmitter::LanesForBytes(int64_t widest, int64_t extent) const {
  int64_t lanes = std::max<int64_t>(cpu_.vector_bytes / widest, 1);
  while (lanes > extent && lanes > 1) lanes /= 2;
  return lanes;
}

int64_t FunctionEmitter::LanesFor(const std::vector<const Tensor*>& tensors, int64_t extent) const {
  int64_t widest = 1;
  for (const Tensor* t : tensors) {
    widest =
        std::max(widest, ir::IsFloat(t->dtype) ? std::max<int64_t>(4, ir::ByteSize(t->dtype)) : ir::ByteSize(t->dtype));
  }
  return LanesForBytes(widest, extent);
}

void FunctionEmitter::Pointwise(const Tensor& root) {
  if (root.NumElements() == 0) return;
  bool pointwise = false;
  int cost = 0;
  std::vector<const Tensor*> tensors = Expression(root, nullptr, &pointwise, &cost);
  Loop loop{root, 0, {}, {}, false, cost};
  if (pointwise) MergeDimsOf(root, MergeableGroups(root), &loop.shapes);
  loop.shape = loop.shapes.count(&root) ? loop.shapes[&root] : root.shape;
  loop.scalar = loop.shape.empty();
  if (loop.scalar) loop.shape.push_back(1);
  while (root.producer->outputs[loop.output] != &root) ++loop.output;

  int64_t lanes = LanesFor(tensors, loop.shape.back());
  EmitRows(loop, lanes);
  if (lanes == 1 || last_irregular_ == 0) return;
  // Perhaps another dimension is the one along which memory is contiguous (a transposition).
  int irregular = last_irregular_;
  for (int along = static_cast<int>(loop.shape.size()) - 2; along >= 0; --along) {
    int64_t side = std::min(LanesFor(tensors, std::min(loop.shape[along], loop.shape.back())), int64_t{16});
    if (side < 4 || root.dtype == ir::DType::kBool) continue;
    DropLastKernel();
    EmitTransposed(loop, along, side);
    if (last_irregular_ == 0) return;
    DropLastKernel();
    EmitRows(loop, lanes);
  }
  // A vector's worth of scalar loads costs about as much as `lanes` cycles; short computations do not earn that back.
  if (cost >= 2 * lanes * irregular) return;
  DropLastKernel();
  EmitRows(loop, 1);
}

void FunctionEmitter::EmitRows(const Loop& loop, int64_t lanes) {
  const Node& node = *loop.root.producer;
  const Lowering& lowering = *FindLowering(node.op);
  std::vector<int64_t> outer(loop.shape.begin(), loop.shape.end() - 1);
  int64_t inner = loop.shape.back(), rows = Product(outer);
  int64_t chunk = rows < 8 && inner >= 2 * kChunk ? kChunk : inner;
  int64_t chunks = (inner + chunk - 1) / chunk;
  double cycles = static_cast<double>(chunk) / lanes * (loop.cost + 2);
  ParallelEach(rows * chunks, cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, o.Div(item, chunks), outer);
    Value low = o.Mul(o.Rem(item, chunks), chunk);
    Value high = chunks == 1 ? o.Int(inner) : o.Min(o.Add(low, chunk), o.Int(inner));
    o.For(low, high, lanes, [&](Value i) {
      // The last vector of a row whose length is no multiple starts earlier: some elements are stored twice.
      if (inner % lanes != 0) i = o.Min(i, o.Int(inner - lanes));
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
  std::vector<int64_t> outer = loop.shape;
  int last = static_cast<int>(loop.shape.size()) - 1;
  int64_t length = loop.shape[along], inner = loop.shape[last];
  int64_t bands = (length + side - 1) / side;
  outer[along] = bands;
  outer.pop_back();
  double cycles = static_cast<double>(inner) * (loop.cost + 8);
  ParallelEach(Product(outer), cycles, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    k.shapes = loop.shapes;
    Indices indices = Delinearise(o, item, outer);
    Value band = o.Min(o.Mul(indices[along].base, side), o.Int(length - side));
    o.For(o.Int(0), o.Int(inner), side, [&](Value i) {
      if (inner % side != 0) i = o.Min(i, o.Int(inner - side));
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
  Value closure = ops_.StackBytes(kClosureBytes);
  auto store = [&](Value v, int64_t offset) {
    builder_.create<LLVM::StoreOp>(ops_.loc, v, ops_.At(closure, offset, builder_.getI8Type()), 8);
  };
  store(args, 0);
  store(Field(ops_, context, offsetof(InlayCallContext, workspace), pointer), 8);

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
  mlir::Type pointer = PointerType(builder_), i32 = builder_.getI32Type(), i64 = builder_.getI64Type();
  Value threads = Field(ops_, context, offsetof(InlayCallContext, num_threads), i32);
  Value several = ops_.CompareI(Compare::kGt, threads, ops_.ConstI(i32, 1), true);
  auto store = [&](Value v, int64_t offset) {
    builder_.create<LLVM::StoreOp>(ops_.loc, v, ops_.At(closure, offset, builder_.getI8Type()), 8);
  };
  store(ops_.ExtendI(threads, i64, true), kThreadsOffset);
  auto call = [&](const Step& step) {
    auto serial = [&] {
      builder_.create<LLVM::CallOp>(ops_.loc, mlir::TypeRange(), step.function,
                                    mlir::ValueRange{closure, ops_.Int(0), ops_.Int(step.items), ops_.ConstI(i32, 0)});
    };
    if (!step.parallel) return serial();
    ops_.If(
        several,
        [&] {
          Value pool = Field(ops_, context, offsetof(InlayCallContext, pool), pointer);
          Value parallel_for = Field(ops_, context, offsetof(InlayCallContext, parallel_for), pointer);
          Value task = builder_.create<LLVM::AddressOfOp>(ops_.loc, pointer, step.function);
          auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder_.getContext()),
                                                  {pointer, i64, pointer, pointer});
          builder_.create<LLVM::CallOp>(ops_.loc, type,
                                        mlir::ValueRange{parallel_for, pool, ops_.Int(step.items), task, closure});
        },
        serial);
  };
  for (size_t first = 0; first < steps.size();) {
    size_t last = first + 1;
    if (steps[first].repetition < 0) {
      call(steps[first]);
    } else {
      while (last < steps.size() && steps[last].repetition == steps[first].repetition) ++last;
      ops_.For(repetitions_[steps[first].repetition], [&](Value i) {
        store(i, kIterationOffset);
        for (size_t s = first; s < last; ++s) call(steps[s]);
      });
    }
    first = last;
  }
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
