// Computes what depends on literals alone, where the result is small. Weights are never looked at.
//
//   %0 = iota(shape=[4], axis=0, dtype=i64)
//   %1 = mul(%0, i64(2))                        becomes      add(%x, i64[4]{1, 3, 5, 7})
//   %2 = add(%x, add(%1, i64(1)))
//
// A full or expand with many elements stays: a literal is data, in the module and in the code.
#include <algorithm>

#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"
#include "core/passes/scalar_eval.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::ConstantPtr;
using ir::Operand;
using ir::TensorType;
using Ints = std::vector<int64_t>;

// Position ids and masks of a few hundred tokens; proto/ir.proto allows four times as much.
constexpr int64_t kMaxFoldedBytes = 16 << 10;
// Of a function: a million bindings of a few bytes could otherwise become gigabytes.
constexpr int64_t kMaxTotalBytes = 16 << 20;

Ints Strides(const Ints& shape) {
  Ints strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Calls f(index of the source) for each element of a result of `shape`, in order. The source is read at offset + the
// sum over the axes of coordinate * stride.
template <typename F>
void ForEach(const Ints& shape, const Ints& strides, int64_t offset, F f) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  Ints at(shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(offset);
    for (size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++at[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

// Strides with which a tensor of `from` is read as if it had been broadcast to `to`.
Ints BroadcastStrides(const Ints& from, const Ints& to) {
  Ints own = Strides(from), strides(to.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[to.size() - from.size() + i] = own[i];
  }
  return strides;
}

// Elements of a literal, one by one, in an order given by strides.
std::string Take(const ir::Constant& x, const Ints& shape, const Ints& strides, int64_t offset) {
  const int64_t size = ir::ByteSize(x.type.dtype);
  std::string data;
  ForEach(shape, strides, offset, [&](int64_t i) { data.append(x.data, i * size, size); });
  return data;
}

Ints BroadcastIndices(const Ints& from, const Ints& to) {
  Ints indices;
  ForEach(to, BroadcastStrides(from, to), 0, [&](int64_t i) { indices.push_back(i); });
  return indices;
}

// The data of the call's result; nullopt: not evaluated here.
class Evaluator {
 public:
  Evaluator(const Binding& binding, const TensorType& out) : b_(binding), out_(out), shape_(out.Shape()) {}

  absl::optional<std::string> Run() {
    const std::string& op = b_.callee;
    if (op == "full") return Full();
    if (op == "iota") return Iota();
    if (op == "cast") {
      return Map([&](int64_t i) { return EvalCast(Element(0, i), out_.dtype); });
    }
    if (op == "where") return Where();
    if (op == "reshape" || op == "identity") return x().data;
    if (op == "transpose") return Transpose();
    if (op == "expand") return Take(x(), shape_, BroadcastStrides(x().type.Shape(), shape_), 0);
    if (op == "slice") return Slice();
    if (op == "concat") return Concat();
    if (op == "gather") return Gather();
    if (op == "reduce_sum" || op == "reduce_prod" || op == "reduce_max" || op == "reduce_min") return Reduce();
    if (b_.args.size() == 1 && b_.attrs.values().empty()) {
      return Map([&](int64_t i) { return EvalUnary(op, Element(0, i)); });
    }
    if (b_.args.size() == 2 && b_.attrs.values().empty() && op != "matmul") return Binary();
    return absl::nullopt;
  }

 private:
  const ir::Constant& x() const { return *b_.args[0].constant; }
  Scalar Element(int arg, int64_t i) const {
    const ir::Constant& c = *b_.args[arg].constant;
    return Load(c.type.dtype, c.data, i);
  }

  // f(i) for each element; gives up where f does.
  template <typename F>
  absl::optional<std::string> Map(F f) const {
    std::string data;
    for (int64_t i = 0, n = out_.NumElements(); i < n; ++i) {
      absl::optional<Scalar> value = f(i);
      if (!value.has_value() || value->dtype != out_.dtype) return absl::nullopt;
      Append(*value, &data);
    }
    return data;
  }

  absl::optional<std::string> Full() const {
    std::string one, data;
    if (ir::IsFloat(out_.dtype)) {
      ir::AppendDouble(out_.dtype, b_.attrs.Float("value"), &one);
    } else {
      ir::AppendInt(out_.dtype, b_.attrs.Int("value"), &one);
    }
    for (int64_t i = 0, n = out_.NumElements(); i < n; ++i) data += one;
    return data;
  }

  absl::optional<std::string> Iota() const {
    Ints strides(shape_.size(), 0);
    strides[b_.attrs.Int("axis")] = 1;
    std::string data;
    ForEach(shape_, strides, 0, [&](int64_t i) { ir::AppendInt(out_.dtype, i, &data); });
    return data;
  }

  absl::optional<std::string> Binary() const {
    const Ints a = BroadcastIndices(b_.args[0].constant->type.Shape(), shape_);
    const Ints b = BroadcastIndices(b_.args[1].constant->type.Shape(), shape_);
    return Map([&](int64_t i) { return EvalBinary(b_.callee, Element(0, a[i]), Element(1, b[i])); });
  }

  absl::optional<std::string> Where() const {
    Ints at[3];
    for (int k = 0; k < 3; ++k) at[k] = BroadcastIndices(b_.args[k].constant->type.Shape(), shape_);
    return Map([&](int64_t i) {
      const int chosen = Element(0, at[0][i]).i != 0 ? 1 : 2;
      return Element(chosen, at[chosen][i]);
    });
  }

  absl::optional<std::string> Transpose() const {
    const Ints own = Strides(x().type.Shape());
    Ints strides;
    for (int64_t p : b_.attrs.Ints("perm")) strides.push_back(own[p]);
    return Take(x(), shape_, strides, 0);
  }

  absl::optional<std::string> Slice() const {
    Ints strides = Strides(x().type.Shape());
    int64_t offset = 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      offset += strides[i] * b_.attrs.Ints("begins")[i];
      // A step beyond the extent takes one element; the product must not overflow.
      strides[i] = shape_[i] <= 1 ? 0 : strides[i] * b_.attrs.Ints("steps")[i];
    }
    return Take(x(), shape_, strides, offset);
  }

  absl::optional<std::string> Concat() const {
    const int64_t axis = b_.attrs.Int("axis");
    int64_t outer = 1;
    for (int64_t i = 0; i < axis; ++i) outer *= shape_[i];
    std::string data;
    for (int64_t i = 0; i < outer; ++i) {
      for (const Operand& arg : b_.args) {
        const std::string& part = arg.constant->data;
        const int64_t size = part.size() / outer;
        data.append(part, i * size, size);
      }
    }
    return data;
  }

  absl::optional<std::string> Gather() const {
    const Ints from = x().type.Shape(), indices = ir::IntElements(*b_.args[1].constant);
    const int64_t axis = b_.attrs.Int("axis"), extent = from[axis];
    int64_t outer = 1, inner = ir::ByteSize(x().type.dtype);
    for (int64_t i = 0; i < axis; ++i) outer *= from[i];
    for (size_t i = axis + 1; i < from.size(); ++i) inner *= from[i];
    std::string data;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t index : indices) {
        if (index < 0) index += extent;
        index = std::max<int64_t>(0, std::min(index, extent - 1));
        data.append(x().data, (o * extent + index) * inner, inner);
      }
    }
    return data;
  }

  // Of integers only: sums of floats depend on the order.
  absl::optional<std::string> Reduce() const {
    if (ir::IsFloat(out_.dtype)) return absl::nullopt;
    const Ints from = x().type.Shape(), own = Strides(from);
    Ints kept_shape, kept_strides, shape, strides;
    const Ints& axes = b_.attrs.Ints("axes");
    for (size_t i = 0; i < from.size(); ++i) {
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
      (reduced ? shape : kept_shape).push_back(from[i]);
      (reduced ? strides : kept_strides).push_back(own[i]);
    }
    const std::string op = b_.callee == "reduce_sum"    ? "add"
                           : b_.callee == "reduce_prod" ? "mul"
                           : b_.callee == "reduce_max"  ? "maximum"
                                                        : "minimum";
    std::string data;
    bool empty = false;
    ForEach(kept_shape, kept_strides, 0, [&](int64_t base) {
      absl::optional<Scalar> value;
      ForEach(shape, strides, base,
              [&](int64_t i) { value = value.has_value() ? EvalBinary(op, *value, Element(0, i)) : Element(0, i); });
      empty |= !value.has_value();
      if (value.has_value()) Append(*value, &data);
    });
    if (empty) return absl::nullopt;
    return data;
  }

  const Binding& b_;
  const TensorType& out_;
  const Ints shape_;
};

class Folder : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall || !binding->var->type.is_tensor()) return absl::nullopt;
    const TensorType& type = binding->var->type.tensor();
    if (!type.is_static() || type.NumBytes() > kMaxFoldedBytes || total_ > kMaxTotalBytes) return absl::nullopt;
    for (const Operand& arg : binding->args) {
      if (!arg.is_literal()) return absl::nullopt;
    }
    absl::optional<std::string> data = Evaluator(*binding, type).Run();
    if (!data.has_value()) return absl::nullopt;
    if (static_cast<int64_t>(data->size()) != type.NumBytes()) {
      return absl::InternalError("folding gave a literal of a wrong size");
    }
    total_ += type.NumBytes();
    return {Operand(ir::MakeLiteral(type, *std::move(data)))};
  }

 private:
  int64_t total_ = 0;
};

class FoldConstantsPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "fold_constants"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Folder().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> FoldConstants() { return std::make_unique<FoldConstantsPass>(); }

}  // namespace inlay::passes
