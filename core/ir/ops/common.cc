#include "core/ir/ops/common.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace inlay::ir::ops {
namespace {

constexpr size_t kMaxText = 1024;  // of an extent

absl::string_view Describe(DTypes set) {
  switch (set) {
    case DTypes::kF:
      return "a float (f32 f64 f16 bf16)";
    case DTypes::kI:
      return "an integer (i8 u8 i16 i32 i64)";
    case DTypes::kB:
      return "bool";
    case DTypes::kN:
      return "a number (float or integer)";
    case DTypes::kNB:
    case DTypes::kA:
      return "any dtype";
  }
  return "?";
}

}  // namespace

bool Contains(DTypes set, DType dtype) {
  switch (set) {
    case DTypes::kF:
      return IsFloat(dtype);
    case DTypes::kI:
      return IsInteger(dtype);
    case DTypes::kB:
      return dtype == DType::kBool;
    case DTypes::kN:
      return dtype != DType::kBool;
    case DTypes::kNB:
    case DTypes::kA:
      return true;
  }
  return false;
}

absl::Status CheckDType(const InferContext& ctx, int arg, DTypes set) {
  if (Contains(set, ctx.arg(arg).dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", arg, " is ", ctx.arg(arg).ToString(), "; it must be ", Describe(set)));
}

absl::Status CheckSameDType(const InferContext& ctx, int first, int last) {
  if (last < 0) last = static_cast<int>(ctx.args.size()) - 1;
  for (int i = first + 1; i <= last; ++i) {
    if (ctx.arg(i).dtype == ctx.arg(first).dtype) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "arguments ", first, " and ", i, " differ in dtype: ", ctx.arg(first).ToString(), ", ", ctx.arg(i).ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckRank(const InferContext& ctx, int arg, int rank) {
  if (ctx.arg(arg).rank() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", arg, " is ", ctx.arg(arg).ToString(), "; its rank must be ", rank));
}

absl::Status CheckDims(const InferContext& ctx, int arg, const std::vector<Dim>& dims, absl::string_view meaning) {
  if (ctx.arg(arg).dims == dims) return absl::OkStatus();
  TensorType wanted{ctx.arg(arg).dtype, dims};
  return absl::InvalidArgumentError(absl::StrCat("argument ", arg, " is ", ctx.arg(arg).ToString(), "; it must be ",
                                                 wanted.ToString(), " (", meaning, ")"));
}

absl::StatusOr<int64_t> StaticExtent(const TensorType& type, int axis, absl::string_view what) {
  const Dim& dim = type.dims[axis];
  if (dim.is_static()) return dim.value();
  return absl::InvalidArgumentError(absl::StrCat(what, " needs the number of elements along axis ", axis, " of ",
                                                 type.ToString(), ", but '", dim.symbol(),
                                                 "' is symbolic; fix its value"));
}

absl::StatusOr<std::vector<Dim>> Broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  const std::vector<Dim>& longer = a.size() >= b.size() ? a : b;
  const std::vector<Dim>& shorter = a.size() >= b.size() ? b : a;
  std::vector<Dim> result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& dim = result[offset + i];
    if (dim == shorter[i] || shorter[i] == Dim(1)) continue;
    if (dim == Dim(1)) {
      dim = shorter[i];
      continue;
    }
    auto show = [](const std::vector<Dim>& dims) {
      return absl::StrCat(
          "[", absl::StrJoin(dims, ", ", [](std::string* s, const Dim& d) { absl::StrAppend(s, d.ToString()); }), "]");
    };
    const bool symbolic = !dim.is_static() || !shorter[i].is_static();
    return absl::InvalidArgumentError(absl::StrCat(
        "the shapes ", show(a), " and ", show(b), " don't broadcast: ", dim.ToString(), " against ",
        shorter[i].ToString(), symbolic ? "; a symbolic extent equals only itself, so fix its value" : ""));
  }
  return result;
}

absl::StatusOr<std::vector<Dim>> ShapeAttr(const InferContext& ctx, int* rest, const std::string& attr) {
  std::vector<int64_t> shape = ctx.attrs.Ints(attr);
  std::vector<std::string> names = ctx.attrs.StringsOr("dims", std::vector<std::string>(shape.size()));
  if (names.size() != shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'dims' has ", names.size(), " elements and '", attr, "' ", shape.size()));
  }
  std::vector<Dim> dims;
  bool open = false;
  if (rest != nullptr) *rest = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!names[i].empty()) {
      if (shape[i] != -1 || names[i].size() > kMaxText) {
        return absl::InvalidArgumentError(absl::StrCat("attribute '", attr, "' holds ", shape[i], " where 'dims' has '",
                                                       names[i].substr(0, 64), "'; it must be -1 there"));
      }
      const Dim dim = CanonicalDim(names[i]);
      if (dim.is_static()) shape[i] = dim.value();
      names[i] = dim.is_static() ? "" : dim.symbol();
      open = open || !dim.is_static();
      if (!dim.is_static()) dims.push_back(dim);
    }
    if (names[i].empty() && shape[i] == -1 && rest != nullptr && *rest < 0) {
      *rest = static_cast<int>(i);
      dims.push_back(1);
    } else if (names[i].empty() && shape[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", attr, "' is [", absl::StrJoin(shape, ", "),
                                                     "]; its elements are extents",
                                                     rest != nullptr ? ", and one may be -1" : ""));
    } else if (names[i].empty()) {
      dims.push_back(shape[i]);
    }
  }
  ctx.attrs.Set(attr, std::move(shape));
  if (open) {
    ctx.attrs.Set("dims", std::move(names));
  } else {
    ctx.attrs.Erase("dims");
  }
  return dims;
}

absl::StatusOr<Dim> ExtentAttr(const InferContext& ctx, const std::string& attr) {
  Dim extent = ctx.attrs.Int(attr);
  if (ctx.attrs.Has("dims")) {
    const std::vector<std::string> names = ctx.attrs.Strings("dims");
    if (extent != Dim(-1) || names.size() != 1 || names[0].empty() || names[0].size() > kMaxText) {
      return absl::InvalidArgumentError(absl::StrCat("attribute 'dims' has ", names.size(), " elements and '", attr,
                                                     "' is ", extent.ToString(), "; it must be -1, and have a name"));
    }
    extent = CanonicalDim(names[0]);
    ctx.attrs.Erase("dims");
    if (!extent.is_static()) ctx.attrs.Set("dims", std::vector<std::string>{extent.symbol()});
  }
  if (!extent.is_static()) return extent;
  if (extent.value() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("attribute '", attr, "' is ", extent.value(), "; it is an extent"));
  }
  ctx.attrs.Set(attr, extent.value());
  return extent;
}

absl::StatusOr<int> CanonicalAxis(const InferContext& ctx, absl::string_view name, int rank) {
  int64_t axis = ctx.attrs.Int(name);
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' is ", axis, "; for rank ", rank,
                                                   " it must lie in [", -rank, ", ", rank, ")"));
  }
  if (axis < 0) ctx.attrs.Set(std::string(name), axis += rank);
  return static_cast<int>(axis);
}

absl::StatusOr<std::vector<int64_t>> CanonicalAxes(const InferContext& ctx, absl::string_view name, int rank) {
  std::vector<int64_t> axes = ctx.attrs.IntsOr(name, {});
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' holds ", axis, "; for rank ", rank,
                                                     " it must lie in [", -rank, ", ", rank, ")"));
    }
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' names an axis twice"));
  }
  ctx.attrs.Set(std::string(name), axes);
  return axes;
}

absl::StatusOr<std::vector<int64_t>> CompleteInts(const InferContext& ctx, const std::string& name, int n, int64_t fill,
                                                  int64_t min, int64_t max) {
  std::vector<int64_t> values = ctx.attrs.IntsOr(name, {});
  if (values.empty() && n > 0) {
    values.assign(n, fill);
    ctx.attrs.Set(name, values);
  }
  if (static_cast<int>(values.size()) != n) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute '", name, "' has ", values.size(), " elements; it must have ", n));
  }
  for (int64_t v : values) {
    if (v < min || v > max) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' holds ", v, "; it must be at least ", min,
                                                     max == INT64_MAX ? "" : absl::StrCat(" and at most ", max)));
    }
  }
  return values;
}

AttrSpec Required(std::string name, AttrKind kind) {
  AttrSpec spec;
  spec.name = std::move(name);
  spec.kind = kind;
  return spec;
}

AttrSpec RequiredChoice(std::string name, std::vector<std::string> choices) {
  AttrSpec spec = Required(std::move(name), AttrKind::kString);
  spec.choices = std::move(choices);
  return spec;
}

AttrSpec WithDefault(std::string name, AttrKind kind, AttrValue value) {
  AttrSpec spec = Required(std::move(name), kind);
  spec.required = false;
  spec.has_default = true;
  spec.default_value = std::move(value);
  return spec;
}

AttrSpec Choice(std::string name, std::string value, std::vector<std::string> choices) {
  AttrSpec spec = WithDefault(std::move(name), AttrKind::kString, std::move(value));
  spec.choices = std::move(choices);
  return spec;
}

AttrSpec MayBeAbsent(std::string name, AttrKind kind) {
  AttrSpec spec = Required(std::move(name), kind);
  spec.required = false;
  return spec;
}

OpSchema Schema(std::string name, int min_args, int max_args, std::vector<AttrSpec> attrs, OpPattern pattern,
                InferFn infer) {
  OpSchema schema;
  schema.name = std::move(name);
  schema.min_args = min_args;
  schema.max_args = max_args;
  schema.attrs = std::move(attrs);
  schema.pattern = pattern;
  schema.infer = std::move(infer);
  return schema;
}

}  // namespace inlay::ir::ops
