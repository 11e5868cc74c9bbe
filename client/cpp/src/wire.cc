#include "client/cpp/src/wire.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "core/runtime/tensor_type.h"
#include "core/target/target.h"
#include "core/target/target_kinds.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace inlay {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::pair<const char*, proto::SearchOptions::Mode> kSearches[] = {
    {"none", proto::SearchOptions::NONE},
    {"analytic", proto::SearchOptions::ANALYTIC},
    {"measured", proto::SearchOptions::MEASURED}};

std::string FieldName(absl::string_view option) { return absl::StrReplaceAll(option, {{"-", "_"}}); }

// Number of the enum's value that is called so in lower case; -1.
int EnumNumber(const EnumDescriptor& descriptor, const std::string& name) {
  const auto* value = descriptor.FindValueByName(absl::AsciiStrToUpper(name));
  return value == nullptr || value->number() == 0 ? -1 : value->number();
}

// An executor or a runtime: its kind and options into the message's fields, checked by the schema that these carry.
absl::Status Fill(const std::string& what, const std::string& kind, const std::map<std::string, std::string>& options,
                  Message* message) {
  const auto& descriptor = *message->GetDescriptor();
  const auto& reflection = *message->GetReflection();
  const FieldDescriptor& kind_field = *descriptor.FindFieldByName("kind");
  const int number = EnumNumber(*kind_field.enum_type(), kind);
  if (number < 0) {
    std::vector<std::string> kinds;
    for (int i = 1; i < kind_field.enum_type()->value_count(); ++i) {
      kinds.push_back(absl::AsciiStrToLower(kind_field.enum_type()->value(i)->name()));
    }
    return absl::InvalidArgumentError(absl::StrCat(what, " is '", kind, "'; there are ", absl::StrJoin(kinds, ", ")));
  }
  reflection.SetEnumValue(message, &kind_field, number);
  std::map<std::string, std::string> named;
  for (const auto& [name, value] : options) named[absl::StrReplaceAll(name, {{"_", "-"}})] = value;
  INLAY_RETURN_IF_ERROR(target::CheckAttrs(named, target::OptionsOf(descriptor, kind), absl::StrCat(what, " ", kind)));
  for (const auto& [name, value] : named) {
    const FieldDescriptor& field = *descriptor.FindFieldByName(FieldName(name));
    int n = 0;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      reflection.SetEnumValue(message, &field, EnumNumber(*field.enum_type(), value));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      reflection.SetBool(message, &field, value == "1");
    } else if (absl::SimpleAtoi(value, &n)) {
      reflection.SetInt32(message, &field, n);
    }
  }
  return absl::OkStatus();
}

// The other way round; options that have their defaults are left out.
void Read(const Message& message, std::string* kind, std::map<std::string, std::string>* options) {
  const auto& descriptor = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  const auto* chosen = reflection.GetEnum(message, descriptor.FindFieldByName("kind"));
  if (chosen->number() != 0) *kind = absl::AsciiStrToLower(chosen->name());
  for (const target::AttrSpec& spec : target::OptionsOf(descriptor, *kind)) {
    const FieldDescriptor& field = *descriptor.FindFieldByName(FieldName(spec.name));
    if (!reflection.HasField(message, &field)) continue;
    std::string& value = (*options)[spec.name];
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      value = absl::AsciiStrToLower(reflection.GetEnum(message, &field)->name());
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      value = "1";
    } else {
      value = absl::StrCat(reflection.GetInt32(message, &field));
    }
  }
}

Target ResolvedTarget(const Target& target, const std::optional<Target>& host) {
  if (!target.is_native()) return target;
  std::map<std::string, std::string> attrs = target.attrs();
  attrs.erase("mcpu");
  std::map<std::string, std::string> found;
  if (host.has_value() && !host->attr("mcpu").empty()) {
    found = host->attrs();
  } else {
    found = target::HostTarget().attrs;
  }
  found.erase("num-cores");
  attrs.insert(found.begin(), found.end());  // its own stay
  return Target(target.kind(), std::move(attrs));
}

}  // namespace

absl::StatusOr<proto::Target> ToProto(const Target& target) {
  INLAY_RETURN_IF_ERROR(target.status());
  proto::Target proto;
  proto.set_kind(target.kind());
  for (const auto& [name, value] : target.attrs()) (*proto.mutable_attrs())[name] = value;
  return proto;
}

Target FromProto(const proto::Target& proto) {
  return Target(proto.kind(), {proto.attrs().begin(), proto.attrs().end()});
}

absl::StatusOr<proto::CompilationConfig> ToProto(const CompilationConfig& config) {
  proto::CompilationConfig proto;
  for (const Target& target : config.targets) {
    INLAY_ASSIGN_OR_RETURN(*proto.add_targets(), ToProto(target));
  }
  if (config.target_host.has_value()) {
    INLAY_ASSIGN_OR_RETURN(*proto.mutable_target_host(), ToProto(*config.target_host));
  }
  INLAY_RETURN_IF_ERROR(Fill("executor", config.executor.kind, config.executor.options, proto.mutable_executor()));
  INLAY_RETURN_IF_ERROR(Fill("runtime", config.runtime.kind, config.runtime.options, proto.mutable_runtime()));
  proto.set_link_params(config.link_params);
  proto::SearchOptions& search = *proto.mutable_search();
  if (!config.search.empty()) {
    for (const auto& [name, mode] : kSearches) {
      if (name == config.search) search.set_mode(mode);
    }
    if (search.mode() == proto::SearchOptions::SEARCH_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("search is '", config.search, "'; there are none, analytic, measured"));
    }
  }
  search.set_budget_s(config.search_budget_s);
  search.set_replan(config.replan);
  for (const auto& [name, hint] : config.dim_hints) (*search.mutable_dim_hints())[name] = hint;
  if (!config.pinned.empty() && !search.mutable_pinned()->ParseFromString(config.pinned)) {
    return absl::InvalidArgumentError("pinned is no cover that a compile gave");
  }
  *search.mutable_backends() = {config.backends.begin(), config.backends.end()};
  if (config.opt_level.has_value()) proto.mutable_passes()->set_opt_level(*config.opt_level);
  *proto.mutable_passes()->mutable_disabled_passes() = {config.disabled_passes.begin(), config.disabled_passes.end()};
  proto.mutable_passes()->set_mixed_precision(config.mixed_precision);
  proto.set_num_threads(config.num_threads);
  return proto;
}

CompilationConfig FromProto(const proto::CompilationConfig& proto) {
  CompilationConfig config;
  for (const proto::Target& target : proto.targets()) config.targets.push_back(FromProto(target));
  if (proto.has_target_host()) config.target_host = FromProto(proto.target_host());
  Read(proto.executor(), &config.executor.kind, &config.executor.options);
  Read(proto.runtime(), &config.runtime.kind, &config.runtime.options);
  if (proto.has_link_params()) config.link_params = proto.link_params();
  for (const auto& [name, mode] : kSearches) {
    if (mode == proto.search().mode()) config.search = name;
  }
  config.search_budget_s = proto.search().budget_s();
  config.replan = proto.search().replan();
  config.dim_hints = {proto.search().dim_hints().begin(), proto.search().dim_hints().end()};
  if (proto.search().has_pinned()) config.pinned = proto.search().pinned().SerializeAsString();
  config.backends = {proto.search().backends().begin(), proto.search().backends().end()};
  if (proto.passes().has_opt_level()) config.opt_level = proto.passes().opt_level();
  config.disabled_passes = {proto.passes().disabled_passes().begin(), proto.passes().disabled_passes().end()};
  config.mixed_precision = proto.passes().mixed_precision();
  config.num_threads = proto.num_threads();
  return config;
}

CompilationConfig Resolved(CompilationConfig config, const std::optional<Target>& host,
                           const std::optional<Target>& fallback) {
  if (config.targets.empty() && fallback.has_value()) config.targets.push_back(*fallback);
  for (Target& target : config.targets) target = ResolvedTarget(target, host);
  if (config.target_host.has_value()) config.target_host = ResolvedTarget(*config.target_host, host);
  return config;
}

TensorSpec MakeSpec(std::string name, std::string dtype, Shape shape) {
  std::vector<int64_t> values = shape.values();
  return {std::move(name), std::move(dtype), std::move(values), std::move(shape)};
}

TensorSpec SpecOf(const std::string& name, const proto::TensorType& type) {
  std::vector<Dim> dims;
  for (const proto::Dim& dim : type.dims()) {
    dims.push_back(dim.has_value() ? Dim(dim.value()) : Dim(dim.symbol()));
  }
  return MakeSpec(name, runtime::Name(static_cast<runtime::DType>(type.dtype())), std::move(dims));
}

proto::DType ToProtoDType(const std::string& name) {
  runtime::DType dtype;
  if (!runtime::ParseDType(name, &dtype)) return proto::DTYPE_UNSPECIFIED;
  return static_cast<proto::DType>(dtype);
}

absl::StatusOr<proto::TensorType> TypeOf(const Tensor& tensor) {
  proto::TensorType type;
  type.set_dtype(ToProtoDType(DTypeOf(tensor)));
  if (type.dtype() == proto::DTYPE_UNSPECIFIED)
    return absl::InvalidArgumentError("a tensor of a dtype that inlay has not");
  if (!tensor.IsContiguous() || tensor.device().device_type != kDLCPU) {
    return absl::InvalidArgumentError("a tensor that is not dense and row-major in CPU memory");
  }
  for (const int64_t extent : tensor.shape()) type.add_dims()->set_value(extent);
  return type;
}

absl::string_view BytesOf(const Tensor& tensor) {
  const char* data = static_cast<const char*>(tensor.data_ptr());
  return {data == nullptr ? "" : data + tensor.byte_offset(), tvm::ffi::GetDataSize(*tensor.GetDLTensorPtr())};
}

}  // namespace inlay
