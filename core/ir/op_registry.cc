#include "core/ir/op_registry.h"

#include <algorithm>

#include "absl/base/internal/raw_logging.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace inlay::ir {
namespace {

absl::string_view KindName(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return "int";
    case AttrKind::kFloat:
      return "float";
    case AttrKind::kNumber:
      return "int or float";
    case AttrKind::kString:
      return "string";
    case AttrKind::kBool:
      return "bool";
    case AttrKind::kDType:
      return "dtype";
    case AttrKind::kInts:
      return "ints";
    case AttrKind::kFloats:
      return "floats";
    case AttrKind::kStrings:
      return "strings";
  }
  return "?";
}

// Whether `value` is of that kind; an int is made a float where a float is wanted, so that one meaning has one form.
bool Coerce(AttrKind kind, AttrValue* value) {
  switch (kind) {
    case AttrKind::kInt:
      return std::holds_alternative<int64_t>(*value);
    case AttrKind::kFloat:
      if (auto* i = std::get_if<int64_t>(value)) *value = static_cast<double>(*i);
      return std::holds_alternative<double>(*value);
    case AttrKind::kNumber:
      return std::holds_alternative<int64_t>(*value) || std::holds_alternative<double>(*value);
    case AttrKind::kString:
      return std::holds_alternative<std::string>(*value);
    case AttrKind::kBool:
      return std::holds_alternative<bool>(*value);
    case AttrKind::kDType:
      return std::holds_alternative<DType>(*value);
    case AttrKind::kInts:
      return std::holds_alternative<std::vector<int64_t>>(*value);
    case AttrKind::kFloats:
      if (auto* ints = std::get_if<std::vector<int64_t>>(value)) {
        *value = std::vector<double>(ints->begin(), ints->end());
      }
      return std::holds_alternative<std::vector<double>>(*value);
    case AttrKind::kStrings:
      return std::holds_alternative<std::vector<std::string>>(*value);
  }
  return false;
}

absl::Status CheckAttrs(const OpSchema& schema, Attrs* attrs) {
  size_t known = 0;
  for (const AttrSpec& spec : schema.attrs) {
    auto it = attrs->values().find(spec.name);
    if (it == attrs->values().end()) {
      if (spec.required) {
        return absl::InvalidArgumentError(
            absl::StrCat("attribute '", spec.name, "' (", KindName(spec.kind), ") is missing"));
      }
      if (!spec.has_default) continue;
      attrs->Set(spec.name, spec.default_value);
      ++known;
      continue;
    }
    ++known;
    AttrValue value = it->second;
    if (!Coerce(spec.kind, &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute '", spec.name, "' must be ", KindName(spec.kind), ", not ", ToString(value)));
    }
    if (value != it->second) attrs->Set(spec.name, value);
    if (!spec.choices.empty()) {
      const std::string& choice = std::get<std::string>(value);
      if (std::find(spec.choices.begin(), spec.choices.end(), choice) == spec.choices.end()) {
        return absl::InvalidArgumentError(absl::StrCat("attribute '", spec.name, "' is \"", choice, "\"; it must be ",
                                                       absl::StrJoin(spec.choices, ", "), " (one of these)"));
      }
    }
  }
  if (known == attrs->values().size()) return absl::OkStatus();
  auto name_of = [](std::string* s, const AttrSpec& a) { absl::StrAppend(s, a.name); };
  for (const auto& [name, value] : attrs->values()) {
    if (std::none_of(schema.attrs.begin(), schema.attrs.end(), [&](const AttrSpec& a) { return a.name == name; })) {
      return absl::InvalidArgumentError(
          schema.attrs.empty()
              ? absl::StrCat("unknown attribute '", name, "'; the operator has none")
              : absl::StrCat("unknown attribute '", name, "'; known: ", absl::StrJoin(schema.attrs, ", ", name_of)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResult(const Type& type) {
  if (type.is_tensor()) return CheckTensorType(type.tensor());
  for (const Type& field : type.tuple().fields) INLAY_RETURN_IF_ERROR(CheckResult(field));
  return absl::OkStatus();
}

}  // namespace

OpRegistry& OpRegistry::Global() {
  static auto* registry = new OpRegistry;
  return *registry;
}

void OpRegistry::Register(OpSchema schema) {
  std::string name = schema.name;
  if (!schemas_.emplace(name, std::move(schema)).second) {
    ABSL_RAW_LOG(FATAL, "the operator %s is registered twice", name.c_str());
  }
}

const OpSchema* OpRegistry::Find(absl::string_view name) const {
  auto it = schemas_.find(name);
  return it == schemas_.end() ? nullptr : &it->second;
}

std::vector<std::string> OpRegistry::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, schema] : schemas_) names.push_back(name);
  return names;
}

absl::StatusOr<Type> OpRegistry::Infer(absl::string_view op, const std::vector<Operand>& args, Attrs* attrs) const {
  const OpSchema* schema = Find(op);
  if (schema == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown operator '", op, "'; core/ir/OPS.md lists those known"));
  }
  const int n = static_cast<int>(args.size());
  if (n < schema->min_args || (schema->max_args >= 0 && n > schema->max_args)) {
    std::string wanted = schema->max_args < 0 ? absl::StrCat("at least ", schema->min_args)
                         : schema->min_args == schema->max_args
                             ? absl::StrCat(schema->min_args)
                             : absl::StrCat(schema->min_args, " to ", schema->max_args);
    return absl::InvalidArgumentError(absl::StrCat("takes ", wanted, " arguments, not ", n));
  }
  for (int i = 0; i < n; ++i) {
    if (args[i].is_var() && !args[i].var->type.is_tensor()) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", i, " is a tuple; operators take tensors"));
    }
  }
  INLAY_RETURN_IF_ERROR(CheckAttrs(*schema, attrs));
  INLAY_ASSIGN_OR_RETURN(Type type, schema->infer(InferContext{args, *attrs}));
  INLAY_RETURN_IF_ERROR(CheckResult(type));
  return type;
}

OpPattern PatternOf(const Binding& binding) {
  if (binding.kind != Binding::Kind::kCall) return OpPattern::kOpaque;
  const OpSchema* schema = OpRegistry::Global().Find(binding.callee);
  return schema == nullptr ? OpPattern::kOpaque : schema->pattern;
}

}  // namespace inlay::ir
