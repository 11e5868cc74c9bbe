#include "core/backends/native/ops.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {

namespace arith = mlir::arith;
namespace LLVM = mlir::LLVM;
using ir::DType;
using mlir::Type;
using mlir::Value;

namespace {

bool IsFloatType(Type type) { return mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)); }
int BitsOf(Type type) { return static_cast<int>(mlir::getElementTypeOrSelf(type).getIntOrFloatBitWidth()); }

}  // namespace

// --- types and constants

Type Ops::StoredType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return b.getF32Type();
    case DType::kF64:
      return b.getF64Type();
    case DType::kF16:
      return b.getF16Type();
    case DType::kBF16:
      return b.getBF16Type();
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return b.getI8Type();
    case DType::kI16:
      return b.getI16Type();
    case DType::kI32:
      return b.getI32Type();
    case DType::kI64:
      return b.getI64Type();
  }
  return b.getF32Type();
}

Type Ops::ComputeType(DType dtype, int64_t lanes) {
  Type type = dtype == DType::kBool                           ? b.getI1Type()
              : dtype == DType::kF16 || dtype == DType::kBF16 ? Type(b.getF32Type())
                                                              : StoredType(dtype);
  return WithLanes(type, lanes);
}

int64_t Ops::Lanes(Value value) {
  auto vector = mlir::dyn_cast<mlir::VectorType>(value.getType());
  return vector ? vector.getNumElements() : 1;
}

Type Ops::WithLanes(Type type, int64_t lanes) {
  Type element = mlir::getElementTypeOrSelf(type);
  return lanes == 1 ? element : mlir::VectorType::get({lanes}, element);
}

Type Ops::WithElement(Type type, Type element) {
  if (auto vector = mlir::dyn_cast<mlir::VectorType>(type)) return mlir::VectorType::get(vector.getShape(), element);
  return element;
}

Value Ops::ConstF(Type type, double value) {
  auto element = mlir::cast<mlir::FloatType>(mlir::getElementTypeOrSelf(type));
  mlir::TypedAttr attr = b.getFloatAttr(element, value);
  if (auto vector = mlir::dyn_cast<mlir::VectorType>(type))
    attr = mlir::DenseElementsAttr::get(vector, mlir::Attribute(attr));
  return b.create<arith::ConstantOp>(loc, attr);
}

Value Ops::ConstI(Type type, int64_t value) {
  auto element = mlir::cast<mlir::IntegerType>(mlir::getElementTypeOrSelf(type));
  mlir::TypedAttr attr = b.getIntegerAttr(element, mlir::APInt(64, value, true).trunc(element.getWidth()));
  if (auto vector = mlir::dyn_cast<mlir::VectorType>(type))
    attr = mlir::DenseElementsAttr::get(vector, mlir::Attribute(attr));
  return b.create<arith::ConstantOp>(loc, attr);
}

Value Ops::Const(Type type, double value) {
  return IsFloatType(type) ? ConstF(type, value) : ConstI(type, static_cast<int64_t>(value));
}

Value Ops::ConstLanes(const std::vector<float>& lanes) {
  auto type = mlir::VectorType::get({static_cast<int64_t>(lanes.size())}, b.getF32Type());
  return b.create<arith::ConstantOp>(loc, mlir::DenseElementsAttr::get(type, llvm::ArrayRef<float>(lanes)));
}

Value Ops::Iota(int64_t lanes, int64_t stride) {
  std::vector<int64_t> values(lanes);
  for (int64_t i = 0; i < lanes; ++i) values[i] = i * stride;
  auto type = mlir::VectorType::get({lanes}, b.getI64Type());
  return b.create<arith::ConstantOp>(loc, mlir::DenseElementsAttr::get(type, llvm::ArrayRef<int64_t>(values)));
}

// --- floats

Value Ops::AddF(Value x, Value y) { return b.createOrFold<arith::AddFOp>(loc, x, y); }
Value Ops::SubF(Value x, Value y) { return b.createOrFold<arith::SubFOp>(loc, x, y); }
Value Ops::MulF(Value x, Value y) { return b.createOrFold<arith::MulFOp>(loc, x, y); }
Value Ops::DivF(Value x, Value y) { return b.createOrFold<arith::DivFOp>(loc, x, y); }
Value Ops::RemF(Value x, Value y) { return Libm("fmod", {x, y}); }
Value Ops::Fma(Value x, Value y, Value z) {
  if (!cpu_.fma) return AddF(MulF(x, y), z);  // llvm.fma without the instruction is a call into libm for each lane
  return b.create<LLVM::FMAOp>(loc, x, y, z);
}
Value Ops::NegF(Value x) { return b.createOrFold<arith::NegFOp>(loc, x); }
Value Ops::AbsF(Value x) { return b.create<LLVM::FAbsOp>(loc, x); }
Value Ops::Sqrt(Value x) { return b.create<LLVM::SqrtOp>(loc, x); }
Value Ops::Floor(Value x) { return b.create<LLVM::FFloorOp>(loc, x); }
Value Ops::Ceil(Value x) { return b.create<LLVM::FCeilOp>(loc, x); }
// The rounding mode is never changed, so rint is round-half-even; roundeven would be a call without SSE4.1.
Value Ops::RoundEven(Value x) { return b.create<LLVM::RintOp>(loc, x); }
Value Ops::CopySign(Value x, Value sign) { return b.create<LLVM::CopySignOp>(loc, x, sign); }

Value Ops::CompareF(Compare predicate, Value x, Value y) {
  using P = arith::CmpFPredicate;
  P p = P::OEQ;
  switch (predicate) {
    case Compare::kEq:
      p = P::OEQ;
      break;
    case Compare::kNe:
      p = P::UNE;
      break;
    case Compare::kLt:
      p = P::OLT;
      break;
    case Compare::kLe:
      p = P::OLE;
      break;
    case Compare::kGt:
      p = P::OGT;
      break;
    case Compare::kGe:
      p = P::OGE;
      break;
  }
  return b.createOrFold<arith::CmpFOp>(loc, p, x, y);
}

Value Ops::IsNan(Value x) { return b.createOrFold<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, x, x); }

// --- integers

Value Ops::AddI(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
Value Ops::SubI(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
Value Ops::MulI(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }

Value Ops::DivI(Value x, Value y, bool is_signed) {
  Type type = x.getType();
  Value zero = ConstI(type, 0), one = ConstI(type, 1);
  Value by_zero = CompareI(Compare::kEq, y, zero, true);
  Value safe = Select(by_zero, one, y);
  if (!is_signed) return Select(by_zero, zero, b.createOrFold<arith::DivUIOp>(loc, x, safe));
  Value by_minus_one = CompareI(Compare::kEq, y, ConstI(type, -1), true);
  safe = Select(by_minus_one, one, safe);
  Value quotient = b.createOrFold<arith::DivSIOp>(loc, x, safe);
  return Select(by_zero, zero, Select(by_minus_one, SubI(zero, x), quotient));
}

Value Ops::RemI(Value x, Value y, bool is_signed) {
  Type type = x.getType();
  Value zero = ConstI(type, 0), one = ConstI(type, 1);
  // x mod 1 = x mod -1 = 0: what a divisor of zero must give too.
  Value safe = Select(CompareI(Compare::kEq, y, zero, true), one, y);
  if (!is_signed) return b.createOrFold<arith::RemUIOp>(loc, x, safe);
  safe = Select(CompareI(Compare::kEq, y, ConstI(type, -1), true), one, safe);
  return b.createOrFold<arith::RemSIOp>(loc, x, safe);
}

Value Ops::And(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
Value Ops::Or(Value x, Value y) { return b.createOrFold<arith::OrIOp>(loc, x, y); }
Value Ops::Xor(Value x, Value y) { return b.createOrFold<arith::XOrIOp>(loc, x, y); }
Value Ops::Not(Value x) { return Xor(x, ConstI(x.getType(), -1)); }
Value Ops::ShiftLeft(Value x, Value by) { return b.createOrFold<arith::ShLIOp>(loc, x, by); }
Value Ops::ShiftRight(Value x, Value by, bool is_signed) {
  if (is_signed) return b.createOrFold<arith::ShRSIOp>(loc, x, by);
  return b.createOrFold<arith::ShRUIOp>(loc, x, by);
}

Value Ops::CompareI(Compare predicate, Value x, Value y, bool is_signed) {
  using P = arith::CmpIPredicate;
  P p = P::eq;
  switch (predicate) {
    case Compare::kEq:
      p = P::eq;
      break;
    case Compare::kNe:
      p = P::ne;
      break;
    case Compare::kLt:
      p = is_signed ? P::slt : P::ult;
      break;
    case Compare::kLe:
      p = is_signed ? P::sle : P::ule;
      break;
    case Compare::kGt:
      p = is_signed ? P::sgt : P::ugt;
      break;
    case Compare::kGe:
      p = is_signed ? P::sge : P::uge;
      break;
  }
  return b.createOrFold<arith::CmpIOp>(loc, p, x, y);
}

Value Ops::Select(Value condition, Value x, Value y) {
  if (Lanes(x) > 1 && Lanes(condition) == 1) condition = Broadcast(condition, Lanes(x));
  return KernelBuilder::Select(condition, x, y);
}

// --- by DType

Value Ops::AddN(DType dtype, Value x, Value y) { return ir::IsFloat(dtype) ? AddF(x, y) : AddI(x, y); }
Value Ops::SubN(DType dtype, Value x, Value y) { return ir::IsFloat(dtype) ? SubF(x, y) : SubI(x, y); }
Value Ops::MulN(DType dtype, Value x, Value y) { return ir::IsFloat(dtype) ? MulF(x, y) : MulI(x, y); }
Value Ops::DivN(DType dtype, Value x, Value y) {
  return ir::IsFloat(dtype) ? DivF(x, y) : DivI(x, y, ir::IsSigned(dtype));
}

Value Ops::CompareN(Compare predicate, DType dtype, Value x, Value y) {
  return ir::IsFloat(dtype) ? CompareF(predicate, x, y) : CompareI(predicate, x, y, ir::IsSigned(dtype));
}

// NaN wins; of zeros either does: one maxps, and a second look at a NaN in x alone. Comparisons and selects that say
// the same become one select by both conditions, of scalars a jump that random numbers mispredict.
template <typename Op>
static Value FloatBound(Ops& o, Value x, Value y) {
  return o.b.create<Op>(o.loc, x, y, mlir::arith::FastMathFlags::nsz);
}

Value Ops::MaxN(DType dtype, Value x, Value y) {
  if (dtype == DType::kBool) return Or(x, y);
  if (ir::IsFloat(dtype)) return FloatBound<mlir::arith::MaximumFOp>(*this, x, y);
  return Select(CompareN(Compare::kGt, dtype, x, y), x, y);
}

Value Ops::MinN(DType dtype, Value x, Value y) {
  if (dtype == DType::kBool) return And(x, y);
  if (ir::IsFloat(dtype)) return FloatBound<mlir::arith::MinimumFOp>(*this, x, y);
  return Select(CompareN(Compare::kLt, dtype, x, y), x, y);
}

Value Ops::LowestN(DType dtype, Type type) {
  if (ir::IsFloat(dtype)) return ConstF(type, -std::numeric_limits<double>::infinity());
  if (!ir::IsSigned(dtype) || dtype == DType::kBool) return ConstI(type, 0);
  return ConstI(type, static_cast<int64_t>(-(uint64_t{1} << (BitsOf(type) - 1))));
}

Value Ops::HighestN(DType dtype, Type type) {
  if (ir::IsFloat(dtype)) return ConstF(type, std::numeric_limits<double>::infinity());
  if (!ir::IsSigned(dtype) || dtype == DType::kBool) return ConstI(type, -1);
  return ConstI(type, static_cast<int64_t>((uint64_t{1} << (BitsOf(type) - 1)) - 1));
}

// --- vectors

Value Ops::Broadcast(Value scalar, int64_t lanes) {
  if (lanes == 1 || Lanes(scalar) == lanes) return scalar;
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>()) {
    auto type = mlir::VectorType::get({lanes}, scalar.getType());
    return b.create<arith::ConstantOp>(loc, mlir::DenseElementsAttr::get(type, mlir::Attribute(constant.getValue())));
  }
  return b.create<mlir::vector::BroadcastOp>(loc, WithLanes(scalar.getType(), lanes), scalar);
}

Value Ops::Extract(Value vector, int64_t lane) {
  if (Lanes(vector) == 1) return vector;
  return b.createOrFold<mlir::vector::ExtractOp>(loc, vector, lane);
}

Value Ops::FromLanes(const std::vector<Value>& lanes) {
  if (lanes.size() == 1) return lanes[0];
  Value vector = Broadcast(lanes[0], static_cast<int64_t>(lanes.size()));
  for (size_t i = 1; i < lanes.size(); ++i) {
    vector = b.create<mlir::vector::InsertOp>(loc, lanes[i], vector, static_cast<int64_t>(i));
  }
  return vector;
}

Value Ops::Shuffle(Value x, Value y, const std::vector<int64_t>& mask) {
  return b.create<mlir::vector::ShuffleOp>(loc, x, y, llvm::ArrayRef<int64_t>(mask));
}

static std::vector<int64_t> Consecutive(int64_t first, int64_t count) {
  std::vector<int64_t> mask(count);
  std::iota(mask.begin(), mask.end(), first);
  return mask;
}

Value Ops::Joined(std::vector<Value> parts) {
  while (parts.size() > 1) {
    for (size_t i = 0; i < parts.size() / 2; ++i) {
      const Value x = parts[2 * i], y = parts[2 * i + 1];
      parts[i] = Shuffle(x, y, Consecutive(0, Lanes(x) + Lanes(y)));
    }
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

std::vector<Value> Ops::Parts(Value x, int64_t lanes) {
  std::vector<Value> parts;
  for (int64_t first = 0; first < Lanes(x); first += lanes) {
    parts.push_back(lanes == 1 ? Extract(x, first) : Shuffle(x, x, Consecutive(first, lanes)));
  }
  return parts;
}

std::vector<Value> Ops::SideBySide(const std::vector<Value>& vectors, const std::function<Value(Value)>& f) {
  const int64_t lanes = Lanes(vectors[0]);
  const bool joins = lanes > 1 && (vectors.size() & (vectors.size() - 1)) == 0;
  if (joins) return Parts(f(Joined(vectors)), lanes);
  std::vector<Value> results;
  for (Value v : vectors) results.push_back(f(v));
  return results;
}

Value Ops::Permute(Value x, Value index) {
  if (Lanes(index) > Lanes(x)) {
    std::vector<Value> parts;
    for (Value part : Parts(index, Lanes(x))) parts.push_back(Permute(x, part));
    return Joined(parts);
  }
  const char* name = Lanes(x) == 16  ? "llvm.x86.avx512.permvar.sf.512"
                     : Lanes(x) == 8 ? "llvm.x86.avx2.permps"
                                     : "llvm.x86.avx.vpermilvar.ps";
  return Intrinsic(name, x.getType(), {x, index});
}

Value Ops::ReverseLanes(Value x) {
  std::vector<int64_t> mask;
  for (int64_t i = Lanes(x) - 1; i >= 0; --i) mask.push_back(i);
  return Shuffle(x, x, mask);
}

Value Ops::ReduceLanes(Value x, const std::function<Value(Value, Value)>& combine) {
  for (int64_t lanes = Lanes(x); lanes > 1; lanes /= 2) {
    std::vector<int64_t> low, high;
    for (int64_t i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(i + lanes / 2);
    }
    if (lanes == 2) return combine(Extract(x, 0), Extract(x, 1));
    x = combine(Shuffle(x, x, low), Shuffle(x, x, high));
  }
  return x;
}

// --- memory

Value Ops::LoadElements(DType dtype, Value base, Value offset, int64_t lanes) {
  Type stored = StoredType(dtype);
  Value pointer = At(base, offset, stored);
  if (dtype == DType::kBF16 || (dtype == DType::kF16 && !cpu_.f16c)) {
    Value bits = Load(WithLanes(b.getI16Type(), lanes), pointer);
    return dtype == DType::kF16 ? F16BitsToF32(bits) : Bf16BitsToF32(bits);
  }
  Value x = Load(WithLanes(stored, lanes), pointer);
  if (dtype == DType::kBool) return CompareI(Compare::kNe, x, ConstI(x.getType(), 0), false);
  return dtype == DType::kF16 ? ExtendF(x, b.getF32Type()) : x;
}

void Ops::StoreElements(DType dtype, Value x, Value base, Value offset) {
  Type stored = StoredType(dtype);
  Value pointer = At(base, offset, stored);
  if (dtype == DType::kBF16) {
    x = F32ToBf16Bits(x);
  } else if (dtype == DType::kF16) {
    x = cpu_.f16c ? TruncateF(x, stored) : F32ToF16Bits(x);
  } else if (dtype == DType::kBool) {
    x = ExtendI(x, stored, false);
  }
  Store(x, pointer);
}

void Ops::CopyBytes(Value to, Value from, const Extent& bytes) {
  if (bytes != Extent(0)) CopyBytes(to, from, Int(bytes));
}
void Ops::CopyBytes(Value to, Value from, Value bytes) { b.create<LLVM::MemcpyOp>(loc, to, from, bytes, false); }
void Ops::ZeroBytes(Value to, int64_t bytes) {
  if (bytes > 0) b.create<LLVM::MemsetOp>(loc, to, ConstI(b.getI8Type(), 0), Int(bytes), false);
}

Value Ops::StackBytes(int64_t bytes) {
  return b.create<LLVM::AllocaOp>(loc, LLVM::LLVMPointerType::get(b.getContext()), b.getI8Type(), Int(bytes), 64);
}

// --- control

std::vector<Value> Ops::IfElse(Value condition, const std::vector<Type>& types,
                               const std::function<std::vector<Value>()>& then,
                               const std::function<std::vector<Value>()>& otherwise) {
  auto op = b.create<mlir::scf::IfOp>(loc, mlir::TypeRange(types), condition, true);
  mlir::OpBuilder::InsertionGuard guard(b);
  for (auto [block, emit] : {std::pair(op.thenBlock(), &then), std::pair(op.elseBlock(), &otherwise)}) {
    if (!block->empty()) block->getTerminator()->erase();
    b.setInsertionPointToEnd(block);
    std::vector<Value> values = (*emit)();
    b.create<mlir::scf::YieldOp>(loc, mlir::ValueRange(values));
  }
  return {op.getResults().begin(), op.getResults().end()};
}

std::vector<Value> Ops::While(const std::vector<Value>& init,
                              const std::function<Value(const std::vector<Value>&)>& condition,
                              const std::function<std::vector<Value>(const std::vector<Value>&)>& body) {
  std::vector<Type> types;
  for (Value v : init) types.push_back(v.getType());
  auto op = b.create<mlir::scf::WhileOp>(
      loc, mlir::TypeRange(types), mlir::ValueRange(init),
      [&](mlir::OpBuilder&, mlir::Location, mlir::ValueRange args) {
        mlir::OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(mlir::cast<mlir::BlockArgument>(args[0]).getOwner());
        std::vector<Value> state(args.begin(), args.end());
        Value go_on = condition(state);
        b.create<mlir::scf::ConditionOp>(loc, go_on, args);
      },
      [&](mlir::OpBuilder&, mlir::Location, mlir::ValueRange args) {
        mlir::OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(mlir::cast<mlir::BlockArgument>(args[0]).getOwner());
        std::vector<Value> next = body({args.begin(), args.end()});
        b.create<mlir::scf::YieldOp>(loc, mlir::ValueRange(next));
      });
  return {op.getResults().begin(), op.getResults().end()};
}

Value Ops::Libm(const std::string& name, const std::vector<Value>& args) {
  Type element = mlir::getElementTypeOrSelf(args[0].getType());
  std::string symbol = element.isF32() ? name + "f" : name;
  auto function = module_->lookupSymbol<LLVM::LLVMFuncOp>(symbol);
  if (!function) {
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module_->getBody());
    std::vector<Type> types(args.size(), element);
    function = b.create<LLVM::LLVMFuncOp>(loc, symbol, LLVM::LLVMFunctionType::get(element, types));
    // Free of side effects, so that unused and repeated calls go (errno is nobody's business here).
    function.setMemoryAttr(LLVM::MemoryEffectsAttr::get(
        b.getContext(), {LLVM::ModRefInfo::NoModRef, LLVM::ModRefInfo::NoModRef, LLVM::ModRefInfo::NoModRef}));
  }
  std::vector<Value> results;
  for (int64_t lane = 0; lane < Lanes(args[0]); ++lane) {
    std::vector<Value> scalars;
    for (Value arg : args) scalars.push_back(Extract(arg, lane));
    results.push_back(b.create<LLVM::CallOp>(loc, function, mlir::ValueRange(scalars)).getResult());
  }
  return FromLanes(results);
}

}  // namespace inlay::native
