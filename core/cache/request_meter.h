// RequestMeter: the count by code and the latency of one operation of one store; what the metered decorators share.
// Threads: any.
#ifndef INLAY_CORE_CACHE_REQUEST_METER_H_
#define INLAY_CORE_CACHE_REQUEST_METER_H_

#include <array>
#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "core/metrics/registry.h"

namespace inlay::cache {

class RequestMeter {
 public:
  // Metrics are named <prefix>_requests_total and <prefix>_seconds.
  RequestMeter(metrics::Registry* registry, const std::string& prefix, const std::string& store, const std::string& op)
      : registry_(registry),
        prefix_(prefix),
        labels_({{"store", store}, {"op", op}}),
        seconds_(registry->GetHistogram(prefix + "_seconds", "Seconds an operation took", labels_)) {}

  void Record(absl::StatusCode code, absl::Time start) {
    seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - start));
    CounterOf(code).Increment();
  }

 private:
  metrics::Counter& CounterOf(absl::StatusCode code) {
    // Looked up once a code: a look-up in the registry takes its lock and builds strings.
    std::atomic<metrics::Counter*>& slot = counters_[static_cast<size_t>(code) % counters_.size()];
    if (metrics::Counter* counter = slot.load()) return *counter;
    metrics::Labels labels = labels_;
    labels["code"] = absl::StatusCodeToString(code);
    metrics::Counter& counter = registry_->GetCounter(prefix_ + "_requests_total", "Operations by result", labels);
    slot = &counter;
    return counter;
  }

  metrics::Registry* const registry_;
  const std::string prefix_;
  const metrics::Labels labels_;
  metrics::Histogram& seconds_;
  std::array<std::atomic<metrics::Counter*>, 32> counters_ = {};
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_REQUEST_METER_H_
