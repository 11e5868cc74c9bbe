#include "core/passes/rewriter.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"

namespace inlay::passes {

using ir::Binding;
using ir::Block;
using ir::Operand;

absl::StatusOr<ir::Function> Rewriter::Run(ir::Function function) {
  if (counts_uses_) CountUses(function.body);
  defs_.reserve(function.body.bindings.size());
  INLAY_RETURN_IF_ERROR(Walk(&function.body));
  return function;
}

absl::Status Rewriter::Walk(Block* block) {
  Edits edits;
  Edits* const outer = edits_;
  edits_ = &edits;
  edits.dropped.resize(block->bindings.size());
  for (size_t i = 0; i < block->bindings.size(); ++i) {
    Binding& binding = block->bindings[i];
    if (!replaced_.empty()) {
      for (Operand& arg : binding.args) {
        if (arg.is_var()) arg = Replaced(arg);
      }
    }
    for (Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(Walk(&nested));
    edits.at = i;
    visited_ = &binding;
    Replacement replacement = Visit(&binding);
    if (!replacement.ok()) return Annotate(replacement.status(), Describe(binding));
    if (!replacement->has_value()) {
      defs_[binding.var.get()] = &binding;
      continue;
    }
    const Operand& operand = **replacement;
    if (operand.type() != binding.var->type) {
      return absl::InternalError(absl::StrCat(Describe(binding), ": rewritten from ", binding.var->type.ToString(),
                                              " to ", operand.type().ToString()));
    }
    // The new value inherits the uses of the old one, so that HasOneUse goes on telling the truth.
    if (counts_uses_ && operand.is_var()) {
      int& uses = uses_[operand.var.get()];
      uses += NumUses(Operand(binding.var)) - (uses > 0 ? 1 : 0);
    }
    replaced_.emplace(binding.var.get(), operand);
    edits.dropped[i] = edits.any_dropped = true;
  }
  for (Operand& result : block->results) result = Replaced(result);
  // What an inner block defines is out of scope outside, and its bindings are about to move.
  if (outer != nullptr) {
    for (const Binding& binding : block->bindings) defs_.erase(binding.var.get());
    for (const Edits::New& added : edits.added) defs_.erase(added.binding.var.get());
  }
  Apply(&edits, &block->bindings);
  edits_ = outer;
  return absl::OkStatus();
}

void Rewriter::Apply(Edits* edits, std::vector<Binding>* bindings) {
  if (edits->added.empty() && !edits->any_dropped) return;
  std::vector<Binding> out;
  out.reserve(bindings->size() + edits->added.size());
  auto added = edits->added.begin();
  for (size_t i = 0; i < bindings->size(); ++i) {
    for (; added != edits->added.end() && added->before == i; ++added) out.push_back(std::move(added->binding));
    if (!edits->dropped[i]) out.push_back(std::move((*bindings)[i]));
  }
  *bindings = std::move(out);
}

Operand Rewriter::Replaced(const Operand& operand) const {
  if (!operand.is_var()) return operand;
  auto it = replaced_.find(operand.var.get());
  return it == replaced_.end() ? operand : it->second;
}

void Rewriter::CountUses(const Block& block) {
  for (const Binding& binding : block.bindings) {
    for (const Operand& arg : binding.args) {
      if (arg.is_var()) ++uses_[arg.var.get()];
    }
    for (const Block& nested : binding.blocks) CountUses(nested);
  }
  for (const Operand& result : block.results) {
    if (result.is_var()) ++uses_[result.var.get()];
  }
}

absl::StatusOr<Operand> Rewriter::Call(absl::string_view op, std::vector<Operand> args, ir::Attrs attrs) {
  absl::StatusOr<ir::Type> type = ir::OpRegistry::Global().Infer(op, args, &attrs);
  if (!type.ok()) return Annotate(type.status(), op);
  Binding binding;
  binding.var = ir::MakeVar(std::string(op), *std::move(type));
  binding.callee = std::string(op);
  binding.args = std::move(args);
  binding.attrs = std::move(attrs);
  return AppendBinding(std::move(binding));
}

absl::StatusOr<Operand> Rewriter::Reshape(const Operand& x, const std::vector<ir::Dim>& dims) {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  bool is_open = false;
  for (const ir::Dim& dim : dims) {
    shape.push_back(dim.is_static() ? dim.value() : -1);
    names.push_back(dim.symbol());
    is_open |= !dim.is_static();
  }
  ir::Attrs attrs({{"shape", shape}});
  if (is_open) attrs.Set("dims", names);
  return Call("reshape", {x}, std::move(attrs));
}

Operand Rewriter::Item(const Operand& tuple, int index) {
  Binding binding;
  binding.kind = Binding::Kind::kTupleGetItem;
  binding.var = ir::MakeVar("", tuple.type().tuple().fields[index]);
  binding.args = {tuple};
  binding.index = index;
  return AppendBinding(std::move(binding));
}

Operand Rewriter::AppendBinding(Binding binding) {
  binding.location = visited_->location;
  edits_->added.push_back({edits_->at, std::move(binding)});
  const Binding& added = edits_->added.back().binding;
  defs_[added.var.get()] = &added;
  return Operand(added.var);
}

bool Rewriter::IsPointwise(const Binding& binding) { return ir::PatternOf(binding) <= ir::OpPattern::kBroadcast; }

const Binding* Rewriter::Def(const Operand& operand) const {
  if (!operand.is_var()) return nullptr;
  auto it = defs_.find(operand.var.get());
  return it == defs_.end() ? nullptr : it->second;
}

const Binding* Rewriter::DefCall(const Operand& operand, absl::string_view op) const {
  const Binding* def = Def(operand);
  return def != nullptr && def->IsCall(op) ? def : nullptr;
}

const Binding* Rewriter::DefScaling(const Operand& operand) const {
  const Binding* def = Def(operand);
  const bool scales = def != nullptr && (def->IsCall("mul") || def->IsCall("div"));
  return scales && def->args[1].tensor_type().rank() == 0 ? def : nullptr;
}

int Rewriter::NumUses(const Operand& operand) const {
  auto it = uses_.find(operand.var.get());
  return it == uses_.end() ? 0 : it->second;
}

bool ConstantsRewriter::VisitConstant(const Binding& binding) {
  if (binding.kind != Binding::Kind::kCall || binding.args.empty() || !binding.var->type.is_tensor()) return false;
  for (const Operand& arg : binding.args) {
    if (!IsConstant(arg)) return false;
  }
  constants_.insert(binding.var.get());
  return true;
}

absl::StatusOr<Operand> ConstantsRewriter::CallConstant(absl::string_view op, std::vector<Operand> args,
                                                        ir::Attrs attrs) {
  INLAY_ASSIGN_OR_RETURN(Operand out, Call(op, std::move(args), std::move(attrs)));
  constants_.insert(out.var.get());
  return out;
}

Rewriter::Replacement ConstantsRewriter::PerChannel(const Operand& factor, const ir::TensorType& images,
                                                    const std::vector<int64_t>& shape) {
  const std::vector<ir::Dim>& dims = factor.tensor_type().dims;
  const int channel_axis = static_cast<int>(dims.size()) - (images.rank() - 1);
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i] != ir::Dim(1) && (i != channel_axis || dims[i] != images.dims[1])) return absl::nullopt;
  }
  const bool full = channel_axis >= 0 && dims[channel_axis] == images.dims[1];
  Operand value = factor;
  if (dims.size() != 1 || shape.size() != 1) {
    const std::vector<int64_t> one(shape.size(), 1);
    INLAY_ASSIGN_OR_RETURN(value, CallConstant("reshape", {value}, {{"shape", full ? shape : one}}));
  }
  if (!full) {
    INLAY_ASSIGN_OR_RETURN(value, CallConstant("expand", {value}, {{"shape", shape}}));
  }
  return {value};
}

}  // namespace inlay::passes
