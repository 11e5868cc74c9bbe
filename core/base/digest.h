// Digest: a SHA-256, the name of every blob, action and structure. Hasher: the same of data that comes in pieces.
//
// Digest is a plain value (32 bytes, ordered, hashable by Abseil, usable as a map key); any thread.
// A Hasher belongs to one thread at a time.
#ifndef INLAY_CORE_BASE_DIGEST_H_
#define INLAY_CORE_BASE_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay {

class Digest {
 public:
  static constexpr size_t kSize = 32;

  Digest() : bytes_{} {}  // all zero: the digest of nothing known

  // SHA-256 of `data`.
  static Digest Of(absl::string_view data);
  // From 32 raw bytes (as protos carry it) or 64 hex digits, either case; anything else is INVALID_ARGUMENT.
  static absl::StatusOr<Digest> FromBytes(absl::string_view bytes);
  static absl::StatusOr<Digest> FromHex(absl::string_view hex);

  absl::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_.data()), kSize}; }
  std::string hex() const;
  // The first 12 digits: for logs and messages.
  std::string short_hex() const { return hex().substr(0, 12); }
  bool is_zero() const { return *this == Digest(); }

  friend bool operator==(const Digest& a, const Digest& b) { return a.bytes_ == b.bytes_; }
  friend bool operator!=(const Digest& a, const Digest& b) { return a.bytes_ != b.bytes_; }
  friend bool operator<(const Digest& a, const Digest& b) { return a.bytes_ < b.bytes_; }
  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    uint64_t head;  // uniformly distributed already; eight bytes of it are enough
    std::memcpy(&head, d.bytes_.data(), sizeof(head));
    return H::combine(std::move(h), head);
  }

 private:
  friend class Hasher;
  std::array<uint8_t, kSize> bytes_;
};

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  Hasher& operator=(Hasher&& other) noexcept;
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& Update(absl::string_view data);
  // A length before the data, so that ("ab", "c") and ("a", "bc") differ: for hashing several fields.
  Hasher& UpdateField(absl::string_view field);
  Hasher& UpdateInt(int64_t value);  // 8 bytes, little-endian
  // The digest of everything so far; the Hasher then begins anew.
  Digest Finish();

 private:
  void* context_;  // EVP_MD_CTX, owned
};

}  // namespace inlay

namespace std {
template <>
struct hash<inlay::Digest> {
  size_t operator()(const inlay::Digest& d) const noexcept {
    size_t head;
    std::memcpy(&head, d.bytes().data(), sizeof(head));
    return head;
  }
};
}  // namespace std

#endif  // INLAY_CORE_BASE_DIGEST_H_
