#include "core/cache/disk/action_file.h"

#include "absl/base/internal/endian.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

constexpr absl::string_view kMagic = "INLAYAC1";
constexpr size_t kHeader = 8 + 4 + 8;

Digest Checksum(const Digest& action, absl::string_view body) {
  return Hasher().Update(action.bytes()).Update(body).Finish();
}

}  // namespace

std::string EncodeActionFile(const Digest& action, const ActionResult& result) {
  std::string file(kHeader, '\0');
  file.replace(0, kMagic.size(), kMagic.data(), kMagic.size());
  absl::little_endian::Store32(&file[8], static_cast<uint32_t>(result.blobs.size()));
  absl::little_endian::Store64(&file[12], result.data.size());
  for (const Digest& blob : result.blobs) absl::StrAppend(&file, blob.bytes());
  absl::StrAppend(&file, result.data);
  const Digest sum = Checksum(action, file);
  absl::StrAppend(&file, sum.bytes());
  return file;
}

absl::StatusOr<ActionResult> DecodeActionFile(const Digest& action, absl::string_view file) {
  auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat("action ", action.hex(), ": its file ", what));
  };
  if (!absl::StartsWith(file, kMagic)) return damaged("does not begin as one");
  if (file.size() < kHeader + Digest::kSize) return damaged("is cut short");
  const uint64_t blobs = absl::little_endian::Load32(file.data() + 8);
  const uint64_t data = absl::little_endian::Load64(file.data() + 12);
  const uint64_t body = file.size() - kHeader - Digest::kSize;
  // In this order, so that nothing overflows: blobs < 2^32.
  if (blobs * Digest::kSize > body || data != body - blobs * Digest::kSize) return damaged("has another length");
  const absl::string_view sum = file.substr(file.size() - Digest::kSize);
  if (Checksum(action, file.substr(0, file.size() - Digest::kSize)).bytes() != sum)
    return damaged("fails its checksum");
  ActionResult result;
  result.blobs.reserve(blobs);
  absl::string_view rest = file.substr(kHeader);
  for (uint64_t i = 0; i < blobs; ++i) {
    INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(rest.substr(i * Digest::kSize, Digest::kSize)));
    result.blobs.push_back(digest);
  }
  result.data = std::string(rest.substr(blobs * Digest::kSize, data));
  return result;
}

}  // namespace inlay::cache
