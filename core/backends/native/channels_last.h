// Images that cross a partition's border with their channels last. Native code gains from it where the model itself
// transposes (a normalisation or a matrix product over the channels of an image): those transposes go away, and what is
// elementwise between them is done on the image as it lies. And convolutions of integers, and of bf16 where the
// processor multiplies that, take the words that they multiply, neighbouring channels, from where they lie
// (lowerings/word_pixels.cc).
//
// For both halves; no MLIR. Any thread.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CHANNELS_LAST_H_
#define INLAY_CORE_BACKENDS_NATIVE_CHANNELS_LAST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/backends/native/cpu_features.h"
#include "core/ir/ir_module.h"

namespace inlay::native {

// Of a transpose from [N, C, S...] to [N, S..., C], and back; of rank 3 and more.
std::vector<int64_t> ToLast(int rank);
std::vector<int64_t> ToFirst(int rank);

// Whether there is a kernel for a convolution with the channels of its result last, if its weights are constant.
bool HasChannelsLastKernel(const ir::Binding& call, const CpuFeatures& cpu);
// Whether that takes its image with the channels last too, or, having few, as it lies row-major.
bool HasWordsOfChannels(const ir::Binding& conv);

// Parameters and results that nothing but transposes between [N, C, S...] and [N, S..., C], and elementwise operators
// beside such, touch; or those convolutions.
backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const CpuFeatures& cpu);

// A function that computes the same from the bytes as they lie: parameters and results that
// backend::kChannelsLastParams and kChannelsLastResults name have the types [N, S..., C], all are row-major. Without
// those attributes the function itself. INVALID_ARGUMENT: they name what is no image of known shape, or not there.
absl::StatusOr<ir::Function> WithRowMajorBorders(const ir::Function& partition, const CpuFeatures& cpu);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CHANNELS_LAST_H_
