// Eval: the value of tensors' elements at given indices, for one element or for a vector of them. Kernel: the function
// around it, which knows where tensors lie.
//
// A loop asks Eval for the elements it needs; Eval loads those of tensors with memory and composes the lowerings'
// `element` functions for the others, each once per point (values are remembered). One Eval belongs to one region of
// the code: inside a nested loop or branch, evaluate with Child().
#ifndef INLAY_CORE_BACKENDS_NATIVE_EVAL_H_
#define INLAY_CORE_BACKENDS_NATIVE_EVAL_H_

#include <functional>
#include <map>
#include <vector>

#include "core/backends/native/graph.h"
#include "core/backends/native/ops.h"

namespace inlay::native {

// An index of a vector of elements: lane i has base + i * stride; or, irregular, lanes[i].
struct Index {
  mlir::Value base;
  int64_t stride = 0;
  std::vector<mlir::Value> lanes;

  Index() = default;
  Index(mlir::Value value, int64_t lane_stride = 0) : base(value), stride(lane_stride) {}  // NOLINT
  bool uniform() const { return lanes.empty() && stride == 0; }
};
using Indices = std::vector<Index>;

// Where a tensor lies.
struct Buffer {
  // kOpenWorkspace: workspace whose size depends on symbols.
  enum class Kind { kNone, kArg, kWorkspace, kState, kLiteral, kOpenWorkspace };
  Kind kind = Kind::kNone;
  int64_t value = 0;  // index of the argument, or offset in bytes, or the literal's or open slot's number
};

// The shapes by which tensors are indexed.
using ShapeMap = std::map<const Tensor*, Shape>;

class FunctionEmitter;
struct KernelPlan;

class Kernel {
 public:
  Kernel(FunctionEmitter* function, Ops* ops) : o(*ops), function_(function) {}

  Ops& o;
  mlir::Value worker;  // i32: which of the tasks that run at the same time

  // Base address of a tensor that has memory, or of a buffer; loaded once at the function's entry.
  mlir::Value Pointer(const Tensor& tensor);
  mlir::Value Pointer(const Buffer& buffer);
  // Of a kernel within FunctionEmitter::Repeat: how many times it has run before (i64).
  mlir::Value Iteration();
  // How many threads the loops of this call are split over (i64).
  mlir::Value NumThreads();
  // Memory of this task alone, on its stack. At most kMaxStackBytes.
  mlir::Value Scratch(int64_t bytes);
  static constexpr int64_t kMaxStackBytes = 1 << 20;
  // Of a row whose length is open: what is kept on the stack.
  static constexpr int64_t kMaxOpenRow = 1 << 15;

  // The shape by which a tensor is indexed in this kernel: its own, or one with neighbouring dimensions merged.
  const native::Shape& Shape(const Tensor& tensor) const;
  ShapeMap shapes;

  // Stores the value of `tensor` at `indices`; where a tail is folded into this kernel, what the tail makes of it.
  void StoreResult(const Tensor& tensor, const Indices& indices, mlir::Value value);
  // Prefetches what StoreResult will read and write for `lanes` elements from `indices` on.
  void PrefetchResult(const Tensor& tensor, const Indices& indices, int64_t lanes);
  const FunctionEmitter& function() const { return *function_; }
  // All that it reads and writes: the result, and tensors of as many elements. 0 where its size is open.
  int64_t ResultBytes(const Tensor& tensor) const;
  // Just that.
  void StoreElement(const Tensor& tensor, const Indices& indices, mlir::Value value);
  // From here on, elements of `tensor` are stored at `pointer` + indices * strides, in elements, and not in its memory.
  void StoreAt(const Tensor& tensor, mlir::Value pointer, std::vector<int64_t> strides) {
    stored_at_[&tensor] = {pointer, std::move(strides)};
  }

  // From here on, results are those of `plan`: its tail is folded in, if it has one.
  void Computes(const KernelPlan& plan);
  // The tail: `tail_anchor` is what this kernel computes, `tail_root` what is stored.
  const Tensor* tail_anchor = nullptr;
  const Tensor* tail_root = nullptr;

  // Loads and computations that had to go lane by lane: what says that vectors do not pay here.
  int irregular = 0;

 private:
  friend class FunctionEmitter;
  mlir::Value AtEntry(const std::function<mlir::Value()>& emit);
  FunctionEmitter* function_;
  mlir::Block* entry_ = nullptr;  // pointers are loaded in front of its last `entry point` operation
  mlir::Operation* entry_point_ = nullptr;
  bool init_ = false;
  mlir::Value closure_;
  std::map<std::pair<int, int64_t>, mlir::Value> pointers_;
  std::map<std::string, mlir::Value> extents_;  // open ones by their keys
  std::map<const Tensor*, std::pair<mlir::Value, std::vector<int64_t>>> stored_at_;
};

class Eval {
 public:
  Eval(Kernel& kernel, int64_t lanes) : k(kernel), o(kernel.o), lanes_(lanes) {}

  Kernel& k;
  Ops& o;
  int64_t lanes() const { return lanes_; }
  Eval Child(int64_t lanes) { return Eval(k, lanes, this); }

  mlir::Value At(const Tensor& tensor, const Indices& indices);
  // Prefetches the vectors that computing the output of `node` would load, and loads nothing.
  void Prefetch(const Node& node, const Indices& indices);
  // Where an element of a tensor of this shape lies in it; broadcast dimensions do not count.
  Index Offset(const Shape& shape, const Indices& indices);
  // From here on, `tensor` has this value at whatever indices it is asked for.
  void Provide(const Tensor& tensor, mlir::Value value) { provided_[&tensor] = value; }
  bool IsProvided(const Tensor& tensor) const;

  // Indices. Results of operations on irregular ones are irregular.
  Index Constant(int64_t value) { return o.Int(value); }
  Index Add(const Index& x, const Index& y);
  Index Add(const Index& x, int64_t y) { return Add(x, Constant(y)); }
  Index Add(const Index& x, const Extent& y) { return Add(x, Index(o.Int(y))); }
  Index Mul(const Index& x, const Extent& y);
  Index Map(const Index& x, const std::function<mlir::Value(mlir::Value)>& f);  // of each lane
  Index Clamp(const Index& x, int64_t low, int64_t high);
  mlir::Value Lane(const Index& x, int64_t lane);
  mlir::Value AsVector(const Index& x);  // i64, scalar where lanes() is 1
  // The indices of `tensor` that broadcasting to `indices` (of a result of rank indices.size()) gives.
  Indices BroadcastTo(const Tensor& tensor, const Indices& indices);
  // An element of an integer tensor as an index into an extent: negative ones counted from the end, clamped.
  Index IndexFrom(const Tensor& tensor, const Indices& indices, const Extent& extent);

  // Computes each lane by itself where lanes differ.
  mlir::Value PerLane(const Indices& indices, const std::function<mlir::Value(Eval&, const Indices&)>& f);

 private:
  Eval(Kernel& kernel, int64_t lanes, Eval* parent)
      : k(kernel), o(kernel.o), lanes_(lanes), prefetches_(parent->prefetches_), parent_(parent) {}
  using Key = std::vector<int64_t>;
  Key KeyOf(const Tensor& tensor, const Indices& indices);
  mlir::Value Load(const Tensor& tensor, const Indices& indices);
  mlir::Value Find(const Key& key, const Tensor& tensor);

  int64_t lanes_;
  bool prefetches_ = false;  // in place of loads, whose values are then nobody's
  Eval* parent_ = nullptr;
  std::map<Key, mlir::Value> values_;
  std::map<const Tensor*, mlir::Value> provided_;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_EVAL_H_
