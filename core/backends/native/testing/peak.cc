#include "core/backends/native/testing/peak.h"

#include <algorithm>

#include "core/backends/native/testing/measuring.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native::testing {
namespace {

using mlir::Value;

constexpr int64_t kChains = 12;     // latency 4, two a cycle; AVX2 has 16 registers
constexpr int64_t kSteps = 200000;  // the clock, a system call, takes a microsecond
constexpr double kLoopsPerSlice = 1;

void EmitLoop(KernelBuilder& kb, int64_t lanes, Value data) {
  const mlir::Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(lanes, f32);
  Value x = kb.Load(vector, data), y = kb.Load(vector, kb.At(data, lanes, f32));
  auto out = kb.For(kb.Int(0), kb.Int(kSteps), 1, std::vector<Value>(kChains, kb.Zero(vector)),
                    [&](Value, const std::vector<Value>& in) {
                      std::vector<Value> next;
                      for (Value acc : in) next.push_back(kb.MultiplyAdd(x, y, acc));
                      return next;
                    });
  for (int64_t i = 0; i < kChains; ++i) kb.Store(out[i], kb.At(data, i * lanes, f32));
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

Peak::Peak(KernelJit& jit, int64_t lanes)
    : lanes_(lanes),
      loop_(jit.Compile(1, [=](KernelBuilder& kb, const std::vector<Value>& p) { EmitLoop(kb, lanes, p[0]); })),
      registers_(2 * kChains * lanes, 0.0f) {}

double Peak::LoopSeconds() {
  void* arguments[] = {registers_.data()};
  const double start = Seconds();
  loop_(arguments);
  return Seconds() - start;
}

void Peak::Round(double flops, int64_t iterations, const std::function<void(int64_t i)>& run) {
  const double loop_flops = 2.0 * kSteps * kChains * lanes_;
  const int64_t slice = std::max<int64_t>(1, static_cast<int64_t>(kLoopsPerSlice * loop_flops / flops));
  double seconds = 0, loop_seconds = 0, loops = 0;
  for (int64_t i = 0; i < iterations; ++loops) {
    const double start = Seconds();
    for (const int64_t end = std::min(iterations, i + slice); i < end; ++i) run(i);
    seconds += Seconds() - start;
    loop_seconds += LoopSeconds();
  }
  best_seconds_ = std::min(best_seconds_, seconds / iterations);
  gflops_.push_back(loops * loop_flops / loop_seconds / 1e9);
  parts_.push_back(flops * iterations / seconds / 1e9 / gflops_.back());
}

double Peak::gflops() const { return Median(gflops_); }
double Peak::part() const { return Median(parts_); }

}  // namespace inlay::native::testing
