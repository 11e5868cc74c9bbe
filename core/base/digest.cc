#include "core/base/digest.h"

#include <openssl/evp.h>

#include <cstdlib>

#include "absl/base/internal/endian.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace inlay {
namespace {

// Fetched once: EVP_sha256() makes OpenSSL 3 look its provider up at every init, which costs more than hashing 1 KiB.
const EVP_MD* Sha256() {
  static const EVP_MD* const md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (md == nullptr) std::abort();  // an OpenSSL without SHA-256 cannot name blobs at all
  return md;
}

EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void Check(int ok) {
  if (ok != 1) std::abort();  // only out of memory, or misuse of the context
}

}  // namespace

Digest Digest::Of(absl::string_view data) {
  static thread_local Hasher hasher;
  return hasher.Update(data).Finish();
}

absl::StatusOr<Digest> Digest::FromBytes(absl::string_view bytes) {
  if (bytes.size() != kSize) {
    return absl::InvalidArgumentError(absl::StrCat("a digest has ", kSize, " bytes, not ", bytes.size()));
  }
  Digest digest;
  std::memcpy(digest.bytes_.data(), bytes.data(), kSize);
  return digest;
}

absl::StatusOr<Digest> Digest::FromHex(absl::string_view hex) {
  if (hex.size() != 2 * kSize) {
    return absl::InvalidArgumentError(absl::StrCat("a digest has ", 2 * kSize, " hex digits, not ", hex.size()));
  }
  for (char c : hex) {
    if (!absl::ascii_isxdigit(c)) return absl::InvalidArgumentError("a digest has hex digits only");
  }
  return FromBytes(absl::HexStringToBytes(hex));
}

std::string Digest::hex() const { return absl::BytesToHexString(bytes()); }

Hasher::Hasher() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) std::abort();
  Check(EVP_DigestInit_ex2(Context(context_), Sha256(), nullptr));
}

Hasher::~Hasher() { EVP_MD_CTX_free(Context(context_)); }

Hasher& Hasher::operator=(Hasher&& other) noexcept {
  std::swap(context_, other.context_);
  return *this;
}

Hasher& Hasher::Update(absl::string_view data) {
  Check(EVP_DigestUpdate(Context(context_), data.data(), data.size()));
  return *this;
}

Hasher& Hasher::UpdateField(absl::string_view field) {
  return UpdateInt(static_cast<int64_t>(field.size())).Update(field);
}

Hasher& Hasher::UpdateInt(int64_t value) {
  char bytes[8];
  absl::little_endian::Store64(bytes, static_cast<uint64_t>(value));
  return Update({bytes, sizeof(bytes)});
}

Digest Hasher::Finish() {
  Digest digest;
  Check(EVP_DigestFinal_ex(Context(context_), digest.bytes_.data(), nullptr));
  Check(EVP_DigestInit_ex2(Context(context_), Sha256(), nullptr));
  return digest;
}

}  // namespace inlay
