// Ops: arithmetic on elements, scalars and vectors alike, as OPS.md defines it. What lowerings are written with, so
// that none of them includes an MLIR dialect.
//
// In registers f16 and bf16 are f32, bool is i1 and integers are signless (the DType says how to read them); in memory
// an element is what its DType says, bool one byte. Every binary operation takes two values of one type.
#ifndef INLAY_CORE_BACKENDS_NATIVE_OPS_H_
#define INLAY_CORE_BACKENDS_NATIVE_OPS_H_

#include <functional>
#include <string>
#include <vector>

#include "core/backends/native/cpu_features.h"
#include "core/backends/native/kernel_builder.h"
#include "core/ir/type.h"
#include "mlir/IR/BuiltinOps.h"

namespace inlay::native {

enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe };

class Ops : public KernelBuilder {
 public:
  Ops(mlir::OpBuilder& builder, mlir::Location location, mlir::ModuleOp* module, const CpuFeatures& cpu)
      : KernelBuilder(builder, location), module_(module), cpu_(cpu) {}

  const CpuFeatures& cpu() const { return cpu_; }

  // Types.
  mlir::Type StoredType(ir::DType dtype);
  mlir::Type ComputeType(ir::DType dtype, int64_t lanes = 1);
  static int64_t Lanes(mlir::Value value);                             // 1 for a scalar
  static mlir::Type WithLanes(mlir::Type type, int64_t lanes);         // same element
  static mlir::Type WithElement(mlir::Type type, mlir::Type element);  // same lanes

  // Constants, of scalar or vector type.
  mlir::Value ConstF(mlir::Type type, double value);
  mlir::Value ConstI(mlir::Type type, int64_t value);
  mlir::Value Const(mlir::Type type, double value);  // by the type: float or integer (truncated)
  mlir::Value ConstLanes(const std::vector<float>& lanes);
  mlir::Value Iota(int64_t lanes, int64_t stride = 1);  // i64 vector 0, stride, 2 * stride, ...

  // Floats.
  mlir::Value AddF(mlir::Value x, mlir::Value y);
  mlir::Value SubF(mlir::Value x, mlir::Value y);
  mlir::Value MulF(mlir::Value x, mlir::Value y);
  mlir::Value DivF(mlir::Value x, mlir::Value y);
  mlir::Value RemF(mlir::Value x, mlir::Value y);                // C's fmod
  mlir::Value Fma(mlir::Value x, mlir::Value y, mlir::Value z);  // fused where the CPU can, else two roundings
  mlir::Value NegF(mlir::Value x);
  mlir::Value AbsF(mlir::Value x);
  mlir::Value Sqrt(mlir::Value x);
  mlir::Value Floor(mlir::Value x);
  mlir::Value Ceil(mlir::Value x);
  mlir::Value RoundEven(mlir::Value x);
  mlir::Value CopySign(mlir::Value x, mlir::Value sign);
  mlir::Value CompareF(Compare predicate, mlir::Value x, mlir::Value y);  // false for NaN, but kNe: true
  mlir::Value IsNan(mlir::Value x);

  // Integers (and i1).
  mlir::Value AddI(mlir::Value x, mlir::Value y);
  mlir::Value SubI(mlir::Value x, mlir::Value y);
  mlir::Value MulI(mlir::Value x, mlir::Value y);
  mlir::Value DivI(mlir::Value x, mlir::Value y, bool is_signed);  // x / 0 = 0, min / -1 wraps
  mlir::Value RemI(mlir::Value x, mlir::Value y, bool is_signed);  // x mod 0 = 0; sign of the dividend
  mlir::Value And(mlir::Value x, mlir::Value y);
  mlir::Value Or(mlir::Value x, mlir::Value y);
  mlir::Value Xor(mlir::Value x, mlir::Value y);
  mlir::Value Not(mlir::Value x);
  mlir::Value ShiftLeft(mlir::Value x, mlir::Value by);  // by < width
  mlir::Value ShiftRight(mlir::Value x, mlir::Value by, bool is_signed);
  mlir::Value CompareI(Compare predicate, mlir::Value x, mlir::Value y, bool is_signed);
  mlir::Value Select(mlir::Value condition, mlir::Value x, mlir::Value y);

  // By DType: the number rules of OPS.md (NaN propagates, integers wrap).
  mlir::Value AddN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value SubN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value MulN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value DivN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value MaxN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value MinN(ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value CompareN(Compare predicate, ir::DType dtype, mlir::Value x, mlir::Value y);
  mlir::Value LowestN(ir::DType dtype, mlir::Type type);   // -Inf, or the least integer; false
  mlir::Value HighestN(ir::DType dtype, mlir::Type type);  // +Inf, or the greatest integer; true

  // Conversions of the register form.
  mlir::Value Bitcast(mlir::Value x, mlir::Type element);
  mlir::Value ExtendI(mlir::Value x, mlir::Type element, bool is_signed);
  mlir::Value TruncateI(mlir::Value x, mlir::Type element);
  mlir::Value IntToFloat(mlir::Value x, mlir::Type element, bool is_signed);
  mlir::Value FloatToInt(mlir::Value x, mlir::Type element);                            // signed, of what that has
  mlir::Value FloatToIntSaturating(mlir::Value x, mlir::Type element, bool is_signed);  // NaN -> 0
  mlir::Value ExtendF(mlir::Value x, mlir::Type element);
  mlir::Value TruncateF(mlir::Value x, mlir::Type element);
  // OPS.md's cast between the register forms of two DTypes. The result of a cast to f16 or bf16 is rounded to it.
  mlir::Value Cast(ir::DType from, ir::DType to, mlir::Value x);
  // Also from the bits of an f16 as i16: where the CPU lacks F16C, LLVM would call a library for every f16 it sees.
  mlir::Value Widen(mlir::Value x, mlir::Type to) override;
  // f32 rounded to f16 or bf16 and back.
  mlir::Value RoundTo(ir::DType dtype, mlir::Value x);

  // Vectors.
  mlir::Value Broadcast(mlir::Value scalar, int64_t lanes);  // lanes = 1: the scalar
  mlir::Value Extract(mlir::Value vector, int64_t lane);
  mlir::Value FromLanes(const std::vector<mlir::Value>& lanes);
  mlir::Value Shuffle(mlir::Value x, mlir::Value y, const std::vector<int64_t>& mask);
  // One vector of equal ones, whose number is a power of two; and such a one's parts. LLVM computes with it as with
  // several, operation by operation: chains of dependent ones then run side by side. One after the other they would
  // not: a core's schedulers hold too few instructions.
  static constexpr int64_t kSideBySide = 4;  // vectors that long expressions are computed of
  mlir::Value Joined(std::vector<mlir::Value> parts);
  std::vector<mlir::Value> Parts(mlir::Value x, int64_t lanes);
  // f of each, computed so.
  std::vector<mlir::Value> SideBySide(const std::vector<mlir::Value>& vectors,
                                      const std::function<mlir::Value(mlir::Value)>& f);
  // f32 x[index[i]] in each lane i, by one permutation, or several where `index` has several times the lanes; it is i32
  // and counts modulo x's lanes.
  bool CanPermute(int64_t lanes) const {
    return cpu_.core.vector_bytes >= 32 && (lanes == 4 || lanes == 8 || (lanes == 16 && cpu_.core.vector_bytes == 64));
  }
  mlir::Value Permute(mlir::Value x, mlir::Value index);
  mlir::Value ReverseLanes(mlir::Value x);
  // All lanes combined by a tree of `combine` over halves.
  mlir::Value ReduceLanes(mlir::Value x, const std::function<mlir::Value(mlir::Value, mlir::Value)>& combine);

  // Memory: element `offset` (i64, in elements) from `base`, in register form; `lanes` consecutive ones.
  mlir::Value LoadElements(ir::DType dtype, mlir::Value base, mlir::Value offset, int64_t lanes = 1);
  void StoreElements(ir::DType dtype, mlir::Value x, mlir::Value base, mlir::Value offset);
  void CopyBytes(mlir::Value to, mlir::Value from, const Extent& bytes);
  void CopyBytes(mlir::Value to, mlir::Value from, mlir::Value bytes);
  void ZeroBytes(mlir::Value to, int64_t bytes);
  mlir::Value StackBytes(int64_t bytes);  // 64-byte aligned; emit at a function's start

  // Control with values.
  std::vector<mlir::Value> IfElse(mlir::Value condition, const std::vector<mlir::Type>& types,
                                  const std::function<std::vector<mlir::Value>()>& then,
                                  const std::function<std::vector<mlir::Value>()>& otherwise);
  // while (condition(state)) state = body(state)
  std::vector<mlir::Value> While(const std::vector<mlir::Value>& init,
                                 const std::function<mlir::Value(const std::vector<mlir::Value>&)>& condition,
                                 const std::function<std::vector<mlir::Value>(const std::vector<mlir::Value>&)>& body);

  // LLVM's, of that name.
  mlir::Value Intrinsic(const char* name, mlir::Type result, const std::vector<mlir::Value>& args);
  void Intrinsic(const char* name, const std::vector<mlir::Value>& args);
  // A function of libm on each lane ("sinf" for f32, "sin" for f64, from name "sin").
  mlir::Value Libm(const std::string& name, const std::vector<mlir::Value>& args);

 private:
  mlir::Value F16BitsToF32(mlir::Value bits);
  mlir::Value F32ToF16Bits(mlir::Value x);
  mlir::Value F32ToBf16Bits(mlir::Value x);
  mlir::Value RoundedToBf16(mlir::Value x);  // the same in the upper half of an i32, above bits that are nothing
  mlir::Value TruncateF32(mlir::Value x);

  mlir::ModuleOp* module_;
  CpuFeatures cpu_;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_OPS_H_
