// Moves what depends on weights alone into the function "transform_params", which runs once, at link or load.
//
//   fn @main(%x: f32[1, 8]) {
//     %0 = mul(@w0, @w1)
//     %1 = matmul(%x, %0)
//     return %1
//   }
// becomes
//   fn @main(%x: f32[1, 8], %lifted0: f32[8, 4]) {num_lifted_params=1} {
//     %0 = matmul(%x, %lifted0)
//     return %0
//   }
//   fn @transform_params() {
//     %0 = mul(@w0, @w1)
//     return %0
//   }
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;
using ir::Operand;
using ir::VarPtr;

// A value much larger than all it is made from is cheaper to make again than to keep.
constexpr int64_t kAlwaysWorthKeeping = 1 << 20;
constexpr int64_t kMaxGrowth = 4;

int64_t Bytes(const ir::Type& type) {
  if (type.is_tensor()) return type.tensor().is_static() ? type.tensor().NumBytes() : 0;
  int64_t bytes = 0;
  for (const ir::Type& field : type.tuple().fields) bytes += Bytes(field);
  return bytes;
}

class Lifter {
 public:
  explicit Lifter(ir::Function* main) : main_(main) {
    for (const Binding& binding : main_->body.bindings) {
      if (binding.kind != Binding::Kind::kTupleGetItem) PinTuples(binding);
    }
    for (const Operand& result : main_->body.results) PinTuple(result);
  }

  // Moves the bindings; main gets a parameter for each value that what stays behind uses.
  ir::Function Run() {
    std::vector<Binding> staying;
    for (Binding& binding : main_->body.bindings) {
      if (Liftable(binding)) {
        lifted_.insert(binding.var.get());
        transform_.body.bindings.push_back(std::move(binding));
      } else {
        staying.push_back(std::move(binding));
      }
    }
    main_->body.bindings = std::move(staying);
    Export(&main_->body);
    return std::move(transform_);
  }

  int num_lifted() const { return static_cast<int>(params_.size()); }

 private:
  // A tuple can't be a parameter. One that is used otherwise than by taking an item stays where it is.
  void PinTuple(const Operand& operand) {
    if (operand.is_var() && operand.var->type.is_tuple()) pinned_.insert(operand.var.get());
  }
  void PinTuples(const Binding& binding) {
    for (const Operand& arg : binding.args) PinTuple(arg);
    for (const Block& nested : binding.blocks) {
      for (const Binding& inner : nested.bindings) PinTuples(inner);
      for (const Operand& result : nested.results) PinTuple(result);
    }
  }

  bool IsConstant(const Operand& operand) const {
    return operand.constant != nullptr || lifted_.contains(operand.var.get());
  }

  bool Liftable(const Binding& binding) const {
    if (binding.kind == Binding::Kind::kTupleGetItem) return IsConstant(binding.args[0]);
    if (binding.kind != Binding::Kind::kCall || pinned_.contains(binding.var.get())) return false;
    int64_t inputs = 0;
    for (const Operand& arg : binding.args) {
      if (!IsConstant(arg)) return false;
      inputs += Bytes(arg.type());
    }
    const int64_t bytes = Bytes(binding.var->type);
    return bytes > 0 && (bytes <= kAlwaysWorthKeeping || bytes / kMaxGrowth <= inputs);
  }

  void Export(Block* block) {
    for (Binding& binding : block->bindings) {
      for (Operand& arg : binding.args) Export(&arg);
      for (Block& nested : binding.blocks) Export(&nested);
    }
    for (Operand& result : block->results) Export(&result);
  }

  void Export(Operand* operand) {
    if (!operand->is_var() || !lifted_.contains(operand->var.get())) return;
    VarPtr& param = params_[operand->var.get()];
    if (param == nullptr) {
      transform_.body.results.push_back(*operand);
      param = ir::MakeVar(absl::StrCat("lifted", params_.size() - 1), operand->var->type);
      main_->params.push_back(param);
    }
    *operand = param;
  }

  ir::Function* main_;
  ir::Function transform_;
  absl::flat_hash_set<const ir::Var*> lifted_, pinned_;
  absl::flat_hash_map<const ir::Var*, VarPtr> params_;
};

class LiftTransformParamsPass : public Pass {
 public:
  absl::string_view name() const override { return "lift_transform_params"; }
  int min_opt_level() const override { return 0; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig&) const override {
    ir::Function& main = module.functions.at("main");
    const int64_t before = main.attrs.IntOr("num_lifted_params", 0);
    if (before > 0) return absl::FailedPreconditionError("the parameters of this module were lifted already");
    Lifter lifter(&main);
    ir::Function transform = lifter.Run();
    main.attrs.Set("num_lifted_params", int64_t{lifter.num_lifted()});
    if (lifter.num_lifted() > 0) module.functions["transform_params"] = std::move(transform);
    return module;
  }
};

}  // namespace

std::unique_ptr<Pass> LiftTransformParams() { return std::make_unique<LiftTransformParamsPass>(); }

}  // namespace inlay::passes
