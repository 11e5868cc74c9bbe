#include "server/service/executable_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/proto_conversion.h"

namespace inlay::server {
namespace {

bool IsGone(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsDataLoss(status); }

}  // namespace

std::vector<const proto::StaticLibrary*> LoadedExecutable::library_pointers() const {
  std::vector<const proto::StaticLibrary*> pointers;
  for (const proto::StaticLibrary& library : libraries) pointers.push_back(&library);
  return pointers;
}

absl::StatusOr<std::unique_ptr<LoadedExecutable>> ExecutableStore::Load(const std::string& digest_bytes) const {
  auto loaded = std::make_unique<LoadedExecutable>();
  INLAY_ASSIGN_OR_RETURN(loaded->digest, Annotate(Digest::FromBytes(digest_bytes), "executable"));
  absl::StatusOr<std::string> published = published_->Get(loaded->digest);
  absl::StatusOr<cache::Blob> blob = published.ok() ? blobs_->Get(loaded->digest) : published.status();
  if (IsGone(blob.status())) {
    return absl::NotFoundError(absl::StrCat("no executable ", loaded->digest.short_hex(),
                                            " of this server's own making here: compile the module again"));
  }
  INLAY_RETURN_IF_ERROR(blob.status());
  if (!loaded->executable.ParseFromArray(blob->view().data(), static_cast<int>(blob->size())) ||
      loaded->executable.format_version() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("blob ", loaded->digest.short_hex(), " is not an executable"));
  }
  std::vector<Digest> parts;
  for (const std::string& bytes : loaded->executable.static_libraries()) {
    INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(bytes));
    parts.push_back(digest);
  }
  const size_t num_libraries = parts.size();
  for (const proto::ParamRef& param : loaded->executable.params()) {
    INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(param.digest()));
    INLAY_ASSIGN_OR_RETURN(ir::TensorType type, ir::FromProto(param.type()));
    parts.push_back(digest);
    loaded->param_bytes += type.NumBytes();
  }
  loaded->pin = blobs_->Pin(parts);
  INLAY_ASSIGN_OR_RETURN(std::vector<Digest> missing, blobs_->FindMissing(parts));
  if (!missing.empty()) {
    for (int i = 0; i < loaded->executable.params_size(); ++i) {
      if (parts[num_libraries + i] != missing[0]) continue;
      return absl::FailedPreconditionError(absl::StrCat("parameter '", loaded->executable.params(i).name(),
                                                        "' (sha256 ", missing[0].short_hex(),
                                                        ") is no longer on the server: upload it and compile again"));
    }
    return absl::FailedPreconditionError("a compiled partition is no longer in the cache: compile the module again");
  }
  for (size_t i = 0; i < num_libraries; ++i) {
    absl::StatusOr<cache::Blob> library = blobs_->Get(parts[i]);
    if (IsGone(library.status())) {
      return absl::FailedPreconditionError("a compiled partition was damaged and set aside: compile the module again");
    }
    INLAY_RETURN_IF_ERROR(library.status());
    if (!loaded->libraries.emplace_back().ParseFromArray(library->view().data(), static_cast<int>(library->size()))) {
      return absl::InternalError("a cached library does not parse");
    }
  }
  return loaded;
}

absl::StatusOr<cache::Blob> ExecutableStore::Param(const Digest& digest) const {
  absl::StatusOr<cache::Blob> blob = blobs_->Get(digest);
  if (IsGone(blob.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter with sha256 ", digest.short_hex(), " is gone: upload it and compile again"));
  }
  return blob;
}

artifact::ParamSource ExecutableStore::param_source() const {
  return [this](const Digest& digest, const std::function<absl::Status(absl::string_view)>& sink) -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(cache::Blob blob, Param(digest));
    return sink(blob.view());
  };
}

}  // namespace inlay::server
