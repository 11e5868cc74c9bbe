#include "core/metrics/registry.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace inlay::metrics {

const std::vector<double>& LatencyBuckets() {
  static const auto* const buckets =
      new std::vector<double>{1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10, 30, 100};
  return *buckets;
}

struct Registry::Impl {
  struct Callback {
    std::string name, help;
    Labels labels;
    std::function<double()> value;
  };

  std::vector<prometheus::MetricFamily> Collect() const {
    std::vector<prometheus::MetricFamily> families = registry.Collect();
    absl::MutexLock lock(&mu);
    std::map<std::string, size_t> family_of;
    for (const auto& [id, callback] : callbacks) {
      auto [it, added] = family_of.emplace(callback.name, families.size());
      if (added) {
        prometheus::MetricFamily family;
        family.name = callback.name;
        family.help = callback.help;
        family.type = prometheus::MetricType::Gauge;
        families.push_back(std::move(family));
      }
      prometheus::ClientMetric metric;
      for (const auto& [key, value] : callback.labels) metric.label.push_back({key, value});
      metric.gauge.value = callback.value();
      families[it->second].metric.push_back(std::move(metric));
    }
    return families;
  }

  prometheus::Registry registry;
  mutable absl::Mutex mu;
  int64_t next_id ABSL_GUARDED_BY(mu) = 0;
  std::map<int64_t, Callback> callbacks ABSL_GUARDED_BY(mu);
};

namespace {

std::string Key(const std::string& name, const prometheus::ClientMetric& metric) {
  if (metric.label.empty()) return name;
  std::string key = absl::StrCat(name, "{");
  for (const auto& label : metric.label) {
    absl::StrAppend(&key, key.back() == '{' ? "" : ",", label.name, "=\"", label.value, "\"");
  }
  return key + "}";
}

}  // namespace

Registry::Registry() : impl_(std::make_shared<Impl>()) {}
Registry::~Registry() = default;

Counter& Registry::GetCounter(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry).Add(labels);
}

Gauge& Registry::GetGauge(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry).Add(labels);
}

Histogram& Registry::GetHistogram(const std::string& name, const std::string& help, const Labels& labels,
                                  const std::vector<double>& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry).Add(labels, buckets);
}

std::unique_ptr<Registry::CallbackRegistration> Registry::AddCallbackGauge(const std::string& name,
                                                                           const std::string& help,
                                                                           const Labels& labels,
                                                                           std::function<double()> value) {
  class Registration : public CallbackRegistration {
   public:
    Registration(std::shared_ptr<Impl> impl, int64_t id) : impl_(std::move(impl)), id_(id) {}
    ~Registration() override {
      absl::MutexLock lock(&impl_->mu);
      impl_->callbacks.erase(id_);
    }

   private:
    const std::shared_ptr<Impl> impl_;
    const int64_t id_;
  };
  absl::MutexLock lock(&impl_->mu);
  const int64_t id = impl_->next_id++;
  impl_->callbacks[id] = {name, help, labels, std::move(value)};
  return std::make_unique<Registration>(impl_, id);
}

std::string Registry::PrometheusText() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, impl_->Collect());
  return out.str();
}

std::map<std::string, double> Registry::Snapshot() const {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : impl_->Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      switch (family.type) {
        case prometheus::MetricType::Counter:
          values[Key(family.name, metric)] = metric.counter.value;
          break;
        case prometheus::MetricType::Gauge:
          values[Key(family.name, metric)] = metric.gauge.value;
          break;
        case prometheus::MetricType::Histogram:
          values[Key(family.name + "_count", metric)] = metric.histogram.sample_count;
          values[Key(family.name + "_sum", metric)] = metric.histogram.sample_sum;
          break;
        default:
          break;  // Registry makes no other kind
      }
    }
  }
  return values;
}

Timer::Timer(Histogram& histogram) : histogram_(histogram), start_(absl::Now()) {}
Timer::~Timer() { histogram_.Observe(absl::ToDoubleSeconds(absl::Now() - start_)); }

}  // namespace inlay::metrics
