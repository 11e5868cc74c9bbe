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
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"
#include "core/ir/work.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;
using ir::Operand;
using ir::VarPtr;

// A value much larger than what it can be made from is cheaper to make again than to keep: its elementwise users make
// it on the way. A contraction does not, and wants its weights packed; nor can anyone make on the way what takes a pass
// of its own.
constexpr int64_t kAlwaysWorthKeeping = 1 << 20;
constexpr int64_t kMaxGrowth = 4;
constexpr int64_t kMostBeyond = int64_t{1} << 30;  // in all, of what is kept although it grows more

// Only what main uses is kept: how large the values between a weight and that are does not matter.
class Lifter {
 public:
  explicit Lifter(ir::Function* main) : main_(main) {}

  // Moves the bindings; main gets a parameter for each value that what stays behind uses.
  ir::Function Run() {
    std::vector<Binding> bindings = std::move(main_->body.bindings);
    main_->body.bindings.clear();
    for (const Binding& binding : bindings) {
      if (ir::CountBytes(binding.var->type) == 0) continue;  // nothing is known of its size
      if (std::optional<Source> source = SourceOf(binding)) sources_[binding.var.get()] = *source;
    }
    for (const Operand& result : main_->body.results) used_in_main_.insert(result.var.get());
    // Users first: a value is where a user of it is.
    for (auto binding = bindings.rbegin(); binding != bindings.rend(); ++binding) Place(*binding);
    for (Binding& binding : bindings) {
      const ir::Var* var = binding.var.get();
      const bool stays = staying_.contains(var);
      if (used_in_transform_.contains(var))
        transform_.body.bindings.push_back(stays ? Copy(binding) : Renamed(binding));
      if (stays) main_->body.bindings.push_back(std::move(binding));
    }
    Export(&main_->body);
    return std::move(transform_);
  }

  int num_lifted() const { return static_cast<int>(params_.size()); }

 private:
  // From how few bytes a value of weights alone can be made, and how large what needs passes on the way is.
  struct Source {
    int64_t bytes = 0, in_passes = 0;
  };

  // Unless it only moves or computes single elements. Gathering them is no faster than a pass over them.
  static bool NeedsPass(const Binding& binding) {
    return binding.kind == Binding::Kind::kCall &&
           (ir::PatternOf(binding) >= ir::OpPattern::kReduction || absl::StartsWith(binding.callee, "gather"));
  }

  std::optional<Source> SourceOf(const Binding& binding) const {
    if (binding.kind != Binding::Kind::kCall && binding.kind != Binding::Kind::kTupleGetItem) return std::nullopt;
    Source source;
    for (const Operand& arg : binding.args) {
      const int64_t bytes = ir::CountBytes(arg.type());
      if (arg.constant != nullptr) {
        source.bytes += bytes;
      } else if (auto made = sources_.find(arg.var.get()); made != sources_.end()) {
        source.bytes += std::min(bytes, made->second.bytes);
        source.in_passes += std::min(bytes, made->second.in_passes);
      } else {
        return std::nullopt;
      }
    }
    if (NeedsPass(binding)) source.in_passes = ir::CountBytes(binding.var->type);
    return source;
  }

  // A tuple can't be a parameter: who uses one has it made where it is used.
  bool Keep(const ir::Var* var, const Source& source) {
    if (!var->type.is_tensor()) return false;
    const int64_t bytes = ir::CountBytes(var->type);
    if (bytes <= kAlwaysWorthKeeping || bytes / kMaxGrowth <= source.bytes) return true;
    const bool worth = contracted_in_main_.contains(var) || bytes / kMaxGrowth <= source.in_passes;
    if (!worth || bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  void Place(const Binding& binding) {
    const ir::Var* var = binding.var.get();
    if (auto source = sources_.find(var); source == sources_.end()) {
      staying_.insert(var);
    } else if (used_in_main_.contains(var)) {
      (Keep(var, source->second) ? used_in_transform_ : staying_).insert(var);
    }
    if (staying_.contains(var)) {
      Use(binding, &used_in_main_);
      if (ir::IsContraction(binding)) Use(binding, &contracted_in_main_);
    }
    if (used_in_transform_.contains(var)) Use(binding, &used_in_transform_);
  }

  static void Use(const Binding& binding, absl::flat_hash_set<const ir::Var*>* users) {
    for (const Operand& arg : binding.args) users->insert(arg.var.get());
    for (const Block& nested : binding.blocks) {
      for (const Binding& inner : nested.bindings) Use(inner, users);
      for (const Operand& result : nested.results) users->insert(result.var.get());
    }
  }

  // Of a value that both functions make for themselves: transform_params' own.
  Binding Copy(const Binding& binding) {
    Binding copy = Renamed(binding);
    copy.var = copies_[binding.var.get()] = ir::MakeVar(binding.var->name, binding.var->type);
    return copy;
  }
  Binding Renamed(Binding binding) const {
    for (Operand& arg : binding.args) {
      if (auto copy = copies_.find(arg.var.get()); copy != copies_.end()) arg = copy->second;
    }
    return binding;
  }

  void Export(Block* block) {
    for (Binding& binding : block->bindings) {
      for (Operand& arg : binding.args) Export(&arg);
      for (Block& nested : binding.blocks) Export(&nested);
    }
    for (Operand& result : block->results) Export(&result);
  }

  void Export(Operand* operand) {
    if (!operand->is_var() || !used_in_transform_.contains(operand->var.get()) ||
        staying_.contains(operand->var.get())) {
      return;
    }
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
  absl::flat_hash_map<const ir::Var*, Source> sources_;  // of what is made of weights alone
  absl::flat_hash_set<const ir::Var*> used_in_main_, used_in_transform_, staying_, contracted_in_main_;
  int64_t left_ = kMostBeyond;
  absl::flat_hash_map<const ir::Var*, VarPtr> copies_, params_;
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
