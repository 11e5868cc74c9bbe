// KernelBuilder: short names for the MLIR that the contraction kernels are made of.
//
// Memory is raw LLVM pointers with element offsets in i64 (that is what the kernel ABI hands over; memref descriptors
// would double the IR), loops are scf.for over i64, arithmetic is arith/vector. Integer arithmetic folds as it is
// built, so that static shapes leave constants behind. A view on an OpBuilder, which it does not own; lives on the
// stack.
#ifndef INLAY_CORE_BACKENDS_NATIVE_KERNEL_BUILDER_H_
#define INLAY_CORE_BACKENDS_NATIVE_KERNEL_BUILDER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/backends/native/extent.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace inlay::native {

class KernelBuilder {
 public:
  KernelBuilder(mlir::OpBuilder& builder, mlir::Location location) : b(builder), loc(location) {}
  virtual ~KernelBuilder() = default;

  // i64 arithmetic; constants fold.
  mlir::Value Int(int64_t value);
  mlir::Value Add(mlir::Value x, mlir::Value y);
  mlir::Value Add(mlir::Value x, int64_t y) { return Add(x, Int(y)); }
  mlir::Value Sub(mlir::Value x, mlir::Value y);
  mlir::Value Mul(mlir::Value x, int64_t y);
  mlir::Value Div(mlir::Value x, int64_t y);  // of non-negative values
  mlir::Value Rem(mlir::Value x, int64_t y);
  mlir::Value RoundUp(mlir::Value x, int64_t multiple);
  mlir::Value Min(mlir::Value x, mlir::Value y);
  mlir::Value Max(mlir::Value x, mlir::Value y);
  mlir::Value Less(mlir::Value x, mlir::Value y);
  mlir::Value Equal(mlir::Value x, mlir::Value y);
  mlir::Value Differ(mlir::Value x, mlir::Value y);  // pointers
  mlir::Value Select(mlir::Value condition, mlir::Value x, mlir::Value y);
  // The same with extents that may be open: then a value of the run. Nothing divides by one that is 0.
  mlir::Value Int(const Extent& e) { return e.is_static() ? Int(e.value()) : open(e); }
  mlir::Value Add(mlir::Value x, const Extent& y) { return Add(x, Int(y)); }
  mlir::Value Mul(mlir::Value x, mlir::Value y);
  mlir::Value Mul(mlir::Value x, const Extent& y) { return y.is_static() ? Mul(x, y.value()) : Mul(x, open(y)); }
  mlir::Value Div(mlir::Value x, const Extent& y);
  mlir::Value Rem(mlir::Value x, const Extent& y);
  // The value of an open extent; set by whoever emits a function that may use any.
  std::function<mlir::Value(const Extent&)> open;
  // An open extent from the values of symbols, at the insertion point.
  mlir::Value EvaluateOpen(const Extent& e, const std::function<mlir::Value(const std::string& symbol)>& symbol);
  mlir::Value And(mlir::Value x, mlir::Value y);                   // of i1
  mlir::Value IsWithin(mlir::Value place, const Extent& extent) {  // [0, extent)
    return And(Less(Int(-1), place), Less(place, Int(extent)));
  }

  // Elements of type float or integer, scalars or vectors of them.
  mlir::Value Zero(mlir::Type type);
  mlir::Value Splat(mlir::Value scalar, mlir::Type vector_type);
  mlir::Value MultiplyAdd(mlir::Value x, mlir::Value y, mlir::Value acc);
  virtual mlir::Value Widen(mlir::Value x, mlir::Type to);  // f16, bf16 -> f32 (scalars or vectors); others unchanged
  mlir::Value Bf16BitsToF32(mlir::Value bits);              // of i16: the upper halves of f32

  // Memory: `offset` counts elements of `element` from `pointer`.
  mlir::Value At(mlir::Value pointer, mlir::Value offset, mlir::Type element);
  mlir::Value At(mlir::Value pointer, int64_t offset, mlir::Type element);
  mlir::Value At(mlir::Value pointer, const Extent& offset, mlir::Type element) {
    return offset.is_static() ? At(pointer, offset.value(), element) : At(pointer, open(offset), element);
  }
  mlir::Value Load(mlir::Type type, mlir::Value pointer);  // aligned to the element only
  // The first `lanes` lanes are read, the others are zero; lanes = all of them is a plain load.
  mlir::Value LoadFirst(mlir::Type vector_type, mlir::Value pointer, int64_t lanes) {
    return LoadLanes(vector_type, pointer, 0, lanes);
  }
  mlir::Value LoadLanes(mlir::Type vector_type, mlir::Value pointer, int64_t begin, int64_t end);
  void StoreFirst(mlir::Value vector, mlir::Value pointer, int64_t lanes);
  // Lanes [begin, end) as a vector of i1; begin may be negative, end beyond the last.
  mlir::Value LaneMask(int64_t lanes, mlir::Value begin, mlir::Value end);
  mlir::Value MaskedLoad(mlir::Value pointer, mlir::Value mask, mlir::Value otherwise);
  void Store(mlir::Value value, mlir::Value pointer);
  void Prefetch(mlir::Value pointer, bool write = false);  // into L2
  void PrefetchIntoL1(mlir::Value pointer);
  void KeepOrder();  // loads and stores stay on their side of it; no instruction
  // The same, and `vectors`, which are returned, are computed before it. x86 only.
  std::vector<mlir::Value> KeepOrder(const std::vector<mlir::Value>& vectors);

  // for (i = lo; i < hi; i += step), with or without values carried round.
  void For(mlir::Value lo, mlir::Value hi, int64_t step, const std::function<void(mlir::Value)>& body);
  void For(int64_t hi, const std::function<void(mlir::Value)>& body) { For(Int(0), Int(hi), 1, body); }
  std::vector<mlir::Value> For(
      mlir::Value lo, mlir::Value hi, int64_t step, const std::vector<mlir::Value>& init,
      const std::function<std::vector<mlir::Value>(mlir::Value, const std::vector<mlir::Value>&)>& body);
  void If(mlir::Value condition, const std::function<void()>& then, const std::function<void()>& otherwise = nullptr);

  static mlir::Type Vector(int64_t lanes, mlir::Type element);

  mlir::OpBuilder& b;
  mlir::Location loc;

 private:
  mlir::Value StaticMask(int64_t lanes, int64_t begin, int64_t end);
};

// Static trip counts of 0 emit nothing, of 1 emit the body without a loop.
bool IsConstant(mlir::Value value, int64_t* constant);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_KERNEL_BUILDER_H_
