#include "core/ir/type.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay::ir {
namespace {

struct DTypeInfo {
  absl::string_view name;
  int bytes;
};

constexpr std::array<DTypeInfo, 11> kInfos = {{{"?", 0},
                                               {"f32", 4},
                                               {"f64", 8},
                                               {"f16", 2},
                                               {"bf16", 2},
                                               {"i8", 1},
                                               {"u8", 1},
                                               {"i16", 2},
                                               {"i32", 4},
                                               {"i64", 8},
                                               {"bool", 1}}};

}  // namespace

int64_t ByteSize(DType dtype) { return kInfos[static_cast<int>(dtype)].bytes; }

absl::string_view Name(DType dtype) { return kInfos[static_cast<int>(dtype)].name; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (size_t i = 1; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name) return static_cast<DType>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype '", name,
                   "'; known: ", absl::StrJoin(kInfos.begin() + 1, kInfos.end(), " ", [](std::string* s, auto& i) {
                     absl::StrAppend(s, i.name);
                   })));
}

bool IsFloat(DType dtype) { return dtype >= DType::kF32 && dtype <= DType::kBF16; }
bool IsInteger(DType dtype) { return dtype >= DType::kI8 && dtype <= DType::kI64; }
bool IsSigned(DType dtype) { return dtype != DType::kU8 && dtype != DType::kBool; }

Dim Dim::Symbol(std::string name) {
  Dim dim(0);
  dim.symbol_ = std::move(name);
  return dim;
}

std::string Dim::ToString() const { return is_static() ? absl::StrCat(value_) : symbol_; }

bool TensorType::is_static() const {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_static(); });
}

std::string TensorType::FirstSymbol() const {
  for (const Dim& d : dims) {
    if (!d.is_static()) return d.symbol();
  }
  return "";
}

int64_t TensorType::NumElements() const {
  int64_t n = 1;
  for (const Dim& d : dims) n *= d.value();
  return n;
}

std::vector<int64_t> TensorType::Shape() const {
  std::vector<int64_t> shape;
  shape.reserve(dims.size());
  for (const Dim& d : dims) shape.push_back(d.value());
  return shape;
}

std::string TensorType::ToString() const {
  return absl::StrCat(Name(dtype), "[",
                      absl::StrJoin(dims, ", ", [](std::string* s, const Dim& d) { absl::StrAppend(s, d.ToString()); }),
                      "]");
}

TensorType MakeTensorType(DType dtype, const std::vector<int64_t>& shape) {
  return TensorType{dtype, std::vector<Dim>(shape.begin(), shape.end())};
}

absl::Status CheckTensorType(const TensorType& type) {
  if (type.rank() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of rank ", type.rank(), "; the highest rank is ", kMaxRank));
  }
  int64_t bytes = ByteSize(type.dtype);
  for (const Dim& d : type.dims) {
    if (!d.is_static()) continue;
    if (d.value() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("negative extent in ", type.ToString()));
    }
    // An extent of 0 counts as 1, so that no product of some of the extents overflows either.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d.value(), 1), &bytes) || bytes >= kMaxTensorBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(type.ToString(), " is too large; a tensor must stay below ", kMaxTensorBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

bool TupleType::operator==(const TupleType& other) const { return fields == other.fields; }

std::string Type::ToString() const {
  if (is_tensor()) return tensor().ToString();
  return absl::StrCat(
      "(", absl::StrJoin(tuple().fields, ", ", [](std::string* s, const Type& t) { absl::StrAppend(s, t.ToString()); }),
      ")");
}

}  // namespace inlay::ir
