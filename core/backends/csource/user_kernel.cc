#include "core/backends/csource/user_kernel.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/backends/csource/expr.h"
#include "core/backends/csource/source_filter.h"
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"
#include "nlohmann/json.hpp"

namespace inlay::csource {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxKernels = 64;
constexpr size_t kMaxSource = 256 << 10;

absl::Status Invalid(absl::string_view what) { return absl::InvalidArgumentError(what); }

bool IsIdentifier(const std::string& text) {
  if (text.empty() || text.size() > 64 || absl::ascii_isdigit(text[0])) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

absl::StatusOr<std::string> StringField(const Json& json, const char* name) {
  auto field = json.find(name);
  if (field == json.end() || !field->is_string()) return Invalid(absl::StrCat("'", name, "' must be given, a string"));
  return field->get<std::string>();
}

absl::StatusOr<ir::AttrValue> AttrFrom(const std::string& name, const Json& json) {
  if (json.is_boolean()) return ir::AttrValue(json.get<bool>());
  if (json.is_number_integer()) return ir::AttrValue(json.get<int64_t>());
  if (json.is_number()) return ir::AttrValue(json.get<double>());
  if (json.is_string()) return ir::AttrValue(json.get<std::string>());
  if (json.is_array() && std::all_of(json.begin(), json.end(), [](auto& e) { return e.is_number_integer(); })) {
    return ir::AttrValue(json.get<std::vector<int64_t>>());
  }
  if (json.is_array() && std::all_of(json.begin(), json.end(), [](auto& e) { return e.is_number(); })) {
    return ir::AttrValue(json.get<std::vector<double>>());
  }
  return Invalid(absl::StrCat("attrs: '", name, "' is neither number, string, bool nor a list of numbers"));
}

absl::Status ReadConstraints(const Json& json, UserKernel* kernel) {
  if (json.contains("dtypes")) {
    if (!json["dtypes"].is_array() || json["dtypes"].empty()) return Invalid("'dtypes' must be a list of names");
    kernel->dtypes.clear();
    for (const Json& name : json["dtypes"]) {
      if (!name.is_string()) return Invalid("'dtypes' must be a list of names");
      INLAY_ASSIGN_OR_RETURN(ir::DType dtype, ir::ParseDType(name.get<std::string>()));
      kernel->dtypes.push_back(dtype);
    }
  }
  if (json.contains("attrs")) {
    if (!json["attrs"].is_object()) return Invalid("'attrs' must be an object");
    for (const auto& [name, value] : json["attrs"].items()) {
      INLAY_ASSIGN_OR_RETURN(ir::AttrValue attr, AttrFrom(name, value));
      kernel->attrs.Set(name, std::move(attr));
    }
  }
  if (json.contains("shapes")) {
    if (!json["shapes"].is_array()) return Invalid("'shapes' must be a list of lists of extents");
    for (const Json& shape : json["shapes"]) {
      const bool fine = shape.is_array() && std::all_of(shape.begin(), shape.end(), [](auto& e) {
                          return e.is_number_integer() && e.template get<int64_t>() >= -1;
                        });
      if (!fine) return Invalid("'shapes' must be a list of lists of extents (-1: any)");
      kernel->shapes.push_back(shape.get<std::vector<int64_t>>());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UserKernel> KernelFrom(const Json& json) {
  if (!json.is_object()) return Invalid("not an object");
  static const std::set<std::string> known = {"op", "symbol", "source", "dtypes", "attrs", "shapes"};
  for (const auto& [name, value] : json.items()) {
    if (known.count(name) == 0) {
      return Invalid(absl::StrCat("unknown field '", name, "'; there are ", absl::StrJoin(known, ", ")));
    }
  }
  UserKernel kernel;
  INLAY_ASSIGN_OR_RETURN(kernel.op, StringField(json, "op"));
  INLAY_ASSIGN_OR_RETURN(kernel.symbol, StringField(json, "symbol"));
  INLAY_ASSIGN_OR_RETURN(kernel.source, StringField(json, "source"));
  const ir::OpSchema* schema = ir::OpRegistry::Global().Find(kernel.op);
  if (schema == nullptr) return Invalid(absl::StrCat("there is no operator '", kernel.op, "' (core/ir/OPS.md)"));
  if (!IsIdentifier(kernel.symbol)) return Invalid(absl::StrCat("'", kernel.symbol, "' is no name of a C function"));
  if (kernel.source.size() > kMaxSource) return Invalid("the source is longer than 256 KiB");
  INLAY_RETURN_IF_ERROR(CheckKernelSource(kernel.source));
  INLAY_RETURN_IF_ERROR(ReadConstraints(json, &kernel));
  for (const auto& [name, value] : kernel.attrs.values()) {
    const bool there = std::any_of(schema->attrs.begin(), schema->attrs.end(),
                                   [&, n = name](const ir::AttrSpec& spec) { return spec.name == n; });
    if (!there) return Invalid(absl::StrCat("operator ", kernel.op, " has no attribute '", name, "'"));
  }
  return kernel;
}

}  // namespace

absl::StatusOr<std::vector<UserKernel>> ParseUserKernels(const std::string& text) {
  std::vector<UserKernel> kernels;
  if (text.empty()) return kernels;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return Invalid("kernels: the text is no JSON list");
  if (json.size() > kMaxKernels) return Invalid(absl::StrCat("kernels: more than ", kMaxKernels));
  for (size_t i = 0; i < json.size(); ++i) {
    const bool named = json[i].is_object() && json[i].contains("symbol") && json[i]["symbol"].is_string();
    const std::string which = named ? absl::StrCat("'", json[i]["symbol"].get<std::string>(), "'") : absl::StrCat(i);
    INLAY_ASSIGN_OR_RETURN(UserKernel kernel, Annotate(KernelFrom(json[i]), absl::StrCat("kernel ", which)));
    for (const UserKernel& other : kernels) {
      if (other.symbol != kernel.symbol) continue;
      return Invalid(absl::StrCat("kernel ", which, ": there are two of this symbol; give each kernel its own"));
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

absl::Status CheckMatch(const UserKernel& kernel, const ir::Binding& call) {
  if (!call.IsCall(kernel.op)) return absl::UnimplementedError("another operator");
  const size_t n = call.args.size();
  if (kernel.dtypes.size() != 1 && kernel.dtypes.size() != n) {
    return absl::UnimplementedError(absl::StrCat(n, " inputs, the kernel takes ", kernel.dtypes.size()));
  }
  if (!kernel.shapes.empty() && kernel.shapes.size() != n) {
    return absl::UnimplementedError(absl::StrCat(n, " inputs, the kernel takes ", kernel.shapes.size()));
  }
  for (size_t i = 0; i < n; ++i) {
    if (!call.args[i].type().is_tensor()) return absl::UnimplementedError("an input is a tuple");
    const ir::TensorType& type = call.args[i].tensor_type();
    const ir::DType wanted = kernel.dtypes.size() == 1 ? kernel.dtypes[0] : kernel.dtypes[i];
    if (type.dtype != wanted) {
      return absl::UnimplementedError(
          absl::StrCat("input ", i, " is ", type.ToString(), ", the kernel takes ", std::string(ir::Name(wanted))));
    }
    if (!type.is_static()) return absl::UnimplementedError(absl::StrCat("input ", i, " is ", type.ToString()));
    if (kernel.shapes.empty()) continue;
    const std::vector<int64_t> shape = type.Shape();
    bool fits = shape.size() == kernel.shapes[i].size();
    for (size_t d = 0; fits && d < shape.size(); ++d)
      fits = kernel.shapes[i][d] == -1 || kernel.shapes[i][d] == shape[d];
    if (!fits) {
      return absl::UnimplementedError(absl::StrCat("input ", i, " is ", type.ToString(), ", the kernel takes [",
                                                   absl::StrJoin(kernel.shapes[i], ", "), "]"));
    }
  }
  // As the operator's own inference completes them: defaults, axes that count from the front.
  ir::Attrs wanted = kernel.attrs;
  auto inferred = ir::OpRegistry::Global().Infer(kernel.op, call.args, &wanted);
  if (!inferred.ok()) return absl::UnimplementedError(inferred.status().message());
  for (const auto& [name, value] : call.attrs.values()) {
    auto found = wanted.values().find(name);
    if (found != wanted.values().end() && found->second == value) continue;
    return absl::UnimplementedError(
        absl::StrCat("attribute ", name, " is ", ir::ToString(value), ", which the kernel does not name"));
  }
  return absl::OkStatus();
}

const UserKernel* FindUserKernel(const std::vector<UserKernel>& kernels, const ir::Binding& call) {
  for (const UserKernel& kernel : kernels) {
    if (CheckMatch(kernel, call).ok()) return &kernel;
  }
  return nullptr;
}

std::string SignatureOf(const ir::Binding& call) {
  std::vector<std::string> parameters;
  auto add = [&](const ir::Type& type, bool input) {
    parameters.push_back(
        absl::StrCat(input ? "const " : "", StorageType(type.tensor().dtype), " *, const int64_t *, int32_t"));
  };
  for (const ir::Operand& arg : call.args) add(arg.type(), true);
  if (call.var->type.is_tensor()) {
    add(call.var->type, false);
  } else {
    for (const ir::Type& field : call.var->type.tuple().fields) add(field, false);
  }
  return absl::StrJoin(parameters, ", ");
}

}  // namespace inlay::csource
