#include "inlay/ir_module.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/ir_module_impl.h"
#include "client/cpp/src/output_file.h"
#include "client/cpp/src/wire.h"
#include "core/base/file_system.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "core/runtime/exported/params.h"

namespace inlay {
namespace {

constexpr char kWeightsSuffix[] = ".safetensors";

absl::StatusOr<proto::IRModule> Parse(absl::string_view bytes, absl::string_view what) {
  proto::IRModule proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || proto.functions().count("main") == 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is no IRModule, or damaged"));
  }
  return proto;
}

AttrValue FromProto(const proto::AttrValue& value) {
  switch (value.kind_case()) {
    case proto::AttrValue::kI:
      return AttrValue(static_cast<int64_t>(value.i()));
    case proto::AttrValue::kF:
      return value.f();
    case proto::AttrValue::kB:
      return value.b();
    case proto::AttrValue::kInts:
      return std::vector<int64_t>(value.ints().v().begin(), value.ints().v().end());
    case proto::AttrValue::kFloats:
      return std::vector<double>(value.floats().v().begin(), value.floats().v().end());
    case proto::AttrValue::kStrings:
      return std::vector<std::string>(value.strings().v().begin(), value.strings().v().end());
    case proto::AttrValue::kDtype:
      return DType{runtime::Name(static_cast<runtime::DType>(value.dtype()))};
    default:
      return value.s();
  }
}

// The weights that the module names, which `path` must have: each as bytes (U8), called by its digest in hex.
absl::StatusOr<Weights> ReadWeights(const proto::IRModule& proto, const std::string& path) {
  std::vector<Digest> digests;
  std::vector<runtime::NamedTensor> wanted;
  std::set<Digest> seen;
  for (const proto::Constant& constant : proto.constants()) {
    if (constant.value_case() != proto::Constant::kDigest) continue;
    INLAY_ASSIGN_OR_RETURN(const Digest digest, Digest::FromBytes(constant.digest()));
    if (!seen.insert(digest).second) continue;
    runtime::TensorType type{static_cast<runtime::DType>(constant.type().dtype()), {}};
    for (const proto::Dim& dim : constant.type().dims()) type.shape.push_back(dim.value());
    if (type.NumBytes() < 0) return absl::InvalidArgumentError(absl::StrCat(path, ": a weight of an impossible size"));
    digests.push_back(digest);
    wanted.push_back({digest.hex(), {runtime::DType::kU8, {type.NumBytes()}}});
  }
  Weights weights;
  if (wanted.empty()) return weights;
  if (access(path.c_str(), R_OK) != 0) return ErrnoStatus(errno, "read", path);
  runtime::StatusOr<runtime::MappedFile> mapped = runtime::MappedFile::Open(path);
  if (!mapped.ok()) return FromRuntime(ErrorKind::kNone, mapped.status());
  auto file = std::make_shared<const runtime::MappedFile>(std::move(*mapped));
  runtime::StatusOr<std::vector<const void*>> found = runtime::FindSafetensors(path, *file, wanted);
  if (!found.ok()) return FromRuntime(ErrorKind::kNone, found.status());
  for (size_t i = 0; i < digests.size(); ++i) {
    const absl::string_view bytes(static_cast<const char*>((*found)[i]), wanted[i].type.NumBytes());
    weights.emplace(digests[i], Weight{bytes, file});
  }
  return weights;
}

absl::Status WriteWeights(const Weights& weights, const std::string& path) {
  nlohmann::json header = nlohmann::json::object();
  uint64_t offset = 0;
  for (const auto& [digest, weight] : weights) {
    header[digest.hex()] = {
        {"dtype", "U8"}, {"shape", {weight.bytes.size()}}, {"data_offsets", {offset, offset + weight.bytes.size()}}};
    offset += weight.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  INLAY_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path + ".part"));
  INLAY_RETURN_IF_ERROR(file.Write({reinterpret_cast<const char*>(&size), sizeof(size)}));
  INLAY_RETURN_IF_ERROR(file.Write(text));
  for (const auto& [digest, weight] : weights) INLAY_RETURN_IF_ERROR(file.Write(weight.bytes));
  return FileSystem::Default()->Rename(path + ".part", path);
}

}  // namespace

proto::AttrValue ToProto(const AttrValue& attr) {
  proto::AttrValue proto;
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) proto.set_b(v);
        if constexpr (std::is_same_v<T, int64_t>) proto.set_i(v);
        if constexpr (std::is_same_v<T, double>) proto.set_f(v);
        if constexpr (std::is_same_v<T, std::string>) proto.set_s(v);
        if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          *proto.mutable_ints()->mutable_v() = {v.begin(), v.end()};
        if constexpr (std::is_same_v<T, std::vector<double>>) {
          *proto.mutable_floats()->mutable_v() = {v.begin(), v.end()};
        }
        if constexpr (std::is_same_v<T, DType>) proto.set_dtype(ToProtoDType(v.name));
        if constexpr (std::is_same_v<T, Shape>) {
          const std::vector<int64_t> values = v.values();
          *proto.mutable_ints()->mutable_v() = {values.begin(), values.end()};
        }
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          *proto.mutable_strings()->mutable_v() = {v.begin(), v.end()};
        }
      },
      attr.value);
  return proto;
}

Weight WeightOf(const Tensor& tensor) { return {BytesOf(tensor), std::make_shared<const Tensor>(tensor)}; }

IRModule MakeIRModule(proto::IRModule proto, std::shared_ptr<const Weights> weights) {
  auto impl = std::make_shared<IRModule::Impl>();
  impl->proto = std::move(proto);
  impl->weights = std::move(weights);
  return IRModule(std::move(impl));
}

absl::StatusOr<IRModule> IRModule::FromBytes(absl::string_view bytes, const std::vector<Tensor>& tensors) {
  INLAY_ASSIGN_OR_RETURN(proto::IRModule proto, Parse(bytes, "the text"));
  auto weights = std::make_shared<Weights>();
  for (const Tensor& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(TypeOf(tensor).status());
    weights->emplace(Digest::Of(BytesOf(tensor)), WeightOf(tensor));
  }
  return MakeIRModule(std::move(proto), std::move(weights));
}

std::string IRModule::ToBytes() const { return DeterministicBytes(impl_->proto); }

Signature IRModule::signature() const {
  Signature signature;
  const proto::Function& main = impl_->proto.functions().at("main");
  for (const int index : main.params()) {
    if (index < 0 || index >= main.vars_size()) continue;
    signature.inputs.push_back(SpecOf(main.vars(index).name(), main.vars(index).type().tensor()));
  }
  for (const std::string& name : main.result_names()) signature.outputs.push_back(MakeSpec(name, "", {}));
  return signature;
}

size_t IRModule::weight_bytes() const {
  size_t bytes = 0;
  for (const auto& [digest, weight] : *impl_->weights) bytes += weight.bytes.size();
  return bytes;
}

absl::StatusOr<IRModule> IRModule::WithUpdates(const std::map<std::string, std::string>& updates) const {
  const Signature known = signature();
  std::vector<int64_t> inputs(known.outputs.size(), -1);
  for (const auto& [output, input] : updates) {
    const auto named = [](const std::string& name) {
      return [&](const TensorSpec& spec) { return spec.name == name; };
    };
    const auto o = std::find_if(known.outputs.begin(), known.outputs.end(), named(output));
    const auto i = std::find_if(known.inputs.begin(), known.inputs.end(), named(input));
    if (o == known.outputs.end()) return absl::InvalidArgumentError(absl::StrCat("main has no output '", output, "'"));
    if (i == known.inputs.end()) return absl::InvalidArgumentError(absl::StrCat("main has no input '", input, "'"));
    const int64_t at = i - known.inputs.begin();
    if (std::count(inputs.begin(), inputs.end(), at) > 0) {
      return absl::InvalidArgumentError(absl::StrCat("two outputs update input '", input, "'"));
    }
    inputs[o - known.outputs.begin()] = at;
  }
  proto::IRModule copy = impl_->proto;
  auto* attrs = copy.mutable_functions()->at("main").mutable_attrs();
  attrs->erase("updates");
  if (!updates.empty()) (*attrs)["updates"] = ToProto(AttrValue(inputs));
  return MakeIRModule(std::move(copy), impl_->weights);
}

CompilationConfig IRModule::config() const { return inlay::FromProto(impl_->proto.config()); }
bool IRModule::has_config() const { return impl_->proto.has_config(); }

absl::StatusOr<IRModule> IRModule::WithConfiguration(const CompilationConfig& config) const {
  INLAY_ASSIGN_OR_RETURN(proto::CompilationConfig proto, inlay::ToProto(config));
  proto::IRModule copy = impl_->proto;
  *copy.mutable_config() = std::move(proto);
  return MakeIRModule(std::move(copy), impl_->weights);
}

IRModule IRModule::WithAttr(const std::string& name, const AttrValue& value) const {
  proto::IRModule copy = impl_->proto;
  (*copy.mutable_attrs())[name] = inlay::ToProto(value);
  return MakeIRModule(std::move(copy), impl_->weights);
}

std::map<std::string, AttrValue> IRModule::attrs() const {
  std::map<std::string, AttrValue> attrs;
  for (const auto& [name, value] : impl_->proto.attrs()) attrs.emplace(name, FromProto(value));
  return attrs;
}

absl::Status IRModule::Save(const std::string& path) const {
  for (const proto::Constant& constant : impl_->proto.constants()) {
    if (constant.value_case() != proto::Constant::kDigest) continue;
    INLAY_ASSIGN_OR_RETURN(const Digest digest, Digest::FromBytes(constant.digest()));
    if (impl_->weights->count(digest) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the module can't be saved: it has no data of its weight '", constant.name(), "'"));
    }
  }
  // The weights first: who finds the module finds them.
  if (!impl_->weights->empty()) INLAY_RETURN_IF_ERROR(WriteWeights(*impl_->weights, path + kWeightsSuffix));
  return WriteFileAtomically(path, ToBytes());
}

absl::StatusOr<IRModule> LoadModule(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  INLAY_ASSIGN_OR_RETURN(proto::IRModule proto, Parse(bytes, path));
  INLAY_ASSIGN_OR_RETURN(Weights weights, ReadWeights(proto, path + kWeightsSuffix));
  return MakeIRModule(std::move(proto), std::make_shared<const Weights>(std::move(weights)));
}

}  // namespace inlay
