// Registry: the counters, gauges and histograms of one process, over prometheus-cpp.
//
// Main makes one and hands it to what counts things; the objects that it answers are kept by whoever counts, and live
// as long as the Registry. Asking again for the same name and labels answers the same object.
//
//   metrics::Counter& hits = registry->GetCounter("inlay_cache_hits_total", "Blobs found", {{"store", "disk"}});
//   hits.Increment();
//
// Names: inlay_<what>_<unit>, counters end in _total; seconds and bytes, never ms or MiB. A malformed name, or one name
// used for two kinds, is a bug (it aborts).
// Threads: any; incrementing is an atomic add.
#ifndef INLAY_CORE_METRICS_REGISTRY_H_
#define INLAY_CORE_METRICS_REGISTRY_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace inlay::metrics {

using Counter = prometheus::Counter;
using Gauge = prometheus::Gauge;
using Histogram = prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

// Upper bounds in seconds, 10 us to 100 s: for anything from a cache lookup to a compile.
const std::vector<double>& LatencyBuckets();

class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counter& GetCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& GetGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& GetHistogram(const std::string& name, const std::string& help, const Labels& labels = {},
                          const std::vector<double>& buckets = LatencyBuckets());

  // A gauge that is asked when someone looks (a size, a queue's length). `value` is called from any thread until the
  // returned object is destroyed, which waits for a call under way; so destroy it before what `value` looks at.
  class CallbackRegistration {
   public:
    virtual ~CallbackRegistration() = default;
  };
  [[nodiscard]] std::unique_ptr<CallbackRegistration> AddCallbackGauge(const std::string& name, const std::string& help,
                                                                       const Labels& labels,
                                                                       std::function<double()> value);

  // The text exposition format, version 0.0.4 (Content-Type: text/plain; version=0.0.4).
  std::string PrometheusText() const;
  // By name and labels as the text has them: "inlay_cache_hits_total{store=\"disk\"}"; of a histogram _count and _sum.
  std::map<std::string, double> Snapshot() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

// Observes the seconds that it lived.
class Timer {
 public:
  explicit Timer(Histogram& histogram);
  ~Timer();

 private:
  Histogram& histogram_;
  const absl::Time start_;
};

}  // namespace inlay::metrics

#endif  // INLAY_CORE_METRICS_REGISTRY_H_
