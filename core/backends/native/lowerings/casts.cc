// cast, and how numbers are quantised to 8 bits and back, which is a chain of operators around one: each result that
// lies in a register is rounded and clamped once, whatever the chain says; or looked up (byte_tables.cc).
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/backends/native/eval.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"
#include "core/ir/literal.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Type;
using mlir::Value;

// 1.5 * 2^23: the sum of it and of a number less than 2^22 is rounded to an integer, to even at ties, which its lowest
// bits are.
constexpr double kRounding = 12582912;

// What computes `t` as part of an expression, if it is `op`.
const Node* Inlined(const Tensor& t, const char* op) {
  return t.inlined && t.producer->op == op ? t.producer : nullptr;
}

std::optional<double> Literal(const Tensor& t) {
  if (t.literal == nullptr || t.Elements() != Extent(1)) return std::nullopt;
  if (ir::IsFloat(t.dtype)) return ir::ElementAsDouble(t.dtype, t.literal->data, 0);
  return static_cast<double>(ir::ElementAsInt(t.dtype, t.literal->data, 0));
}

bool IsInteger(double value) { return std::abs(value) <= 255 && std::floor(value) == value; }

// cast(clip(add(round(x), zero), low, high)) of f32 to 8 bits that hold low and high, which 0 is between; zero may be
// left out.
struct Quantised {
  const Tensor* x;
  double zero = 0, low, high;
};

std::optional<Quantised> QuantisedBy(const Node& cast) {
  const DType to = cast.out().dtype;
  if (cast.in(0).dtype != DType::kF32 || (to != DType::kI8 && to != DType::kU8)) return std::nullopt;
  const Node* clip = Inlined(cast.in(0), "clip");
  if (clip == nullptr || !clip->attrs->Has("min") || !clip->attrs->Has("max")) return std::nullopt;
  Quantised q{&clip->in(0), 0, clip->attrs->Float("min"), clip->attrs->Float("max")};
  const double least = to == DType::kI8 ? -128 : 0;
  // 0 is what NaN becomes.
  const bool holds = q.low >= least && q.low <= 0 && q.high >= 0 && q.high <= least + 255;
  if (!holds || !IsInteger(q.low) || !IsInteger(q.high)) return std::nullopt;
  if (const Node* add = Inlined(*q.x, "add")) {
    const std::optional<double> zero = Literal(add->in(1));
    if (!zero || !IsInteger(*zero)) return std::nullopt;
    q.zero = *zero;
    q.x = &add->in(0);
  }
  const Node* round = Inlined(*q.x, "round");
  if (round == nullptr || round->in(0).dims != cast.out().dims) return std::nullopt;
  q.x = &round->in(0);
  return q;
}

// x within what the result will be, less its zero point. NaN becomes the number 0.
Value Clamped(Eval& e, const Quantised& q, const Indices& at) {
  Ops& o = e.o;
  const Value x = e.At(*q.x, at);
  auto bound = [&](double value) { return o.ConstF(x.getType(), value - q.zero); };
  const Value number = q.low == 0 ? x : o.Select(o.IsNan(x), bound(0), x);
  const Value above = o.Select(o.CompareF(Compare::kGt, number, bound(q.low)), number, bound(q.low));
  return o.Select(o.CompareF(Compare::kLt, above, bound(q.high)), above, bound(q.high));
}

Value Quantise(Eval& e, const Quantised& q, DType to, const Indices& at) {
  Ops& o = e.o;
  const Value x = Clamped(e, q, at);
  const Value bits = o.Bitcast(o.AddF(x, o.ConstF(x.getType(), kRounding)), o.b.getI32Type());
  return o.TruncateI(o.AddI(bits, o.ConstI(bits.getType(), static_cast<int64_t>(q.zero))), o.ComputeType(to));
}

// f32 of integers that have been quantised in this very expression, less a zero point: without the bytes between.
Value Dequantise(Eval& e, const Node& cast, const Indices& at) {
  if (cast.in(0).dtype != DType::kI32 || cast.out().dtype != DType::kF32) return nullptr;
  const Tensor* integer = &cast.in(0);
  double zero = 0;
  if (const Node* sub = Inlined(*integer, "sub")) {
    const std::optional<double> literal = Literal(sub->in(1));
    if (!literal || !IsInteger(*literal)) return nullptr;
    zero = *literal;
    integer = &sub->in(0);
  }
  const Node* widened = Inlined(*integer, "cast");
  if (widened == nullptr) return nullptr;
  const Node* quantised = Inlined(widened->in(0), "cast");
  if (quantised == nullptr || e.IsProvided(quantised->out())) return nullptr;
  if (e.k.function().FindByteTable(quantised->out()) != nullptr) return nullptr;
  const std::optional<Quantised> q = QuantisedBy(*quantised);
  if (!q || quantised->out().dims != cast.out().dims) return nullptr;
  const Value x = e.o.RoundEven(Clamped(e, *q, at));
  // Rounded from below it is -0, which a sum with 0 is not.
  const bool may_be_negative = q->low < q->zero;
  return q->zero == zero && !may_be_negative ? x : e.o.AddF(x, e.o.ConstF(x.getType(), q->zero - zero));
}

// Element `x` of a table of 256 bytes.
Value Lookup(Ops& o, Value table, Value x) {
  const Type byte = o.b.getI8Type();
  const int64_t lanes = Ops::Lanes(x);
  if (lanes == 1) return o.Load(byte, o.At(table, o.ExtendI(x, o.b.getI64Type(), false), byte));
  constexpr int64_t kAll = 64;
  auto resized = [&](Value v, int64_t from, int64_t to) -> Value {
    if (from == to) return v;
    std::vector<int32_t> mask(to, -1);
    for (int64_t i = 0; i < std::min(from, to); ++i) mask[i] = static_cast<int32_t>(i);
    return o.b.create<mlir::LLVM::ShuffleVectorOp>(o.loc, v, v, mask);
  };
  const Value at = resized(x, lanes, kAll);
  auto part = [&](int64_t i) { return o.Load(at.getType(), o.At(table, i * kAll, byte)); };
  auto half = [&](int64_t first) {
    return o.Intrinsic("llvm.x86.avx512.vpermi2var.qi.512", at.getType(), {part(first), at, part(first + 1)});
  };
  const Value is_high = o.CompareI(Compare::kLt, at, o.ConstI(at.getType(), 0), /*is_signed=*/true);
  return resized(o.Select(is_high, half(2), half(0)), kAll, lanes);
}

Value Cast(Eval& e, const Node& n, int, const Indices& at) {
  if (const FunctionEmitter::ByteTable* table = e.k.function().FindByteTable(n.out())) {
    return Lookup(e.o, e.k.Pointer(table->values), e.At(*table->source, e.BroadcastTo(*table->source, at)));
  }
  if (const std::optional<Quantised> q = QuantisedBy(n)) return Quantise(e, *q, n.out().dtype, at);
  if (const Value number = Dequantise(e, n, at)) return number;
  return e.o.Cast(n.in(0).dtype, n.out().dtype, e.At(n.in(0), at));
}

}  // namespace

void RegisterCasts(LoweringTable* table) {
  Lowering& cast = (*table)["cast"];
  cast.pointwise = true;
  cast.cost = 2;
  cast.element = Cast;
}

}  // namespace inlay::native
