// Ops: elements from one type to another, and the 16-bit floats that a processor may lack instructions for.
#include <algorithm>
#include <cmath>

#include "core/backends/native/ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

namespace arith = mlir::arith;
namespace LLVM = mlir::LLVM;
using ir::DType;
using mlir::Type;
using mlir::Value;

void Ops::Intrinsic(const char* name, const std::vector<Value>& args) {
  b.create<LLVM::CallIntrinsicOp>(loc, mlir::TypeRange(), name, mlir::ValueRange(args));
}

Value Ops::Intrinsic(const char* name, Type result, const std::vector<Value>& args) {
  return b.create<LLVM::CallIntrinsicOp>(loc, result, b.getStringAttr(name), mlir::ValueRange(args)).getResults();
}

Value Ops::Bitcast(Value x, Type element) {
  return b.createOrFold<arith::BitcastOp>(loc, WithElement(x.getType(), element), x);
}

Value Ops::ExtendI(Value x, Type element, bool is_signed) {
  Type to = WithElement(x.getType(), element);
  if (to == x.getType()) return x;
  if (is_signed) return b.createOrFold<arith::ExtSIOp>(loc, to, x);
  return b.createOrFold<arith::ExtUIOp>(loc, to, x);
}

Value Ops::TruncateI(Value x, Type element) {
  Type to = WithElement(x.getType(), element);
  return to == x.getType() ? x : b.createOrFold<arith::TruncIOp>(loc, to, x);
}

Value Ops::IntToFloat(Value x, Type element, bool is_signed) {
  Type to = WithElement(x.getType(), element);
  if (is_signed) return b.createOrFold<arith::SIToFPOp>(loc, to, x);
  return b.createOrFold<arith::UIToFPOp>(loc, to, x);
}

Value Ops::FloatToInt(Value x, Type element) {
  return b.create<arith::FPToSIOp>(loc, WithElement(x.getType(), element), x);
}

// f32 to i32 by x86's own instruction; null: there is none for so many lanes.
Value Ops::TruncateF32(Value x) {
  const int64_t lanes = Lanes(x);
  const Type i32 = WithElement(x.getType(), b.getI32Type());
  if (!cpu_.x86 || lanes * 4 > cpu_.core.vector_bytes) return nullptr;
  if (lanes == 4) return Intrinsic("llvm.x86.sse2.cvttps2dq", i32, {x});
  if (lanes == 8) return Intrinsic("llvm.x86.avx.cvtt.ps2dq.256", i32, {x});
  if (lanes != 16) return nullptr;
  const Value mask = b.create<arith::ConstantIntOp>(loc, -1, 16), rounding = b.create<arith::ConstantIntOp>(loc, 4, 32);
  return Intrinsic("llvm.x86.avx512.mask.cvttps2dq.512", i32, {x, Zero(i32), mask, rounding});
}

// Clamped first: of LLVM's own saturating conversions x86 makes scalars. What is narrower than 32 bits, as is all that
// is unsigned, is converted to these.
Value Ops::FloatToIntSaturating(Value x, Type element, bool is_signed) {
  const int bits = static_cast<int>(element.getIntOrFloatBitWidth()), magnitude = is_signed ? bits - 1 : bits;
  const Type type = x.getType();
  auto floating = llvm::cast<mlir::FloatType>(mlir::getElementTypeOrSelf(type));
  const int digits = static_cast<int>(floating.getFPMantissaWidth());
  const double low = is_signed ? -std::ldexp(1.0, magnitude) : 0, beyond = std::ldexp(1.0, magnitude);
  const double high = beyond - std::ldexp(1.0, std::max(magnitude - digits, 0));  // the greatest that x's type has
  auto clamp = [&](Value v, Compare compare, double bound) {
    const Value limit = ConstF(type, bound);
    return Select(CompareF(compare, v, limit), limit, v);
  };
  auto clamped = [&](Value v) { return clamp(clamp(v, Compare::kLt, low), Compare::kGt, high); };
  if (bits < 32 && floating.isF32()) {
    // Of NaN it is the least i32, whose low bits are 0.
    if (const Value y = TruncateF32(clamped(x))) return TruncateI(y, element);
  }
  const Value y = FloatToInt(clamped(Select(IsNan(x), ConstF(type, 0), x)), bits < 32 ? b.getI32Type() : element);
  if (magnitude <= digits) return TruncateI(y, element);
  return Select(CompareF(Compare::kGe, x, ConstF(type, beyond)), ConstI(y.getType(), INT64_MAX >> (64 - bits)), y);
}

Value Ops::ExtendF(Value x, Type element) {
  Type to = WithElement(x.getType(), element);
  return to == x.getType() ? x : b.createOrFold<arith::ExtFOp>(loc, to, x);
}

Value Ops::TruncateF(Value x, Type element) {
  Type to = WithElement(x.getType(), element);
  return to == x.getType() ? x : b.create<arith::TruncFOp>(loc, to, x).getResult();
}

// Round to nearest even by adding half of the last place; NaN stays NaN (quiet).
Value Ops::F32ToBf16Bits(Value x) {
  if (cpu_.brain_dots) return Bitcast(TruncateF(x, b.getBF16Type()), b.getI16Type());
  Value bits = RoundedToBf16(x);
  return TruncateI(ShiftRight(bits, ConstI(bits.getType(), 16), false), b.getI16Type());
}

Value Ops::RoundedToBf16(Value x) {
  Value bits = Bitcast(x, b.getI32Type());
  Type type = bits.getType();
  Value lsb = And(ShiftRight(bits, ConstI(type, 16), false), ConstI(type, 1));
  Value rounded = AddI(bits, AddI(lsb, ConstI(type, 0x7fff)));
  Value quiet = Or(bits, ConstI(type, 0x400000));
  return Select(IsNan(x), quiet, rounded);
}

// For processors without F16C, where LLVM would call a library function for each element.
Value Ops::F16BitsToF32(Value bits16) {
  Value bits = ExtendI(bits16, b.getI32Type(), false);
  Type type = bits.getType();
  Value sign = ShiftLeft(And(bits, ConstI(type, 0x8000)), ConstI(type, 16));
  Value magnitude = ShiftLeft(And(bits, ConstI(type, 0x7fff)), ConstI(type, 13));
  // Exponent rebias by a multiplication, which also normalises subnormals; Inf and NaN get the exponent of all ones.
  Value scaled =
      MulF(Bitcast(magnitude, b.getF32Type()), ConstF(WithElement(type, b.getF32Type()), std::ldexp(1.0, 112)));
  Value special = CompareI(Compare::kGe, magnitude, ConstI(type, 0x7c00 << 13), false);
  Value normal = Bitcast(scaled, b.getI32Type());
  Value result = Select(special, Or(magnitude, ConstI(type, 0x7f800000)), normal);
  return Bitcast(Or(result, sign), b.getF32Type());
}

Value Ops::Widen(Value x, Type to) {
  Type element = mlir::getElementTypeOrSelf(x.getType());
  if (element.isInteger(16) && to.isF32()) return F16BitsToF32(x);
  return KernelBuilder::Widen(x, to);
}

Value Ops::F32ToF16Bits(Value x) {
  Value bits = Bitcast(x, b.getI32Type());
  Type type = bits.getType();
  Type f32 = x.getType();
  Value sign = And(ShiftRight(bits, ConstI(type, 16), false), ConstI(type, 0x8000));
  Value magnitude = And(bits, ConstI(type, 0x7fffffff));
  // Normal results: rebias, then round half to even on the 13 bits that go.
  Value odd = And(ShiftRight(magnitude, ConstI(type, 13), false), ConstI(type, 1));
  Value normal = ShiftRight(AddI(magnitude, AddI(odd, ConstI(type, 0xfff - (112 << 23)))), ConstI(type, 13), false);
  // Subnormal results: adding 0.5 makes the FPU round at the right bit.
  Value subnormal = SubI(Bitcast(AddF(Bitcast(magnitude, b.getF32Type()), ConstF(f32, 0.5)), b.getI32Type()),
                         ConstI(type, 0x3f000000));
  Value result = Select(CompareI(Compare::kLt, magnitude, ConstI(type, 0x38800000), false), subnormal, normal);
  // 65520 and above round to infinity.
  result = Select(CompareI(Compare::kGe, magnitude, ConstI(type, 0x477ff000), false), ConstI(type, 0x7c00), result);
  result = Select(CompareI(Compare::kGt, magnitude, ConstI(type, 0x7f800000), false), ConstI(type, 0x7e00), result);
  return TruncateI(Or(result, sign), b.getI16Type());
}

Value Ops::RoundTo(DType dtype, Value x) {
  if (dtype == DType::kBF16) {
    if (cpu_.brain_dots) return Bf16BitsToF32(F32ToBf16Bits(x));
    Value bits = RoundedToBf16(x);
    return Bitcast(And(bits, ConstI(bits.getType(), -65536)), b.getF32Type());
  }
  if (cpu_.f16c) return ExtendF(TruncateF(x, b.getF16Type()), b.getF32Type());
  return F16BitsToF32(F32ToF16Bits(x));
}

Value Ops::Cast(DType from, DType to, Value x) {
  if (from == to) return x;
  Type element = ComputeType(to);
  if (to == DType::kBool) {
    return CompareN(Compare::kNe, from, x, Const(x.getType(), 0));
  }
  if (from == DType::kBool) {
    if (!ir::IsFloat(to)) return ExtendI(x, element, false);
    Type type = WithElement(x.getType(), element);
    return Select(x, ConstF(type, 1), ConstF(type, 0));
  }
  bool narrow = to == DType::kF16 || to == DType::kBF16;
  if (ir::IsFloat(from) && ir::IsFloat(to)) {
    if (from == DType::kF64 && narrow) {
      // Rounding twice is wrong at ties; rounding to odd first is not: towards zero, the last bit set where inexact.
      Value once = TruncateF(x, b.getF32Type());
      Value back = ExtendF(once, b.getF64Type());
      Value bits = Bitcast(once, b.getI32Type());
      Type type = bits.getType();
      Value inexact = And(CompareF(Compare::kNe, back, x), Not(IsNan(x)));
      Value away = CompareF(Compare::kGt, AbsF(back), AbsF(x));
      Value toward_zero = Select(away, SubI(bits, ConstI(type, 1)), bits);
      Value odd = Or(toward_zero, ConstI(type, 1));
      return RoundTo(to, Bitcast(Select(inexact, odd, bits), b.getF32Type()));
    }
    if (from == DType::kF64) return TruncateF(x, element);
    if (to == DType::kF64) return ExtendF(x, element);
    return narrow ? RoundTo(to, x) : x;
  }
  if (ir::IsFloat(from)) return FloatToIntSaturating(x, element, ir::IsSigned(to));
  if (ir::IsFloat(to)) {
    if (narrow && (from == DType::kI32 || from == DType::kI64)) {
      return Cast(DType::kF64, to, IntToFloat(x, b.getF64Type(), true));
    }
    Value value = IntToFloat(x, element, ir::IsSigned(from));
    return narrow ? RoundTo(to, value) : value;
  }
  if (ir::ByteSize(to) < ir::ByteSize(from)) return TruncateI(x, element);
  return ExtendI(x, element, ir::IsSigned(from));
}

}  // namespace inlay::native
