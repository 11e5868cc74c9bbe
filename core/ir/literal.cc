#include "core/ir/literal.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace inlay::ir {
namespace {

// A narrow IEEE format: f16 and bf16.
struct Format {
  int mantissa_bits;
  int min_exponent;  // of a normal number
  double max;
};
constexpr Format kF16Format = {10, -14, 65504.0};
constexpr Format kBF16Format = {7, -126, 3.3895313892515355e38};

double RoundToFormat(double value, const Format& format) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = std::max(std::ilogb(value), format.min_exponent);
  // Scaling by a power of two is exact, so that there is one rounding: nearbyint's, to nearest even.
  double scaled = std::nearbyint(std::ldexp(value, format.mantissa_bits - exponent));
  double rounded = std::ldexp(scaled, exponent - format.mantissa_bits);
  return std::fabs(rounded) > format.max ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

uint16_t EncodeF16(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  value = std::fabs(RoundToFormat(value, kF16Format));
  if (std::isinf(value)) return sign | 0x7c00;
  if (value == 0) return sign;
  int exponent = std::ilogb(value);
  if (exponent < -14) return sign | static_cast<uint16_t>(std::ldexp(value, 24));
  return sign | static_cast<uint16_t>((exponent + 15) << 10) |
         (static_cast<uint16_t>(std::ldexp(value, 10 - exponent)) & 0x3ff);
}

double DecodeF16(uint16_t bits) {
  double sign = bits & 0x8000 ? -1.0 : 1.0;
  int exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 31) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

uint16_t EncodeBF16(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xffc0 : 0x7fc0;
  float f = static_cast<float>(RoundToFormat(value, kBF16Format));
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

double DecodeBF16(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}

template <typename T>
T Load(absl::string_view data, int64_t index) {
  T value;
  std::memcpy(&value, data.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::string* data) {
  data->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kF16:
      return RoundToFormat(value, kF16Format);
    case DType::kBF16:
      return RoundToFormat(value, kBF16Format);
    default:
      return value;
  }
}

int64_t ElementAsInt(DType dtype, absl::string_view data, int64_t index) {
  switch (dtype) {
    case DType::kI8:
      return Load<int8_t>(data, index);
    case DType::kU8:
      return Load<uint8_t>(data, index);
    case DType::kBool:
      return Load<uint8_t>(data, index) != 0;
    case DType::kI16:
      return Load<int16_t>(data, index);
    case DType::kI32:
      return Load<int32_t>(data, index);
    case DType::kI64:
      return Load<int64_t>(data, index);
    default:
      return static_cast<int64_t>(ElementAsDouble(dtype, data, index));
  }
}

double ElementAsDouble(DType dtype, absl::string_view data, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return Load<float>(data, index);
    case DType::kF64:
      return Load<double>(data, index);
    case DType::kF16:
      return DecodeF16(Load<uint16_t>(data, index));
    case DType::kBF16:
      return DecodeBF16(Load<uint16_t>(data, index));
    default:
      return static_cast<double>(ElementAsInt(dtype, data, index));
  }
}

void AppendInt(DType dtype, int64_t value, std::string* data) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      return Store(static_cast<uint8_t>(value), data);
    case DType::kBool:
      return Store(static_cast<uint8_t>(value != 0), data);
    case DType::kI16:
      return Store(static_cast<uint16_t>(value), data);
    case DType::kI32:
      return Store(static_cast<uint32_t>(value), data);
    case DType::kI64:
      return Store(value, data);
    default:
      return AppendDouble(dtype, static_cast<double>(value), data);
  }
}

void AppendDouble(DType dtype, double value, std::string* data) {
  switch (dtype) {
    case DType::kF32:
      return Store(static_cast<float>(value), data);
    case DType::kF64:
      return Store(value, data);
    case DType::kF16:
      return Store(EncodeF16(value), data);
    case DType::kBF16:
      return Store(EncodeBF16(value), data);
    case DType::kBool:
      return Store(static_cast<uint8_t>(value != 0), data);
    default:
      // Saturating, as cast is defined; NaN gives 0.
      if (std::isnan(value)) return AppendInt(dtype, 0, data);
      double low = IsSigned(dtype) ? -std::ldexp(1, 8 * ByteSize(dtype) - 1) : 0;
      double high = std::ldexp(1, 8 * ByteSize(dtype) - (IsSigned(dtype) ? 1 : 0));
      if (value >= high) {
        return AppendInt(dtype, dtype == DType::kI64 ? INT64_MAX : static_cast<int64_t>(high) - 1, data);
      }
      return AppendInt(dtype, value <= low ? static_cast<int64_t>(low) : static_cast<int64_t>(value), data);
  }
}

absl::optional<double> SplatDouble(const Operand& operand) {
  if (!operand.is_literal()) return absl::nullopt;
  const Constant& literal = *operand.constant;
  const size_t size = ByteSize(literal.type.dtype);
  if (literal.data.size() < size) return absl::nullopt;
  // All elements equal the first: the data equals itself moved by one element.
  if (std::memcmp(literal.data.data(), literal.data.data() + size, literal.data.size() - size) != 0) {
    return absl::nullopt;
  }
  return ElementAsDouble(literal.type.dtype, literal.data, 0);
}

std::vector<int64_t> IntElements(const Constant& literal) {
  std::vector<int64_t> values(literal.data.size() / ByteSize(literal.type.dtype));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ElementAsInt(literal.type.dtype, literal.data, i);
  return values;
}

}  // namespace inlay::ir
