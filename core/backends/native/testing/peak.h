// What a core can do at most, by a loop of nothing but multiply-adds in registers; and a rate as part of that. Some
// cores change their frequency by a tenth and more from one millisecond to the next, so the loop runs after every slice
// of a round, whose part is that of all slices together, and the median of the rounds' parts is what to read.
#ifndef INLAY_CORE_BACKENDS_NATIVE_TESTING_PEAK_H_
#define INLAY_CORE_BACKENDS_NATIVE_TESTING_PEAK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/backends/native/testing/kernel_jit.h"

namespace inlay::native::testing {

class Peak {
 public:
  // For vectors of `lanes` f32.
  Peak(KernelJit& jit, int64_t lanes);

  // `run(i)` for every i < iterations, each of them `flops`.
  void Round(double flops, int64_t iterations, const std::function<void(int64_t i)>& run);

  double best_seconds() const { return best_seconds_; }  // of a round's iteration
  double gflops() const;                                 // of the loop, the median
  double part() const;                                   // of it that the rounds reach, the median

 private:
  double LoopSeconds();

  int64_t lanes_;
  KernelJit::Function loop_;
  std::vector<float> registers_;
  double best_seconds_ = 1e9;
  std::vector<double> gflops_, parts_;
};

}  // namespace inlay::native::testing

#endif  // INLAY_CORE_BACKENDS_NATIVE_TESTING_PEAK_H_
