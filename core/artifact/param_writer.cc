#include "core/artifact/param_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::artifact {
namespace {
constexpr uint64_t kAlign = 64;
}

absl::StatusOr<ParamWriter> ParamWriter::Make(const runtime::ExecutionPlan& plan,
                                              absl::Span<const proto::ParamRef> params, ParamSource source) {
  if (params.size() != plan.params.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has ", plan.params.size(), " params, given were ", params.size()));
  }
  ParamWriter writer;
  writer.source_ = std::move(source);
  if (!params.empty() && !writer.source_) return absl::InvalidArgumentError("no source of parameters");
  std::map<std::pair<Digest, int64_t>, uint64_t> offset_of;
  for (size_t i = 0; i < params.size(); ++i) {
    const runtime::NamedTensor& tensor = plan.params[i];
    INLAY_ASSIGN_OR_RETURN(Digest digest,
                           Annotate(Digest::FromBytes(params[i].digest()), absl::StrCat("param '", tensor.name, "'")));
    const int64_t bytes = tensor.type.NumBytes();
    writer.params_.push_back({tensor.name, tensor.type, digest, bytes});
    const auto [it, fresh] = offset_of.insert({{digest, bytes}, writer.linked_bytes_});
    writer.offsets_.push_back(it->second);
    if (!fresh) continue;
    writer.unique_.push_back(static_cast<int>(i));
    writer.linked_bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }
  return writer;
}

absl::Status ParamWriter::Stream(const Param& param, const Sink& sink) const {
  Hasher hasher;
  int64_t bytes = 0;
  auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("param '", param.name, "' (", param.type.ToString(), "): ", what));
  };
  const absl::Status status = source_(param.digest, [&](absl::string_view data) -> absl::Status {
    bytes += static_cast<int64_t>(data.size());
    if (bytes > param.bytes) return bad("its blob is longer than its type");
    hasher.Update(data);
    return sink(data);
  });
  INLAY_RETURN_IF_ERROR(Annotate(status, absl::StrCat("param '", param.name, "'")));
  if (bytes != param.bytes) return bad(absl::StrCat("its blob has ", bytes, " bytes"));
  if (hasher.Finish() != param.digest) return bad("its bytes are not those of its digest");
  return absl::OkStatus();
}

absl::Status ParamWriter::WriteLinked(const Sink& sink) const {
  for (int i : unique_) {
    INLAY_RETURN_IF_ERROR(Stream(params_[i], sink));
    const uint64_t rest = params_[i].bytes % kAlign;
    if (rest != 0) INLAY_RETURN_IF_ERROR(sink(std::string(kAlign - rest, '\0')));
  }
  return absl::OkStatus();
}

absl::Status ParamWriter::WriteSafetensors(const Sink& sink) const {
  std::vector<int> order(params_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return params_[a].bytes % kAlign == 0 && params_[b].bytes % kAlign != 0; });
  nlohmann::json json = nlohmann::json::object();
  int64_t at = 0;
  for (int i : order) {
    const Param& param = params_[i];
    json[param.name] = {{"dtype", runtime::SafetensorsName(param.type.dtype)},
                        {"shape", param.type.shape},
                        {"data_offsets", {at, at + param.bytes}}};
    at += param.bytes;
  }
  std::string header = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  header.append((kAlign - (8 + header.size()) % kAlign) % kAlign, ' ');
  const uint64_t size = header.size();
  char length[8];
  std::memcpy(length, &size, 8);
  INLAY_RETURN_IF_ERROR(sink(absl::string_view(length, 8)));
  INLAY_RETURN_IF_ERROR(sink(header));
  for (int i : order) INLAY_RETURN_IF_ERROR(Stream(params_[i], sink));
  return absl::OkStatus();
}

}  // namespace inlay::artifact
