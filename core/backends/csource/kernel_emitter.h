// KernelEmitter: writes one C function of a partition. Operators' kernels use it for loops, for the values of their
// arguments' elements (loads, or whatever the producers that have no memory compute) and for storing their results
// (through the tail that planning folded onto them).
//
//   static void k0(void *const *restrict args, char *restrict workspace, char *restrict scratch, inlay_int begin,
//                  inlay_int end)
//
// runs the units of work [begin, end): independent, so that a pool's threads may share them.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_KERNEL_EMITTER_H_
#define INLAY_CORE_BACKENDS_CSOURCE_KERNEL_EMITTER_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/backends/csource/expr.h"
#include "core/backends/csource/graph.h"
#include "core/backends/csource/plan.h"
#include "core/backends/csource/writer.h"
#include "core/target/target.h"

namespace inlay::csource {

// The pointer to a tensor's memory, as an expression of args and workspace; for literals the array's name.
using Locate = std::function<std::string(const Tensor&)>;

struct EmittedKernel {
  std::string text;
  int64_t units = 1;
  double work = 0;                   // of all units, in additions
  int64_t scratch_bytes = 0;         // of each task that runs at the same time as others
  std::set<const Tensor*> literals;  // whose arrays it reads
};

// Neighbouring dimensions that one loop can run over: [begin, end).
struct DimGroup {
  int begin = 0, end = 0;
  int64_t extent = 1;
};

// Each of the dimensions [begin, end) alone.
std::vector<DimGroup> Singles(const Shape& shape, int begin, int end);

class KernelEmitter {
 public:
  using Body = std::function<void(const Expr&)>;
  KernelEmitter(std::string name, const Kernel& kernel, const target::Target& target, Locate locate)
      : name_(std::move(name)), kernel_(kernel), target_(target), locate_(std::move(locate)) {}

  // `user_function`: what it calls, where the node is implemented by a user's kernel.
  EmittedKernel Emit(const std::string& user_function);

  // --- For operators ---
  const target::Target& target() const { return target_; }
  // Of kind "c": C11 without extensions, for a compiler and a machine that nothing is known of.
  bool plain() const { return target_.kind == "c"; }
  // How many elements a vector register of the target holds.
  int64_t Lanes(ir::DType dtype) const;

  // An element, in the type that it is computed in: a name or a number, the statements that it takes are written.
  Expr Value(const Tensor& t, const Index& at);
  // The same of an argument that broadcasts to `at`.
  Expr BroadcastValue(const Tensor& t, const Index& at);
  // An element of a tensor with memory, as an expression that may stand where it is not always evaluated.
  Expr Load(const Tensor& t, const Index& at);
  // Stores the kernel's own result at `at`; with a tail, what the tail makes of it.
  void Store(const Tensor& out, const Index& at, const Expr& value);
  // The name of the pointer to a tensor with memory.
  Expr Pointer(const Tensor& t);

  // What is stored in the end: the tail's end or `out` itself.
  const Tensor& Root(const Tensor& out) const { return kernel_.tail != nullptr ? *kernel_.tail : out; }
  bool has_tail() const { return kernel_.tail != nullptr; }
  // Whether one index may run over dimensions [begin, end) of `at` (the others of them 0) for all that is read where
  // `t` is evaluated at `at`, whose shape is `shape`.
  bool CanMerge(const Tensor& t, const Shape& shape, int begin, int end) const;
  // The dimensions [begin, end) of `shape` in groups that can be merged for all of `values`.
  std::vector<DimGroup> Groups(const std::vector<const Tensor*>& values, const Shape& shape, int begin, int end) const;

  // The dimensions [begin, end) of a result whose tail ends in `root`, merged as far as all that the tail reads allows.
  std::vector<DimGroup> TailGroups(const Tensor& root, int begin, int end) const {
    return Groups({root.producer->inputs.begin(), root.producer->inputs.end()}, root.shape, begin, end);
  }

  // The loop over the function's units. Once a kernel, at its outermost level.
  void Units(int64_t units, double work_each, const Body& body);
  // for (inlay_int i = begin; i < end; i += step); a vector loop where `simd`.
  void For(const Expr& begin, const Expr& end, const Body& body, int64_t step = 1, bool simd = false);
  // Loops over the groups, outermost first; sets `at` (as long as the shape). The innermost one is `simd`.
  void Nest(const std::vector<DimGroup>& groups, Index* at, bool simd, const std::function<void()>& body,
            size_t first = 0);
  // Splits `unit` over the groups' extents.
  void Unravel(const Expr& unit, const std::vector<DimGroup>& groups, Index* at);
  void If(const Expr& condition, const std::function<void()>& body) { Scope("if (" + condition.text + ")", body); }
  void Scope(const std::string& header, const std::function<void()>& body);

  // const T name = value; returns the name. Numbers and names are returned as they are.
  Expr Let(absl::string_view c_type, const Expr& value);
  Expr LetIndex(const Expr& value) { return Let(kIndexType, value); }
  std::string Fresh(const std::string& hint);
  Writer& c() { return *writer_; }
  // Memory of this task alone, 64-byte aligned; the name of a pointer of that type.
  Expr Scratch(absl::string_view c_type, int64_t bytes);
  // An array for one unit of work: on the stack; of plain C, whose stack may be small, in the scratch.
  Expr Array(const std::string& hint, ir::DType dtype, int64_t elements);

 private:
  void EmitLoop();
  void EmitUserCall(const std::string& function);
  void StoreAt(const Tensor& t, const Index& at, const Expr& value);

  const std::string name_;
  const Kernel& kernel_;
  const target::Target& target_;
  const Locate locate_;
  Writer* writer_ = nullptr;
  EmittedKernel result_;
  std::map<std::string, std::string> pointers_;         // declaration by name
  std::vector<std::map<std::string, Expr>> values_{1};  // by scope: what has been computed, by tensor and index
  const Tensor* provided_ = nullptr;
  Expr provided_value_;
  int next_name_ = 0;
};

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_KERNEL_EMITTER_H_
