#include "core/backends/native/kernel_builder.h"

#include "absl/strings/str_cat.h"
#include "core/ir/dim_expr.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Matchers.h"

namespace inlay::native {

namespace arith = mlir::arith;
namespace scf = mlir::scf;
using mlir::Type;
using mlir::Value;

bool IsConstant(Value value, int64_t* constant) {
  mlir::APInt bits;
  if (!mlir::matchPattern(value, mlir::m_ConstantInt(&bits))) return false;
  *constant = bits.getSExtValue();
  return true;
}

Value KernelBuilder::Int(int64_t value) { return b.create<arith::ConstantIntOp>(loc, value, 64); }
Value KernelBuilder::Add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
Value KernelBuilder::Sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
Value KernelBuilder::Mul(Value x, int64_t y) { return y == 1 ? x : b.createOrFold<arith::MulIOp>(loc, x, Int(y)); }
Value KernelBuilder::Div(Value x, int64_t y) { return y == 1 ? x : b.createOrFold<arith::DivUIOp>(loc, x, Int(y)); }
Value KernelBuilder::Rem(Value x, int64_t y) {
  return y == 1 ? Int(0) : b.createOrFold<arith::RemUIOp>(loc, x, Int(y));
}
Value KernelBuilder::Mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
Value KernelBuilder::Div(Value x, const Extent& y) {
  return y.is_static() ? Div(x, y.value()) : b.createOrFold<arith::DivUIOp>(loc, x, open(y));
}
Value KernelBuilder::Rem(Value x, const Extent& y) {
  return y.is_static() ? Rem(x, y.value()) : b.createOrFold<arith::RemUIOp>(loc, x, open(y));
}

Value KernelBuilder::EvaluateOpen(const Extent& e, const std::function<Value(const std::string&)>& symbol) {
  auto value = [&](const Extent& x) { return EvaluateOpen(x, symbol); };
  switch (e.kind()) {
    case Extent::Kind::kNumber:
      return Int(e.value());
    case Extent::Kind::kPolynomial: {
      Value sum = Int(0);
      for (const ir::DimTerm& term : ir::DimTerms(e.polynomial())) {
        Value product = Int(term.coefficient);
        for (const std::string& name : term.names) product = Mul(product, symbol(name));
        sum = Add(sum, product);
      }
      return sum;
    }
    case Extent::Kind::kSum:
      return Add(value(e.a()), value(e.b()));
    case Extent::Kind::kProduct:
      return Mul(value(e.a()), value(e.b()));
    case Extent::Kind::kFloorDiv:
      return Div(value(e.a()), e.b().value());
    case Extent::Kind::kMin:
      return Min(value(e.a()), value(e.b()));
    case Extent::Kind::kMax:
      return Max(value(e.a()), value(e.b()));
  }
  return {};
}

Value KernelBuilder::RoundUp(Value x, int64_t multiple) { return Mul(Div(Add(x, multiple - 1), multiple), multiple); }
Value KernelBuilder::Min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
Value KernelBuilder::Max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
Value KernelBuilder::Less(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
}
Value KernelBuilder::And(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
Value KernelBuilder::Equal(Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, x, y);
}
Value KernelBuilder::Differ(Value x, Value y) {
  return b.create<mlir::LLVM::ICmpOp>(loc, mlir::LLVM::ICmpPredicate::ne, x, y);
}
Value KernelBuilder::Select(Value condition, Value x, Value y) {
  return b.createOrFold<arith::SelectOp>(loc, condition, x, y);
}

Value KernelBuilder::Zero(Type type) { return b.create<arith::ConstantOp>(loc, type, b.getZeroAttr(type)); }

Value KernelBuilder::Splat(Value scalar, Type vector_type) {
  return b.create<mlir::vector::BroadcastOp>(loc, vector_type, scalar);
}

Value KernelBuilder::MultiplyAdd(Value x, Value y, Value acc) {
  if (mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x.getType()))) {
    // Fused where the target is fast at it; llvm.fma itself would be a call into libm elsewhere.
    return b.create<mlir::LLVM::FMulAddOp>(loc, x, y, acc);
  }
  return b.create<arith::AddIOp>(loc, b.create<arith::MulIOp>(loc, x, y), acc);
}

// As many as `x` is.
static Type Like(Value x, Type element) {
  auto vector = mlir::dyn_cast<mlir::VectorType>(x.getType());
  return vector ? Type(vector.clone(element)) : element;
}

Value KernelBuilder::Widen(Value x, Type to) {
  Type element = mlir::getElementTypeOrSelf(x.getType());
  if (element == to) return x;
  if (!element.isBF16() || !to.isF32()) return b.create<arith::ExtFOp>(loc, Like(x, to), x);
  // By integers: what selects between bf16, as LLVM may where two branches load, would do so as f32, and narrow that by
  // a function that nothing has.
  return Bf16BitsToF32(b.create<arith::BitcastOp>(loc, Like(x, b.getI16Type()), x));
}

Value KernelBuilder::Bf16BitsToF32(Value bits) {
  const Value word = b.create<arith::ExtUIOp>(loc, Like(bits, b.getI32Type()), bits);
  Value places = b.create<arith::ConstantIntOp>(loc, 16, 32);
  if (mlir::isa<mlir::VectorType>(word.getType())) places = Splat(places, word.getType());
  return b.create<arith::BitcastOp>(loc, Like(bits, b.getF32Type()), b.create<arith::ShLIOp>(loc, word, places));
}

Value KernelBuilder::At(Value pointer, Value offset, Type element) {
  int64_t constant;
  if (IsConstant(offset, &constant)) return At(pointer, constant, element);
  return b.create<mlir::LLVM::GEPOp>(loc, pointer.getType(), element, pointer,
                                     mlir::ArrayRef<mlir::LLVM::GEPArg>{offset});
}

Value KernelBuilder::At(Value pointer, int64_t offset, Type element) {
  if (offset == 0) return pointer;
  // A GEPArg keeps no more than 29 bits of a constant, and says nothing about those it drops.
  if (offset >= int64_t{1} << 28 || offset < -(int64_t{1} << 28)) {
    return b.create<mlir::LLVM::GEPOp>(loc, pointer.getType(), element, pointer,
                                       mlir::ArrayRef<mlir::LLVM::GEPArg>{Int(offset)});
  }
  return b.create<mlir::LLVM::GEPOp>(loc, pointer.getType(), element, pointer,
                                     mlir::ArrayRef<mlir::LLVM::GEPArg>{static_cast<int32_t>(offset)});
}

static unsigned ElementBytes(Type type) { return (mlir::getElementTypeOrSelf(type).getIntOrFloatBitWidth() + 7) / 8; }

Value KernelBuilder::Load(Type type, Value pointer) {
  return b.create<mlir::LLVM::LoadOp>(loc, type, pointer, ElementBytes(type));
}

Value KernelBuilder::StaticMask(int64_t lanes, int64_t begin, int64_t end) {
  llvm::SmallVector<bool> mask(lanes);
  for (int64_t i = 0; i < lanes; ++i) mask[i] = i >= begin && i < end;
  return b.create<arith::ConstantOp>(loc,
                                     mlir::DenseElementsAttr::get(mlir::VectorType::get({lanes}, b.getI1Type()), mask));
}

Value KernelBuilder::LoadLanes(Type vector_type, Value pointer, int64_t begin, int64_t end) {
  auto type = mlir::cast<mlir::VectorType>(vector_type);
  int64_t lanes = type.getNumElements();
  if (begin <= 0 && end >= lanes) return Load(type, pointer);
  if (begin >= end || end <= 0 || begin >= lanes) return Zero(type);
  return MaskedLoad(pointer, StaticMask(lanes, begin, end), Zero(type));
}

void KernelBuilder::StoreFirst(Value vector, Value pointer, int64_t lanes) {
  int64_t all = mlir::cast<mlir::VectorType>(vector.getType()).getNumElements();
  if (lanes >= all) return Store(vector, pointer);
  b.create<mlir::LLVM::MaskedStoreOp>(loc, vector, pointer, StaticMask(all, 0, lanes), ElementBytes(vector.getType()));
}

Value KernelBuilder::LaneMask(int64_t lanes, Value begin, Value end) {
  auto type = mlir::VectorType::get({lanes}, b.getI32Type());
  llvm::SmallVector<int32_t> numbers(lanes);
  for (int64_t i = 0; i < lanes; ++i) numbers[i] = i;
  Value lane = b.create<arith::ConstantOp>(loc, mlir::DenseElementsAttr::get(type, mlir::ArrayRef<int32_t>(numbers)));
  auto splat = [&](Value x) { return Splat(b.create<arith::TruncIOp>(loc, b.getI32Type(), x), type); };
  Value from = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sge, lane, splat(begin));
  Value to = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, lane, splat(end));
  return b.create<arith::AndIOp>(loc, from, to);
}

Value KernelBuilder::MaskedLoad(Value pointer, Value mask, Value otherwise) {
  // By integers, as Widen does.
  if (mlir::getElementTypeOrSelf(otherwise.getType()).isBF16()) {
    const Value bits = b.create<arith::BitcastOp>(loc, Like(otherwise, b.getI16Type()), otherwise);
    return b.create<arith::BitcastOp>(loc, otherwise.getType(), MaskedLoad(pointer, mask, bits));
  }
  return b.create<mlir::LLVM::MaskedLoadOp>(loc, otherwise.getType(), pointer, mask, mlir::ValueRange{otherwise},
                                            ElementBytes(otherwise.getType()));
}

void KernelBuilder::Store(Value value, Value pointer) {
  b.create<mlir::LLVM::StoreOp>(loc, value, pointer, ElementBytes(value.getType()));
}

void KernelBuilder::Prefetch(Value pointer, bool write) {
  b.create<mlir::LLVM::Prefetch>(loc, pointer, /*rw=*/write ? 1 : 0, /*hint=*/2, /*cache=*/1);
}

void KernelBuilder::PrefetchIntoL1(Value pointer) {
  b.create<mlir::LLVM::Prefetch>(loc, pointer, /*rw=*/0, /*hint=*/3, /*cache=*/1);
}

void KernelBuilder::KeepOrder() {
  b.create<mlir::LLVM::FenceOp>(loc, mlir::LLVM::AtomicOrdering::acq_rel, "singlethread");
}

std::vector<Value> KernelBuilder::KeepOrder(const std::vector<Value>& vectors) {
  std::string results, operands;  // in any vector register, each where it is
  llvm::SmallVector<mlir::Type> types;
  for (size_t i = 0; i < vectors.size(); ++i) {
    absl::StrAppend(&results, "=x,");
    absl::StrAppend(&operands, i, ",");
    types.push_back(vectors[i].getType());
  }
  const bool one = types.size() == 1;
  const mlir::Type type = one ? types[0] : mlir::LLVM::LLVMStructType::getLiteral(b.getContext(), types);
  const Value all = b.create<mlir::LLVM::InlineAsmOp>(loc, type, vectors, "", results + operands + "~{memory}",
                                                      /*has_side_effects=*/true, /*is_align_stack=*/false,
                                                      mlir::LLVM::AsmDialectAttr(), mlir::ArrayAttr())
                        .getResult(0);
  if (one) return {all};
  std::vector<Value> out;
  for (int64_t i = 0; i < static_cast<int64_t>(vectors.size()); ++i) {
    out.push_back(b.create<mlir::LLVM::ExtractValueOp>(loc, all, i));
  }
  return out;
}

void KernelBuilder::For(Value lo, Value hi, int64_t step, const std::function<void(Value)>& body) {
  For(lo, hi, step, {}, [&](Value i, const std::vector<Value>&) {
    body(i);
    return std::vector<Value>();
  });
}

std::vector<Value> KernelBuilder::For(Value lo, Value hi, int64_t step, const std::vector<Value>& init,
                                      const std::function<std::vector<Value>(Value, const std::vector<Value>&)>& body) {
  int64_t first, last;
  if (IsConstant(lo, &first) && IsConstant(hi, &last)) {
    if (first >= last) return init;
    if (first + step >= last) return body(lo, init);
  }
  auto loop = b.create<scf::ForOp>(loc, lo, hi, Int(step), mlir::ValueRange(init));
  mlir::OpBuilder::InsertionGuard guard(b);
  mlir::Block* block = loop.getBody();
  if (init.empty() && !block->empty()) block->getTerminator()->erase();
  b.setInsertionPointToEnd(block);
  std::vector<Value> carried(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
  b.create<scf::YieldOp>(loc, mlir::ValueRange(body(loop.getInductionVar(), carried)));
  return std::vector<Value>(loop.getResults().begin(), loop.getResults().end());
}

void KernelBuilder::If(Value condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  int64_t constant;
  if (IsConstant(condition, &constant)) {
    if (constant != 0) {
      then();
    } else if (otherwise) {
      otherwise();
    }
    return;
  }
  auto op = b.create<scf::IfOp>(loc, condition, otherwise != nullptr);
  mlir::OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  then();
  if (otherwise) {
    b.setInsertionPointToStart(op.elseBlock());
    otherwise();
  }
}

Type KernelBuilder::Vector(int64_t lanes, Type element) { return mlir::VectorType::get({lanes}, element); }

}  // namespace inlay::native
