#include "core/ir/batch.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/ir/op_registry.h"

namespace inlay::ir {
namespace {

// A call, and which of its arguments have the batch as their leading extent (at least one).
struct Site {
  const Binding& binding;
  const std::vector<bool>& batched;
  Dim from;
  int64_t to;

  const TensorType& arg(size_t i) const { return binding.args[i].tensor_type(); }
  const TensorType& out() const { return binding.var->type.tensor(); }
  bool only_first_batched() const { return batched[0] && std::count(batched.begin(), batched.end(), true) == 1; }
};

// Whether a call treats each row by itself; where an attribute names the batch's extent, it is changed in `attrs`.
using Rule = std::function<bool(const Site&, Attrs* attrs)>;

// What broadcasting lays against the result's leading axis is the batch, or one for all.
bool LiesAlongTheBatch(const Site& site, size_t i, int result_rank) {
  const TensorType& type = site.arg(i);
  return site.batched[i] ? type.rank() == result_rank : type.rank() < result_rank || type.dims[0] == Dim(1);
}

bool Broadcasts(const Site& site, Attrs*) {
  for (size_t i = 0; i < site.binding.args.size(); ++i) {
    if (!LiesAlongTheBatch(site, i, site.out().rank())) return false;
  }
  return true;
}

bool OfTheFirstAlone(const Site& site, Attrs*) { return site.only_first_batched(); }

bool AlongAnotherAxis(const Site& site, Attrs* attrs) { return site.only_first_batched() && attrs->Int("axis") != 0; }

// Of a table, rows of indices give rows of the result.
bool Gathers(const Site& site, Attrs* attrs) {
  return AlongAnotherAxis(site, attrs) || (!site.batched[0] && attrs->Int("axis") == 0);
}

bool OverOtherAxes(const Site& site, Attrs* attrs) {
  const std::vector<int64_t>& axes = attrs->Ints("axes");
  return site.only_first_batched() && std::find(axes.begin(), axes.end(), 0) == axes.end();
}

bool Samples(const Site& site, Attrs*) { return site.batched[0] && site.batched[1]; }

bool Transposes(const Site&, Attrs* attrs) { return attrs->Ints("perm")[0] == 0; }

bool Concatenates(const Site& site, Attrs* attrs) {
  return attrs->Int("axis") != 0 && std::find(site.batched.begin(), site.batched.end(), false) == site.batched.end();
}

// What an attribute takes of an axis, where that has a name: "dims" beside its numbers.
std::string FirstName(const Attrs& attrs) { return attrs.Has("dims") ? attrs.Strings("dims")[0] : ""; }
void ClearFirstName(Attrs* attrs) {
  if (!attrs->Has("dims")) return;
  std::vector<std::string> names = attrs->Strings("dims");
  names[0].clear();
  attrs->Set("dims", std::move(names));
}

// An attribute whose first element is the batch's extent.
bool ReplaceFirst(const char* name, const Site& site, Attrs* attrs) {
  std::vector<int64_t> extents = attrs->Ints(name);
  if (extents.empty()) return false;
  const bool is_batch = site.from.is_static() ? site.from == Dim(extents[0]) : FirstName(*attrs) == site.from.symbol();
  // -1 without a name: what is left, of fewer rows as of all.
  const bool is_rest = extents[0] == -1 && FirstName(*attrs).empty();
  if (!is_batch && !is_rest) return false;
  if (is_batch) {
    extents[0] = site.to;
    attrs->Set(name, std::move(extents));
    ClearFirstName(attrs);
  }
  return true;
}

bool Reshapes(const Site& site, Attrs* attrs) { return ReplaceFirst("shape", site, attrs); }

bool Expands(const Site& site, Attrs* attrs) {
  return site.arg(0).rank() == site.out().rank() && ReplaceFirst("shape", site, attrs);
}

bool Resizes(const Site& site, Attrs* attrs) { return site.only_first_batched() && ReplaceFirst("sizes", site, attrs); }

// All rows: an end beyond the extent is another way to say so.
bool Slices(const Site& site, Attrs* attrs) {
  std::vector<int64_t> ends = attrs->Ints("ends");
  if (attrs->Ints("begins")[0] != 0 || attrs->Ints("steps")[0] != 1 || site.out().dims[0] != site.from) return false;
  ends[0] = site.to;
  attrs->Set("ends", std::move(ends));
  ClearFirstName(attrs);
  return true;
}

bool Pads(const Site& site, Attrs* attrs) {
  const std::vector<int64_t>& pads = attrs->Ints("pads");
  return pads[0] == 0 && pads[site.arg(0).rank()] == 0;
}

// Rows of a matrix are rows of the product; of more axes, the leading one is broadcast.
bool Multiplies(const Site& site, Attrs* attrs) {
  if (site.arg(0).rank() == 2 && site.arg(1).rank() == 2) {
    return site.only_first_batched() && !attrs->Bool("transpose_a");
  }
  for (size_t i = 0; i < 2; ++i) {
    if (site.batched[i] && site.arg(i).rank() < 3) return false;
    if (!LiesAlongTheBatch(site, i, site.out().rank())) return false;
  }
  return true;
}

const Rule* RuleOf(const std::string& op) {
  static const auto* rules = new std::map<std::string, Rule>{
      {"avg_pool", OfTheFirstAlone},
      {"batch_norm", OfTheFirstAlone},
      {"concat", Concatenates},
      {"conv", OfTheFirstAlone},
      {"conv_integer", OfTheFirstAlone},
      {"conv_transpose", OfTheFirstAlone},
      {"expand", Expands},
      {"gather", Gathers},
      {"grid_sample", Samples},
      {"layer_norm", AlongAnotherAxis},
      {"log_softmax", AlongAnotherAxis},
      {"matmul", Multiplies},
      {"matmul_integer", Multiplies},
      {"matmul_nbits", OfTheFirstAlone},
      {"max_pool", OfTheFirstAlone},
      {"pad", Pads},
      {"reduce_max", OverOtherAxes},
      {"reduce_mean", OverOtherAxes},
      {"reduce_min", OverOtherAxes},
      {"reduce_prod", OverOtherAxes},
      {"reduce_sum", OverOtherAxes},
      {"reshape", Reshapes},
      {"resize", Resizes},
      {"slice", Slices},
      {"softmax", AlongAnotherAxis},
      {"split", AlongAnotherAxis},
      {"transpose", Transposes},
  };
  static const auto* broadcasts = new Rule(Broadcasts);
  const auto found = rules->find(op);
  if (found != rules->end()) return &found->second;
  const OpSchema* schema = OpRegistry::Global().Find(op);
  const bool elementwise =
      schema != nullptr && (schema->pattern == OpPattern::kElementwise || schema->pattern == OpPattern::kBroadcast);
  return elementwise ? broadcasts : nullptr;
}

bool HasBatch(const TensorType& type, const Dim& batch) { return type.rank() > 0 && type.dims[0] == batch; }

TensorType Replaced(TensorType type, int64_t to) {
  type.dims[0] = Dim(to);
  return type;
}

// Whether `after` is `before` with the other batch, in each field of a tuple too.
bool IsRebatched(const Type& before, const Type& after, const Dim& from, int64_t to) {
  if (before.is_tensor()) {
    return after.is_tensor() && HasBatch(before.tensor(), from) && Replaced(before.tensor(), to) == after.tensor();
  }
  if (!after.is_tuple() || before.tuple().fields.size() != after.tuple().fields.size()) return false;
  for (size_t i = 0; i < before.tuple().fields.size(); ++i) {
    if (!IsRebatched(before.tuple().fields[i], after.tuple().fields[i], from, to)) return false;
  }
  return true;
}

class Rebatcher {
 public:
  Rebatcher(const Function& function, Dim from, int64_t to) : from_(std::move(from)), to_(to) {
    result_.function = function;
  }

  std::optional<Rebatched> Run(const std::vector<int64_t>& constant_params) {
    Function& function = result_.function;
    for (size_t i = 0; i < function.params.size(); ++i) {
      VarPtr& param = function.params[i];
      const bool constant =
          std::find(constant_params.begin(), constant_params.end(), static_cast<int64_t>(i)) != constant_params.end();
      const bool batched = !constant && param->type.is_tensor() && HasBatch(param->type.tensor(), from_);
      result_.batched_params.push_back(batched);
      if (batched) param = Rename(param, Replaced(param->type.tensor(), to_));
    }
    for (Binding& binding : function.body.bindings) {
      if (!Rewrite(&binding)) return std::nullopt;
    }
    for (Operand& result : function.body.results) {
      if (!IsBatched(result)) return std::nullopt;
      result = renamed_.at(result.var.get());
    }
    return std::move(result_);
  }

 private:
  VarPtr Rename(const VarPtr& var, Type type) { return renamed_[var.get()] = MakeVar(var->name, std::move(type)); }

  bool IsBatched(const Operand& operand) const { return operand.is_var() && renamed_.count(operand.var.get()) > 0; }

  // What no batched value reaches stays as it is.
  bool Rewrite(Binding* binding) {
    std::vector<bool> batched;
    for (const Operand& arg : binding->args) batched.push_back(IsBatched(arg));
    if (std::find(batched.begin(), batched.end(), true) == batched.end()) return true;
    Binding after = *binding;
    for (size_t i = 0; i < batched.size(); ++i) {
      if (batched[i]) after.args[i] = renamed_.at(binding->args[i].var.get());
    }
    Type type;
    if (binding->kind == Binding::Kind::kTupleGetItem) {
      type = after.args[0].type().tuple().fields[binding->index];
    } else {
      if (binding->kind != Binding::Kind::kCall) return false;
      const Rule* rule = RuleOf(binding->callee);
      if (rule == nullptr || !(*rule)({*binding, batched, from_, to_}, &after.attrs)) return false;
      absl::StatusOr<Type> inferred = OpRegistry::Global().Infer(after.callee, after.args, &after.attrs);
      if (!inferred.ok()) return false;
      type = *std::move(inferred);
    }
    if (!IsRebatched(binding->var->type, type, from_, to_)) return false;
    after.var = Rename(binding->var, std::move(type));
    *binding = std::move(after);
    return true;
  }

  const Dim from_;
  const int64_t to_;
  Rebatched result_;
  std::unordered_map<const Var*, VarPtr> renamed_;  // batched values -> what they are now
};

}  // namespace

Dim MicroBatchesOf(const Binding& call) {
  const auto found = call.attrs.values().find(kMicroBatches);
  if (found == call.attrs.values().end()) return 1;
  const auto* symbol = std::get_if<std::string>(&found->second);
  return symbol != nullptr ? Dim::Symbol(*symbol) : Dim(std::get<int64_t>(found->second));
}

std::optional<Rebatched> WithBatch(const Function& function, const std::vector<int64_t>& constant_params,
                                   const Dim& from, int64_t to) {
  return Rebatcher(function, from, to).Run(constant_params);
}

}  // namespace inlay::ir
