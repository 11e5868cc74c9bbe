// Only where config.passes.mixed_precision asks for it: products of bf16 instead of f32, with weights, those of
// recurrent cells among them, and large ones of what is computed, as attention's. Sums stay f32 where a backend keeps
// them so, and what is between products does.
//
//   %1: f32 = conv(%0, @w, @b)                      %x: bf16 = cast(%0)   %w: bf16 = cast(@w)
//   %2: f32 = relu(%1)                  becomes     %1: f32 = add(cast(conv(%x, %w)), reshape(@b, [M, 1, 1]))
//   %3: f32 = add(%2, %0)                           %2: f32 = relu(%1)
//                                                   %3: f32 = add(%2, cast(%x))
//
// What was rounded for one product is so for all that comes behind it: a residual that lay in memory as both would cost
// three times the traffic. So is what convolutions give, and what is pointwise made of that alone, where more than one
// operator reads it, as the residuals are of networks that normalise in front of their convolutions, and where it meets
// what a later convolution gives. Parameters of the function, and what it returns, stay as they are.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::DType;
using ir::Operand;
using Ints = std::vector<int64_t>;

class Narrower : public ConstantsRewriter {
 public:
  explicit Narrower(const ir::Function& function) {
    for (const Operand& result : function.body.results) returned_.insert(result.var.get());
  }

 protected:
  Replacement Visit(Binding* binding) override {
    if (VisitConstant(*binding)) return absl::nullopt;
    if (binding->kind == Binding::Kind::kTupleGetItem) return ItemOfNarrowed(*binding);
    if (IsRecurrent(*binding)) return NarrowRecurrent(*binding);
    if (IsProduct(*binding)) {
      INLAY_ASSIGN_OR_RETURN(const Operand product, Product(*binding));
      if (!binding->IsCall("conv")) return {product};
      return OfConvolutions(*binding, product);
    }
    for (Operand& arg : binding->args) {
      INLAY_ASSIGN_OR_RETURN(arg, Rounded(arg));
    }
    if (!IsMadeOfConvolutions(*binding)) return absl::nullopt;
    INLAY_RETURN_IF_ERROR(RoundAllButLast(&binding->args));
    if (!IsReadTwice(*binding)) {
      AddOfConvolutions(*binding->var);
      return absl::nullopt;
    }
    INLAY_ASSIGN_OR_RETURN(const Operand value, Call(binding->callee, binding->args, binding->attrs));
    return OfConvolutions(*binding, value);
  }

 private:
  bool IsReadTwice(const Binding& binding) const {
    return NumUses(binding.var) > 1 && !returned_.contains(binding.var.get());
  }

  void AddOfConvolutions(const ir::Var& var) { of_convolutions_.emplace(&var, of_convolutions_.size()); }

  // Of values that convolutions gave, the last one need not lie in memory for what reads them all.
  absl::Status RoundAllButLast(std::vector<Operand>* args) {
    auto age = [&](const Operand& arg) {
      const auto found = of_convolutions_.find(arg.var.get());
      const bool lies_there = found == of_convolutions_.end() || narrow_.contains(arg.var.get());
      return lies_there ? -1 : static_cast<int64_t>(found->second);
    };
    const auto younger = [&](const Operand& a, const Operand& b) { return age(a) < age(b); };
    const int64_t last = age(*std::max_element(args->begin(), args->end(), younger));
    for (Operand& arg : *args) {
      if (age(arg) < 0 || age(arg) == last) continue;
      INLAY_RETURN_IF_ERROR(Narrow(arg).status());
      INLAY_ASSIGN_OR_RETURN(arg, Rounded(arg));
    }
    return absl::OkStatus();
  }

  // `value` in place of the binding's.
  absl::StatusOr<Operand> OfConvolutions(const Binding& binding, const Operand& value) {
    AddOfConvolutions(*value.var);
    if (!IsReadTwice(binding)) return value;
    INLAY_RETURN_IF_ERROR(Narrow(value).status());
    return Rounded(value);
  }

  bool IsMadeOfConvolutions(const Binding& call) const {
    if (!IsPointwise(call) || call.var->type.tensor().dtype != DType::kF32) return false;
    const ir::TensorType& type = call.var->type.tensor();
    bool any = false;
    for (const Operand& arg : call.args) {
      if (!arg.is_var() || IsConstant(arg) || !arg.type().is_tensor() || arg.tensor_type().dims != type.dims) continue;
      if (!of_convolutions_.contains(arg.var.get())) return false;
      any = true;
    }
    return any;
  }

  bool IsProduct(const Binding& binding) const {
    if (!binding.IsCall("matmul") && !binding.IsCall("conv")) return false;
    if (binding.var->type.tensor().dtype != DType::kF32 || IsConstant(binding.args[0])) return false;
    return IsConstant(binding.args[1]) || IsLargeProduct(binding);
  }

  // So that rounding both operands pays. Positions times frequencies, which bf16 would spoil, have an inner extent
  // of 1.
  static bool IsLargeProduct(const Binding& product) {
    constexpr int64_t kLarge = 16;
    if (!product.IsCall("matmul")) return false;
    const ir::TensorType &a = product.args[0].tensor_type(), &b = product.args[1].tensor_type();
    if (!a.is_static() || !b.is_static() || a.rank() < 2 || b.rank() < 2) return false;
    const Ints shapes[] = {a.Shape(), b.Shape()};
    return std::all_of(std::begin(shapes), std::end(shapes),
                       [](const Ints& shape) { return shape.back() >= kLarge && shape[shape.size() - 2] >= kLarge; });
  }

  absl::StatusOr<Operand> Product(const Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(const Operand x, Narrow(binding.args[0]));
    INLAY_ASSIGN_OR_RETURN(const Operand w, IsConstant(binding.args[1])
                                                ? CallConstant("cast", {binding.args[1]}, {{"dtype", DType::kBF16}})
                                                : Narrow(binding.args[1]));
    INLAY_ASSIGN_OR_RETURN(const Operand product, Call(binding.callee, {x, w}, binding.attrs));
    INLAY_ASSIGN_OR_RETURN(Operand sum, Call("cast", {product}, {{"dtype", DType::kF32}}));
    if (binding.args.size() > 2) {
      Operand bias = binding.args[2];
      Ints shape(binding.var->type.tensor().rank() - 1, 1);
      shape[0] = binding.args[1].tensor_type().dims[0].value();
      INLAY_ASSIGN_OR_RETURN(bias, IsConstant(bias) ? CallConstant("reshape", {bias}, {{"shape", shape}})
                                                    : Call("reshape", {bias}, {{"shape", shape}}));
      INLAY_ASSIGN_OR_RETURN(sum, Call("add", {sum, bias}));
    }
    return sum;
  }

  bool IsRecurrent(const Binding& call) const {
    if (!call.IsCall("lstm") && !call.IsCall("gru") && !call.IsCall("rnn")) return false;
    return call.args[0].tensor_type().dtype == DType::kF32 && !IsConstant(call.args[0]) && IsConstant(call.args[1]) &&
           IsConstant(call.args[2]);
  }

  // The binding stays, for nobody: its items are those of another.
  Replacement NarrowRecurrent(const Binding& call) {
    std::vector<Operand> args;
    for (const Operand& arg : call.args) {
      INLAY_ASSIGN_OR_RETURN(const Operand narrow,
                             IsConstant(arg) ? CallConstant("cast", {arg}, {{"dtype", DType::kBF16}}) : Narrow(arg));
      args.push_back(narrow);
    }
    INLAY_ASSIGN_OR_RETURN(const Operand narrow, Call(call.callee, std::move(args), call.attrs));
    recurrent_.emplace(call.var.get(), narrow);
    return absl::nullopt;
  }

  Replacement ItemOfNarrowed(const Binding& item) {
    const auto found = recurrent_.find(item.args[0].var.get());
    if (found == recurrent_.end()) return absl::nullopt;
    const Operand narrow = Item(found->second, item.index);
    INLAY_ASSIGN_OR_RETURN(const Operand wide, Call("cast", {narrow}, {{"dtype", DType::kF32}}));
    narrow_.emplace(wide.var.get(), narrow);
    rounded_.emplace(wide.var.get(), wide);
    return {wide};
  }

  // In bf16.
  absl::StatusOr<Operand> Narrow(const Operand& x) {
    if (auto known = narrow_.find(x.var.get()); known != narrow_.end()) return known->second;
    INLAY_ASSIGN_OR_RETURN(const Operand narrow, MakeNarrow(x));
    narrow_.emplace(x.var.get(), narrow);
    return narrow;
  }

  // Of what takes elements as they are, these are rounded; the greatest one is still the greatest, and means of
  // neighbours are still between them.
  absl::StatusOr<Operand> MakeNarrow(const Operand& x) {
    const Binding* def = Def(x);
    if (def == nullptr || !TakesElements(*def)) return Call("cast", {x}, {{"dtype", DType::kBF16}});
    std::vector<Operand> sources;
    for (const Operand& arg : def->args) {
      INLAY_ASSIGN_OR_RETURN(const Operand source, Narrow(arg));
      sources.push_back(source);
    }
    return Call(def->callee, std::move(sources), def->attrs);
  }

  static bool TakesElements(const Binding& call) {
    const char* takers[] = {"reshape", "transpose", "slice", "concat", "max_pool", "resize"};
    const bool pads_zeros = call.IsCall("pad") && call.attrs.FloatOr("value", 0) == 0;
    const bool takes = pads_zeros || std::any_of(std::begin(takers), std::end(takers),
                                                 [&](const char* taker) { return call.IsCall(taker); });
    return takes && std::all_of(call.args.begin(), call.args.end(), [](const Operand& arg) { return arg.is_var(); });
  }

  // What there is of it in memory where a product has had it rounded.
  absl::StatusOr<Operand> Rounded(const Operand& x) {
    if (!x.is_var()) return x;
    const auto narrow = narrow_.find(x.var.get());
    if (narrow == narrow_.end() || Def(x) == nullptr) return x;
    const auto known = rounded_.find(x.var.get());
    if (known != rounded_.end()) return known->second;
    const Operand narrowed = narrow->second;
    INLAY_ASSIGN_OR_RETURN(const Operand rounded, Call("cast", {narrowed}, {{"dtype", DType::kF32}}));
    for (const Operand& key : {x, rounded}) {
      narrow_.insert_or_assign(key.var.get(), narrowed);
      rounded_.insert_or_assign(key.var.get(), rounded);
    }
    AddOfConvolutions(*rounded.var);
    return rounded;
  }

  absl::flat_hash_map<const ir::Var*, Operand> narrow_, rounded_;
  absl::flat_hash_map<const ir::Var*, Operand> recurrent_;
  absl::flat_hash_map<const ir::Var*, size_t> of_convolutions_;  // in the order in which they are made
  absl::flat_hash_set<const ir::Var*> returned_;
};

class ToMixedPrecisionPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "to_mixed_precision"; }
  int min_opt_level() const override { return 0; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function,
                                             const target::CompilationConfig& config) const override {
    if (config.mixed_precision.empty()) return function;
    return Narrower(function).Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> ToMixedPrecision() { return std::make_unique<ToMixedPrecisionPass>(); }

}  // namespace inlay::passes
