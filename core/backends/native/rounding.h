#ifndef INLAY_CORE_BACKENDS_NATIVE_ROUNDING_H_
#define INLAY_CORE_BACKENDS_NATIVE_ROUNDING_H_

#include <cstdint>

namespace inlay::native {

// Of a cache line, with which whatever tasks write begins: states, workspaces and scratch.
inline constexpr int64_t kLineBytes = 64;

// x / y rounded up; x may be negative, y is positive.
constexpr int64_t CeilDiv(int64_t x, int64_t y) { return x >= 0 ? (x + y - 1) / y : -(-x / y); }

// The next multiple of y.
constexpr int64_t RoundUp(int64_t x, int64_t y) { return CeilDiv(x, y) * y; }

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_ROUNDING_H_
