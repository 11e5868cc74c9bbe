#include "server/measuring/synthetic_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/ir/literal.h"

namespace inlay::server {
namespace {

using runtime::DType;

// SplitMix64's finaliser: element i of a tensor is Mix(stream + i * kStep), so that filling vectorises.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

// The same in every process and build, which std::hash is not.
uint64_t Hash(uint64_t hash, absl::string_view key) {
  for (const char c : key) hash = Mix((hash ^ static_cast<unsigned char>(c)) + kStep);
  return hash;
}
uint64_t WeightStream(uint64_t seed) { return Mix(seed + 2 * kStep); }

// [0, 1), 24 bits.
float Unit(uint64_t stream, int64_t i) { return static_cast<float>(Mix(stream + i * kStep) >> 40) * 0x1p-24f; }

struct Range {
  float low, high;
};

// Extents of a kernel's window are small; from here on the last of three is taken for a matrix's.
constexpr int64_t kWindow = 16;

Range WeightRange(const std::vector<int64_t>& shape, SyntheticRole role) {
  std::vector<int64_t> dims;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(dims), [](int64_t dim) { return dim > 1; });
  const size_t rank = dims.size();
  if (rank < 2) return role == SyntheticRole::kOffset ? Range{-0.1f, 0.1f} : Range{0.5f, 1.5f};
  double fan = 1;
  if (rank == 2 || (rank == 3 && dims[2] >= kWindow)) {
    fan = std::sqrt(static_cast<double>(dims[rank - 2]) * static_cast<double>(dims[rank - 1]));
  } else {
    for (size_t i = 1; i < rank; ++i) fan *= static_cast<double>(dims[i]);
  }
  const float bound = static_cast<float>(std::sqrt(3 / fan));
  return {-bound, bound};
}

Range FloatRange(const runtime::TensorType& type, SyntheticRole role) {
  static const float kSqrt3 = std::sqrt(3.0f);
  return role == SyntheticRole::kInput ? Range{-kSqrt3, kSqrt3} : WeightRange(type.shape, role);
}

Range IntegerRange(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
      return {-4, 5};
    case DType::kU8:
      return {0, 8};
    default:
      return {0, 2};
  }
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Elements first, first + 1, ... of a stream.
void Fill(const runtime::TensorType& type, SyntheticRole role, uint64_t stream, int64_t first, int64_t n, char* data) {
  const Range range = IsFloat(type.dtype) ? FloatRange(type, role) : IntegerRange(type.dtype);
  const float width = range.high - range.low;
  if (type.dtype == DType::kF32) {  // nearly all, and hundreds of megabytes
    float* const values = reinterpret_cast<float*>(data);
    for (int64_t i = 0; i < n; ++i) values[i] = range.low + width * Unit(stream, first + i);
    return;
  }
  const ir::DType dtype = static_cast<ir::DType>(type.dtype);  // the numbers are proto/ir.proto's in both
  const int64_t size = runtime::ByteSize(type.dtype);
  std::string element;
  for (int64_t i = 0; i < n; ++i) {
    const float value = range.low + width * Unit(stream, first + i);
    element.clear();
    if (IsFloat(type.dtype)) {
      ir::AppendDouble(dtype, value, &element);
    } else {
      ir::AppendInt(dtype, static_cast<int64_t>(std::floor(value)), &element);
    }
    std::memcpy(data + i * size, element.data(), size);
  }
}

}  // namespace

SyntheticRole RoleOfWeight(absl::string_view name) {
  for (const char* word : {"bias", "beta", "mean"}) {
    if (absl::StrContains(absl::AsciiStrToLower(name), word)) return SyntheticRole::kOffset;
  }
  return SyntheticRole::kWeight;
}

int64_t SyntheticWindow(absl::string_view key) {
  constexpr int64_t kAlignment = 64;  // elements, so that bytes are aligned whatever the type
  return static_cast<int64_t>(Hash(0, key) % (kSyntheticSlack / kAlignment)) * kAlignment;
}

void FillSynthetic(const runtime::TensorType& type, SyntheticRole role, absl::string_view key, uint64_t seed,
                   char* data) {
  if (role == SyntheticRole::kInput) {
    Fill(type, role, Hash(Mix(seed + kStep), key), 0, type.NumElements(), data);
  } else {
    Fill(type, role, WeightStream(seed), SyntheticWindow(key), type.NumElements(), data);
  }
}

void FillSyntheticSequence(const runtime::TensorType& type, SyntheticRole role, uint64_t seed, char* data) {
  Fill(type, role, WeightStream(seed), 0, type.NumElements() + kSyntheticSlack, data);
}

}  // namespace inlay::server
