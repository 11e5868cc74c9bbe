#include "core/backends/native/channels_last.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"

namespace inlay::native {
namespace {

using ir::Binding;
using ir::Operand;
using ir::VarPtr;

using Dims = std::vector<int64_t>;

constexpr int64_t kMinFilters = 8;     // fewer channels leave most of a vector empty
constexpr int64_t kMaxSummed = 12288;  // bytes of a row of products, of which a task has a block
constexpr int64_t kMaxTaps = 49;       // of a depthwise kernel; code for each is emitted several times
constexpr int64_t kWordChannels = 4;

bool IsImage(const ir::Type& type) {
  return type.is_tensor() && type.tensor().is_static() && type.tensor().rank() >= 3 && type.tensor().rank() <= 5;
}

bool IsTranspose(const Binding& call, Dims (*perm)(int)) {
  return call.IsCall("transpose") && call.args[0].is_var() && IsImage(call.var->type) &&
         call.attrs.Ints("perm") == perm(call.var->type.tensor().rank());
}

bool IsElementwise(const Binding& call) {
  if (call.IsCall("batch_norm") || call.IsCall("expand")) return false;  // they know which axis is which
  return ir::PatternOf(call) <= ir::OpPattern::kBroadcast && IsImage(call.var->type);
}

bool IsOfShape(const Operand& operand, const ir::Type& type) {
  return operand.is_var() && operand.type().is_tensor() && operand.tensor_type().dims == type.tensor().dims;
}

// What a reshape makes of an operand that is broadcast to `rank` axes and has one value a channel or image at most, for
// images with their channels last; empty: it has more.
Dims BroadcastToLast(const Operand& operand, int rank) {
  if (!operand.type().is_tensor() || !operand.tensor_type().is_static()) return {};
  Dims dims = operand.tensor_type().Shape();
  dims.insert(dims.begin(), rank - dims.size(), 1);
  if (std::any_of(dims.begin() + 2, dims.end(), [](int64_t dim) { return dim != 1; })) return {};
  std::swap(dims[1], dims.back());
  return dims;
}

bool FitsChannelsLast(const Binding& call) {
  return std::all_of(call.args.begin(), call.args.end(), [&](const Operand& arg) {
    return IsOfShape(arg, call.var->type) || !BroadcastToLast(arg, call.var->type.tensor().rank()).empty();
  });
}

// Of which convolutions there are that have their channels last.
bool IsOfWords(ir::DType dtype, const CpuFeatures& cpu) {
  return dtype == ir::DType::kBF16 ? cpu.brain_dots : ir::ByteSize(dtype) == 1;
}

// Between such convolutions.
bool IsPoolOfWords(const Binding& call, const CpuFeatures& cpu) {
  return call.IsCall("max_pool") && call.args[0].is_var() && IsImage(call.args[0].type()) &&
         IsOfWords(call.args[0].tensor_type().dtype, cpu);
}

// The same where attributes say what becomes of each axis, if there are vectors of channels.
bool IsByAxesOfWords(const Binding& call, const CpuFeatures& cpu) {
  const bool by_axes = call.IsCall("concat") || call.IsCall("resize") || call.IsCall("pad") ||
                       (call.IsCall("slice") && !call.attrs.Has("dims"));
  return by_axes && IsImage(call.var->type) && IsOfWords(call.var->type.tensor().dtype, cpu) &&
         call.var->type.tensor().Shape()[1] >= kMinFilters &&
         std::all_of(call.args.begin(), call.args.end(),
                     [](const Operand& arg) { return arg.is_var() && IsImage(arg.type()); });
}

// `values` of the axes of an image, or of as many images, for images with their channels last.
template <typename T>
std::vector<T> WithChannelsLast(std::vector<T> values, int rank) {
  for (auto axes = values.begin(); axes != values.end(); axes += rank) std::rotate(axes + 1, axes + 2, axes + rank);
  return values;
}

// A reduction of all axes of an image but the first two.
bool ReducesPixels(const Binding& call) {
  if (!absl::StartsWith(call.callee, "reduce_") || !call.args[0].is_var() || !IsImage(call.args[0].type()))
    return false;
  Dims pixels(call.args[0].tensor_type().rank() - 2);
  std::iota(pixels.begin(), pixels.end(), 2);
  return call.kind == Binding::Kind::kCall && call.attrs.IntsOr("axes", {}) == pixels;
}

bool IsConstantParam(const ir::Function& function, const Operand& operand) {
  const Dims constants = function.attrs.IntsOr(backend::kConstantParams, {});
  return std::any_of(constants.begin(), constants.end(), [&](int64_t i) { return operand.var == function.params[i]; });
}

bool IsChannelsLastConv(const Binding& call, const ir::Function& function, const CpuFeatures& cpu) {
  return HasChannelsLastKernel(call, cpu) && IsConstantParam(function, call.args[1]);
}

// Images that elementwise calls make of each other are one class. It prefers its channels last where a transpose or a
// kernel for such images is on it, and nothing else.
class Classes {
 public:
  Classes(const ir::Function& function, const CpuFeatures& cpu) : function_(function), cpu_(cpu) {
    for (const Binding& binding : function.body.bindings) Visit(binding);
  }

  bool PrefersLast(const VarPtr& var) {
    const Class& c = Of(var);
    return IsImage(var->type) && c.last && !c.row_major;
  }
  // One of its class crosses a border row-major all the same, as an image that is given or as one that is returned.
  void GiveRowMajor(const VarPtr& var) { Of(var).given = true; }
  void ReturnRowMajor(const VarPtr& var) { Of(var).returned = true; }
  // Whether it is made with the channels last by kernels that are not, and by what is elementwise beside them.
  bool CanBeLast(const VarPtr& var) { return PrefersLast(var) && !Of(var).given; }
  bool IsReturnedRowMajor(const VarPtr& var) { return Of(var).returned; }

 private:
  struct Class {
    bool last = false, row_major = false, given = false, returned = false;
  };

  const ir::Var* Find(const ir::Var* var) {
    auto found = parent_.find(var);
    return found == parent_.end() ? var : Find(found->second);
  }
  void Join(const ir::Var* a, const ir::Var* b) {
    a = Find(a), b = Find(b);
    if (a == b) return;
    parent_[a] = b;
    classes_[b].last |= classes_[a].last;
    classes_[b].row_major |= classes_[a].row_major;
  }
  Class& Of(const VarPtr& var) { return classes_[Find(var.get())]; }

  void Visit(const Binding& binding) {
    const bool to_last = IsTranspose(binding, ToLast), to_first = IsTranspose(binding, ToFirst);
    if (to_last) Of(binding.args[0].var).last = true;
    if (to_first) Of(binding.var).last = true;
    if (to_last || to_first) {
      // Where both are images of a class: the other side's is row-major as it stands.
      if (to_last) Of(binding.var).row_major = true;
      if (to_first) Of(binding.args[0].var).row_major = true;
      return;
    }
    if (IsChannelsLastConv(binding, function_, cpu_)) {
      const bool words = HasWordsOfChannels(binding);
      Class& image = Of(binding.args[0].var);
      (words ? image.last : image.row_major) = true;
      Of(binding.var).last = true;
      return;
    }
    if (IsPoolOfWords(binding, cpu_) || IsByAxesOfWords(binding, cpu_)) {
      for (const Operand& arg : binding.args) Of(arg.var).last = true;
      Of(binding.var).last = true;
      return;
    }
    if (ReducesPixels(binding)) {
      Of(binding.args[0].var).last = true;
      Of(binding.var).row_major = true;
      return;
    }
    const bool elementwise = IsElementwise(binding) && FitsChannelsLast(binding);
    for (const Operand& arg : binding.args) {
      if (!arg.is_var()) continue;
      if (elementwise && IsOfShape(arg, binding.var->type)) {
        Join(arg.var.get(), binding.var.get());
      } else {
        Of(arg.var).row_major = true;
      }
    }
    if (!elementwise) Of(binding.var).row_major = true;
  }

  const ir::Function& function_;
  const CpuFeatures& cpu_;
  std::unordered_map<const ir::Var*, const ir::Var*> parent_;
  std::unordered_map<const ir::Var*, Class> classes_;  // of roots
};

class Rewriter {
 public:
  Rewriter(const ir::Function& from, const CpuFeatures& cpu)
      : from_(from), cpu_(cpu), classes_(from, cpu), builder_(&to_) {
    to_.attrs = from.attrs;
  }

  absl::StatusOr<ir::Function> Run() {
    INLAY_ASSIGN_OR_RETURN(const std::vector<bool> params, Named(backend::kChannelsLastParams, from_.params.size()));
    INLAY_ASSIGN_OR_RETURN(const std::vector<bool> results,
                           Named(backend::kChannelsLastResults, from_.body.results.size()));
    for (size_t i = 0; i < from_.params.size(); ++i) {
      const VarPtr& param = from_.params[i];
      if (!params[i]) {
        to_.params.push_back(param);
      } else if (!IsImage(param->type)) {
        return NoImage(backend::kChannelsLastParams, i);
      } else {
        last_[param.get()] = builder_.Param(param->name, LastType(param->type.tensor()));
        no_row_major_.insert(param.get());
      }
    }
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i]) classes_.GiveRowMajor(from_.params[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Operand& result = from_.body.results[i];
      if (!results[i] && result.is_var()) classes_.ReturnRowMajor(result.var);
    }
    for (const Binding& binding : from_.body.bindings) INLAY_RETURN_IF_ERROR(Rewrite(binding));
    std::vector<Operand> returned;
    for (size_t i = 0; i < from_.body.results.size(); ++i) {
      const Operand& result = from_.body.results[i];
      if (results[i] && (!result.is_var() || !IsImage(result.type()))) return NoImage(backend::kChannelsLastResults, i);
      INLAY_ASSIGN_OR_RETURN(Operand made, results[i] ? Last(result) : RowMajor(result));
      if (std::count(to_.params.begin(), to_.params.end(), made.var) > 0) {  // all that was done is undone: a copy
        INLAY_ASSIGN_OR_RETURN(made, builder_.Call("reshape", {made}, {{"shape", made.tensor_type().Shape()}}));
      }
      returned.push_back(std::move(made));
    }
    builder_.Return(std::move(returned));
    to_.attrs.Erase(backend::kChannelsLastParams);
    to_.attrs.Erase(backend::kChannelsLastResults);
    return std::move(to_);
  }

 private:
  absl::Status NoImage(const char* attr, size_t i) const {
    return absl::InvalidArgumentError(absl::StrCat("the attribute '", attr, "' names ", i, ", which is no image"));
  }

  absl::StatusOr<std::vector<bool>> Named(const char* attr, size_t count) const {
    std::vector<bool> named(count);
    for (int64_t i : from_.attrs.IntsOr(attr, {})) {
      if (i < 0 || i >= static_cast<int64_t>(count)) return NoImage(attr, i);
      named[i] = true;
    }
    return named;
  }

  static ir::TensorType LastType(ir::TensorType type) {
    std::rotate(type.dims.begin() + 1, type.dims.begin() + 2, type.dims.end());
    return type;
  }

  // Row-major, as the function has it.
  absl::StatusOr<Operand> RowMajor(const Operand& operand) {
    if (!operand.is_var()) return operand;
    if (auto found = row_major_.find(operand.var.get()); found != row_major_.end()) return Operand(found->second);
    if (no_row_major_.count(operand.var.get()) == 0) return operand;
    const VarPtr& last = last_.at(operand.var.get());
    INLAY_ASSIGN_OR_RETURN(VarPtr made,
                           builder_.Call("transpose", {last}, {{"perm", ToFirst(last->type.tensor().rank())}}));
    row_major_[operand.var.get()] = made;
    return Operand(made);
  }

  absl::StatusOr<Operand> Last(const Operand& operand) {
    if (auto found = last_.find(operand.var.get()); found != last_.end()) return Operand(found->second);
    INLAY_ASSIGN_OR_RETURN(const Operand from, RowMajor(operand));
    INLAY_ASSIGN_OR_RETURN(VarPtr made,
                           builder_.Call("transpose", {from}, {{"perm", ToLast(operand.tensor_type().rank())}}));
    last_[operand.var.get()] = made;
    return Operand(made);
  }

  bool HasLast(const Operand& operand) const { return operand.is_var() && last_.count(operand.var.get()) > 0; }

  absl::Status Rewrite(const Binding& binding) {
    if (IsTranspose(binding, ToLast) && HasLast(binding.args[0])) {
      row_major_[binding.var.get()] = last_.at(binding.args[0].var.get());
      return absl::OkStatus();
    }
    if (IsTranspose(binding, ToFirst)) {
      INLAY_ASSIGN_OR_RETURN(const Operand from, RowMajor(binding.args[0]));
      last_[binding.var.get()] = from.var;
      no_row_major_.insert(binding.var.get());  // until somebody wants it
      return absl::OkStatus();
    }
    if (IsOnImagesThatHaveLast(binding)) return Elementwise(binding);
    if (ReducesPixels(binding) && HasLast(binding.args[0])) return Reduction(binding);
    if (IsByAxesOfWords(binding, cpu_) && ComputesLast(binding)) return ByAxes(binding);
    Binding copy = binding;
    const bool last = ComputesLast(binding),
               of_last = last && (IsPoolOfWords(binding, cpu_) || HasWordsOfChannels(binding));
    for (size_t i = 0; i < copy.args.size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(copy.args[i], of_last && i == 0 ? Last(binding.args[0]) : RowMajor(binding.args[i]));
    }
    // One kernel with the transposes around it (composites.h).
    if (of_last) {
      const Dims perm = ToFirst(copy.args[0].tensor_type().rank());
      INLAY_ASSIGN_OR_RETURN(copy.args[0], builder_.Call("transpose", {copy.args[0]}, {{"perm", perm}}));
    }
    to_.body.bindings.push_back(std::move(copy));
    return last ? Last(Operand(binding.var)).status() : absl::OkStatus();
  }

  // Whether a kernel works on images with their channels last: where those that it is given are so, or is what it makes
  // of them. The others are transposed.
  bool ComputesLast(const Binding& binding) {
    const bool conv = IsChannelsLastConv(binding, from_, cpu_);
    if (!conv && !IsPoolOfWords(binding, cpu_) && !IsByAxesOfWords(binding, cpu_)) return false;
    if (!classes_.CanBeLast(binding.var)) return false;
    const bool given = std::all_of(binding.args.begin(), conv ? binding.args.begin() + 1 : binding.args.end(),
                                   [&](const Operand& arg) { return HasLast(arg); });
    return given || !classes_.IsReturnedRowMajor(binding.var);
  }

  absl::Status ByAxes(const Binding& binding) {
    std::vector<Operand> args;
    for (const Operand& arg : binding.args) {
      INLAY_ASSIGN_OR_RETURN(const Operand image, Last(arg));
      args.push_back(image);
    }
    ir::Attrs attrs = binding.attrs;
    const int rank = binding.var->type.tensor().rank();
    if (attrs.Has("axis")) {
      const int64_t axis = attrs.Int("axis");
      attrs.Set("axis", ToFirst(rank)[axis < 0 ? axis + rank : axis]);
    }
    for (const char* name : {"begins", "ends", "steps", "sizes", "pads"}) {
      if (attrs.Has(name)) attrs.Set(name, WithChannelsLast(attrs.Ints(name), rank));
    }
    if (attrs.Has("scales")) attrs.Set("scales", WithChannelsLast(attrs.Floats("scales"), rank));
    INLAY_ASSIGN_OR_RETURN(VarPtr made, builder_.Call(binding.callee, std::move(args), attrs, binding.location));
    last_[binding.var.get()] = std::move(made);
    no_row_major_.insert(binding.var.get());
    return absl::OkStatus();
  }

  absl::Status Reduction(const Binding& binding) {
    ir::Attrs attrs = binding.attrs;
    Dims axes = attrs.Ints("axes");
    for (int64_t& axis : axes) --axis;
    attrs.Set("axes", axes);
    const VarPtr& image = last_.at(binding.args[0].var.get());
    INLAY_ASSIGN_OR_RETURN(VarPtr made, builder_.Call(binding.callee, {image}, attrs, binding.location));
    if (made->type != binding.var->type) {
      const Dims shape = binding.var->type.tensor().Shape();
      INLAY_ASSIGN_OR_RETURN(made, builder_.Call("reshape", {made}, {{"shape", shape}}));
    }
    row_major_[binding.var.get()] = std::move(made);
    return absl::OkStatus();
  }

  bool IsOnImagesThatHaveLast(const Binding& binding) const {
    if (!IsElementwise(binding) || !FitsChannelsLast(binding)) return false;
    bool any = false;
    for (const Operand& arg : binding.args) {
      if (!IsOfShape(arg, binding.var->type)) continue;
      if (!HasLast(arg)) return false;
      any = true;
    }
    return any;
  }

  absl::Status Elementwise(const Binding& binding) {
    std::vector<Operand> args;
    for (const Operand& arg : binding.args) {
      if (IsOfShape(arg, binding.var->type)) {
        args.push_back(last_.at(arg.var.get()));
        continue;
      }
      INLAY_ASSIGN_OR_RETURN(Operand from, RowMajor(arg));
      const Dims dims = BroadcastToLast(arg, binding.var->type.tensor().rank());
      if (arg.tensor_type().NumElements() > 1) {
        INLAY_ASSIGN_OR_RETURN(from, builder_.Call("reshape", {from}, {{"shape", dims}}));
      }
      args.push_back(std::move(from));
    }
    INLAY_ASSIGN_OR_RETURN(VarPtr made,
                           builder_.Call(binding.callee, std::move(args), binding.attrs, binding.location));
    last_[binding.var.get()] = std::move(made);
    no_row_major_.insert(binding.var.get());
    return absl::OkStatus();
  }

  const ir::Function& from_;
  const CpuFeatures& cpu_;
  Classes classes_;
  ir::Function to_;
  ir::Builder builder_;
  // What holds a Var of from_ now, and which of those are not there as they were.
  std::unordered_map<const ir::Var*, VarPtr> row_major_, last_;
  std::unordered_set<const ir::Var*> no_row_major_;
};

}  // namespace

std::vector<int64_t> ToLast(int rank) {
  Dims perm(rank);
  std::iota(perm.begin() + 1, perm.end() - 1, 2);
  perm.back() = 1;
  return perm;
}
std::vector<int64_t> ToFirst(int rank) {
  Dims perm(rank);
  perm[1] = rank - 1;
  std::iota(perm.begin() + 2, perm.end(), 1);
  return perm;
}

bool HasChannelsLastKernel(const Binding& call, const CpuFeatures& cpu) {
  if (!call.IsCall("conv_integer") && !call.IsCall("conv")) return false;
  if (!IsImage(call.args[0].type()) || !IsImage(call.var->type)) return false;
  const ir::DType dtype = call.args[0].tensor_type().dtype;
  if (!IsOfWords(dtype, cpu)) return false;
  const Dims x = call.args[0].tensor_type().Shape(), w = call.args[1].tensor_type().Shape();
  const int64_t sums = std::accumulate(w.begin() + 1, w.end(), int64_t{1}, std::multiplies<>());
  if (call.var->type.tensor().NumElements() == 0 || sums == 0 || w[0] < kMinFilters) return false;
  const int64_t groups = call.attrs.IntOr("groups", 1);
  if (groups == 1) return sums * ir::ByteSize(dtype) <= kMaxSummed;
  const Dims dilations = call.attrs.IntsOr("dilations", {});
  return x.size() == 4 && groups == x[1] && groups == w[0] && sums <= kMaxTaps &&
         std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; });
}

bool HasWordsOfChannels(const Binding& conv) { return conv.args[0].tensor_type().Shape()[1] > kWordChannels; }

backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const CpuFeatures& cpu) {
  Classes classes(partition, cpu);
  const Dims constants = partition.attrs.IntsOr(backend::kConstantParams, {});
  backend::ChannelsLast preferred;
  for (int64_t i = 0; i < static_cast<int64_t>(partition.params.size()); ++i) {
    const bool constant = std::count(constants.begin(), constants.end(), i) > 0;
    if (!constant && classes.PrefersLast(partition.params[i])) preferred.params.push_back(i);
  }
  for (int64_t i = 0; i < static_cast<int64_t>(partition.body.results.size()); ++i) {
    const Operand& result = partition.body.results[i];
    if (result.is_var() && classes.PrefersLast(result.var)) preferred.results.push_back(i);
  }
  return preferred;
}

absl::StatusOr<ir::Function> WithRowMajorBorders(const ir::Function& partition, const CpuFeatures& cpu) {
  if (!partition.attrs.Has(backend::kChannelsLastParams) && !partition.attrs.Has(backend::kChannelsLastResults)) {
    return partition;
  }
  return Rewriter(partition, cpu).Run();
}

}  // namespace inlay::native
