// SyntheticValues: what inputs and weights hold while executables are measured. A model's own weights are not at hand
// (and would tie a measurement to a checkpoint); these are made from a seed, the same wherever the key is the same.
//
// What they are like matters, for wrong results must show in a model's outputs: activations may neither explode, nor
// vanish, nor become NaN on their way through dozens of layers, though nobody knows here what a weight is for.
//   float weight with at least two extents above 1: it will be contracted. Uniform around 0, with the variance that
//     keeps an activation's: 1 / fan-in where that is known (convolutions), else 1 / the geometric mean of the two
//     extents (a matmul's weight may lie either way; an up- and a down-projection then cancel).
//   any other float weight: 0.5 to 1.5. Scales, variances, divisors: sqrt and 1/x of them are finite.
//   one of those whose name says that it is added (bias, beta, mean): -0.1 to 0.1. As large as the scales they would
//     drown the signal layer by layer, and with it an error made early on.
//   float input: uniform around 0, variance 1.
//   i32, i64: 0 or 1, valid as indices and as masks. Other integers: -4 to 4, or 0 to 7 without sign. bool: either.
#ifndef INLAY_SERVER_MEASURING_SYNTHETIC_VALUES_H_
#define INLAY_SERVER_MEASURING_SYNTHETIC_VALUES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/runtime/tensor_type.h"

namespace inlay::server {

enum class SyntheticRole { kInput, kWeight, kOffset };

// kWeight or kOffset, by what frameworks call their parameters; a name that says nothing gives kWeight.
SyntheticRole RoleOfWeight(absl::string_view name);

// Fills `data`, type.NumBytes() long. `key` says which tensor of its role it is.
void FillSynthetic(const runtime::TensorType& type, SyntheticRole role, absl::string_view key, uint64_t seed,
                   char* data);

// Weights of one type and role are windows of one sequence of values, so that a deep model's fit into memory for one of
// them. A window begins at a multiple of 64 elements, less than kSyntheticSlack of them from where the sequence begins.
constexpr int64_t kSyntheticSlack = int64_t{1} << 16;
int64_t SyntheticWindow(absl::string_view key);

// Fills `data` with the sequence's first type.NumElements() + kSyntheticSlack elements: from SyntheticWindow(key) on it
// has what FillSynthetic gives for key.
void FillSyntheticSequence(const runtime::TensorType& type, SyntheticRole role, uint64_t seed, char* data);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_SYNTHETIC_VALUES_H_
