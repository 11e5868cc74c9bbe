// FunctionEmitter: one partition as the functions of the kernel ABI (<symbol>_run, and _init and _destroy with state)
// and the kernels that they call, in an MLIR module. Lowerings see it to make kernels, temporaries and state.
//
// A kernel is a function of type InlayTask: it does work items [begin, end). <symbol>_run calls each in turn, through
// parallel_for where there is enough to do. Single-threaded; lives while one partition is emitted.
#ifndef INLAY_CORE_BACKENDS_NATIVE_FUNCTION_EMITTER_H_
#define INLAY_CORE_BACKENDS_NATIVE_FUNCTION_EMITTER_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/backends/native/depthwise_block_plan.h"
#include "core/backends/native/eval.h"
#include "core/backends/native/fusion.h"
#include "core/backends/native/graph.h"
#include "core/backends/native/winograd_plan.h"

namespace inlay::native {

struct EmittedFunction {
  bool has_state = false;
  Extent workspace_bytes;  // a number or a polynomial
  std::vector<int> init_only_params;
  std::vector<int> in_place;  // of each result, as in proto/artifact.proto; empty: none
};

enum class Phase { kRun, kInit };

class FunctionEmitter {
 public:
  FunctionEmitter(mlir::ModuleOp module, const CpuFeatures& cpu, std::string symbol, Graph* graph);

  void set_winograd(WinogradChoice choice) { winograd_ = choice; }
  void set_depthwise_block(DepthwiseBlockChoice choice) { depthwise_block_ = choice; }
  absl::StatusOr<EmittedFunction> Emit();

  // --- for lowerings

  const CpuFeatures& cpu() const { return cpu_; }
  WinogradChoice winograd() const { return winograd_; }
  DepthwiseBlockChoice depthwise_block() const { return depthwise_block_; }
  Ops& ops() { return ops_; }
  const Graph& graph() const { return *graph_; }

  // A kernel of `items` independent work items, each about `cost` cycles: body(kernel, begin, end). Kernels of a phase
  // run one after the other. Nothing is emitted for items = 0; an open number of them may be 0 in a run.
  using Body = std::function<void(Kernel&, mlir::Value begin, mlir::Value end)>;
  void Parallel(const Extent& items, const Cycles& cost, const Body& body, Phase phase = Phase::kRun);
  // The same with a loop around: body(kernel, item).
  void ParallelEach(const Extent& items, const Cycles& cost, const std::function<void(Kernel&, mlir::Value)>& body,
                    Phase phase = Phase::kRun);
  // The kernels that `emit` makes (of Phase::kRun) run one after the other, `times` times over: each a parallel loop of
  // its own, so that all items of one are done before the next begins. Kernel::Iteration says which time it is.
  void Repeat(const Extent& times, const std::function<void()>& emit);
  // Emits with vectors of `lanes` along `extent`; again with scalars if that met irregular accesses that computing does
  // not pay for.
  void WithLanesOrScalar(const Extent& extent, int64_t lanes, int cost, const std::function<void(int64_t lanes)>& emit);
  // Emits the first of these ways, each one kernel, that meets no irregular accesses; where all do, the first.
  void FirstRegular(const std::vector<std::function<void()>>& ways);
  // Emits kernels for extents of `lanes` and more, and where an open one may be less, others with scalars for that
  // case: which of them run is decided by each call.
  void WithLanes(const Extent& extent, int64_t lanes, const std::function<void(int64_t lanes)>& emit);
  // Kernels for the calls where all of the conditions hold, others for the calls where one does not.
  struct Condition {
    std::optional<Extent> extent;  // nothing: the number of threads
    int64_t least, most;
  };
  void Either(const std::vector<Condition>& conditions, const std::function<void()>& emit,
              const std::function<void()>& otherwise);

  // Memory of the call, until the kernels of the current node are done. 64-byte aligned.
  Buffer Temporary(const Extent& bytes);
  // Memory that _init fills and every run reads.
  Buffer State(int64_t bytes);
  // Constant data, part of the object.
  Buffer Data(std::string bytes);
  Buffer BufferOf(const Tensor& tensor);
  // Whether a tensor is a parameter that is constant after load (perhaps reshaped): then an init kernel may read it.
  bool IsConstantParam(const Tensor& tensor) const;
  // Whether a call may be given one memory for `from`, a parameter, and `to`, a result, for which a kernel that calls
  // this must be right: nothing else reads the parameter.
  bool MayBeOne(const Tensor& from, const Tensor& to);

  // Calls `f` with `plan` as what is being emitted: for one within another's kernel.
  void For(const KernelPlan& plan, const std::function<void()>& f);
  // What the current node's StoreResult stores: its output, or the end of its tail.
  const Tensor& StoredTensor(const Node& node) const;
  // Merges runs of dimensions of the stored tensor (groups: how many dimensions each) for the whole tail. False: a
  // tensor of the tail broadcasts within a group.
  bool MergeDims(const Node& node, const std::vector<int>& groups, ShapeMap* shapes);
  // The same for what a tensor's value is computed from.
  bool MergeDimsOf(const Tensor& root, const std::vector<int>& groups, ShapeMap* shapes);
  // The coarsest groups of the dimensions of `root` that its pointwise expression allows; those in `keep` stay apart.
  std::vector<int> MergeableGroups(const Tensor& root, const std::vector<bool>& boundary_before = {});
  // Lanes of a vector for elements of an expression, at most `extent`; an open one may turn out to be less.
  int64_t LanesFor(const std::vector<const Tensor*>& tensors, const Extent& extent) const;
  int64_t LanesForBytes(int64_t widest, const Extent& extent) const;
  // All tensors that the value of `root` is computed from without memory in between, itself included.
  std::vector<const Tensor*> Expression(const Tensor& root, const Tensor* stop = nullptr, bool* pointwise = nullptr,
                                        int* cost = nullptr) const;
  // Of a transposition of what lies in memory: how many dimensions up to `d` follow each other there as they do in the
  // result, so that an index along d may run on over all of them.
  static int FollowingDims(const Tensor& root, int d);
  // Of an expression that is pointwise but for transpositions as large as its result: those, and what else it reads.
  struct Operands {
    std::vector<const Tensor*> transposed, others;
  };
  // `piece` in place of `whole`, if given.
  static bool FindOperands(const Tensor& root, Operands* operands, const Tensor* whole = nullptr,
                           const Tensor* piece = nullptr);
  static int FollowingDims(const Tensor& root, const Operands& operands, int d);

  // Loops that store each element of `root`, computed by its producer's `element`.
  void Pointwise(const Tensor& root);

  // Bytes that are each computed of one byte of `source`, by operators that would take longer than to look them up.
  struct ByteTable {
    const Tensor* source;
    Buffer values;
  };
  // Null: none is.
  const ByteTable* FindByteTable(const Tensor& bytes) const;

 private:
  // byte_tables.cc
  void MakeByteTables();
  struct ByteChain {
    const Tensor* source = nullptr;
    std::set<const Tensor*> tensors;  // that are read
    int cost = 0;                     // in cycles of a vector
  };
  static std::optional<ByteChain> ChainOfBytes(const Tensor& bytes);

  struct Step {
    std::string function;
    Extent items;
    Cycles cost;
    int64_t repetition;  // number of the Repeat it is in; -1: none
    std::vector<Condition> conditions;
    bool negated;  // it runs where one of the conditions does not hold
  };
  struct Block {
    int64_t offset, bytes;
  };

  // How the elements of `root` are computed.
  struct Loop {
    const Tensor& root;
    int output;
    Shape shape;  // at least one dimension
    ShapeMap shapes;
    int trailing = 0;  // dimensions of extent 1 behind them
    bool scalar;       // of a root of rank 0
    int cost;
    // Of columns [first, first + shape.back()) alone, those that `piece` has in `whole`, a concatenation of the
    // expression along its last dimension.
    const Tensor* whole = nullptr;
    const Tensor* piece = nullptr;
    Extent first = 0;
  };
  // The one concatenation in root's expression, if it is along the last dimension, of root's shape, and read at root's
  // indices alone; else null.
  static const Tensor* Concatenation(const Tensor& root);
  // Loops for each of its pieces, so that no vector asks which one it is from.
  void EmitPieces(const Loop& loop, const Tensor& whole, const std::vector<const Tensor*>& tensors);
  // Vectors along the last dimension; of long expressions several at once, if that is regular.
  void EmitRows(const Loop& loop, int64_t lanes);
  void EmitRows(const Loop& loop, int64_t lanes, int64_t vectors);
  // Vectors along dimension `along`, and on over `following` dimensions up to it, stored along the last: squares of
  // elements transposed in registers. With `transposed` operands these alone, and the rest along the last.
  void EmitTransposed(const Loop& loop, int along, int following, int64_t lanes,
                      const std::vector<const Tensor*>& transposed = {});
  // The one at i of the last dimension, whose other side is at `band` of `along`.
  void EmitSquare(Kernel& k, const Loop& loop, const Indices& indices, int along, mlir::Value band, mlir::Value i,
                  int64_t side, const std::vector<const Tensor*>& transposed);
  // That along the last dimension that lets all accesses be regular; false, and no kernel, where none does.
  bool EmitSquares(const Loop& loop, const std::vector<const Tensor*>& tensors,
                   const std::function<int(int along)>& following, const std::vector<const Tensor*>& transposed = {});
  // What was emitted last computes with vectors along these extents: scalars where one of them is too short in a call.
  void ElseScalars(const Loop& loop, const std::vector<Condition>& vectors);
  void DropLastKernel();

  void AssignResults();
  Buffer AllocateWorkspace(const Extent& bytes);
  void FreeWorkspace(const Buffer& buffer);
  void CopyRemainingResults();
  void EmitEntry(Phase phase);
  void EmitSteps(const std::vector<Step>& steps, mlir::Value context, mlir::Value closure);
  void EmitCall(const Step& step, mlir::Value context, mlir::Value closure, mlir::Value threads);
  // i1; null: always.
  mlir::Value RunsWhere(const Step& step, mlir::Value threads);
  // Work that is worth more threads than one, if there are; null: never.
  mlir::Value IsWorthThreads(const Step& step, mlir::Value threads);
  // From here on, open extents are computed once at `entry_point`, from the symbols' values behind `args`.
  void ResolveOpenExtents(const std::function<mlir::Value()>& args, mlir::Operation* entry_point,
                          std::map<std::string, mlir::Value>* known);
  Extent OpenWorkspaceOffset(int64_t slot) const;
  Extent OpenWorkspaceEnd(size_t slots) const;
  void EmitDestroy();
  mlir::Value DataPointer(int64_t number);
  absl::Status EmitPlan(const KernelPlan& plan);

  friend class Kernel;
  mlir::ModuleOp module_;
  CpuFeatures cpu_;
  WinogradChoice winograd_;
  DepthwiseBlockChoice depthwise_block_;
  std::string symbol_;
  Graph* graph_;
  mlir::OpBuilder builder_;
  Ops ops_;

  std::vector<KernelPlan> plans_;
  const KernelPlan* current_ = nullptr;
  std::map<const Tensor*, ByteTable> byte_tables_;
  std::map<const Tensor*, Buffer> buffers_;  // of bases
  std::vector<Buffer> temporaries_;
  std::vector<int> in_place_;  // EmittedFunction::in_place
  std::vector<Block> live_;    // of the workspace, sorted by offset
  int64_t workspace_bytes_ = 0;
  struct OpenSlot {
    Extent bytes;
    bool live;
  };
  std::vector<OpenSlot> open_slots_;  // behind the others
  int64_t state_bytes_ = 0;
  std::vector<Step> run_steps_, init_steps_;
  std::vector<Extent> repetitions_;  // how often
  bool repeating_ = false;
  std::vector<Condition> conditions_;  // of the kernels being emitted
  bool negated_ = false;
  int num_kernels_ = 0;
  int last_irregular_ = 0;
  std::vector<std::string> data_;
  std::set<int64_t> run_args_, init_args_;  // read by kernels of each phase
};

// Whether vectors of `lanes` along `extent` never reach beyond it (a last one may begin earlier).
inline bool AlwaysFits(const Extent& extent, int64_t lanes) {
  return lanes == 1 || extent.is_static() || extent.IsMultipleOf(lanes);
}

// Multi-dimensional indices of a linear one; dimensions of extent 1 get constant 0.
Indices Delinearise(Ops& o, mlir::Value linear, const Shape& shape);
inline Indices Delinearise(Ops& o, mlir::Value linear, const std::vector<int64_t>& shape) {
  return Delinearise(o, linear, ShapeOf(shape));
}

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_FUNCTION_EMITTER_H_
