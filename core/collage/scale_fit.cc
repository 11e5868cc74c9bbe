#include "core/collage/scale_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace inlay::collage {
namespace {

constexpr int kEnoughOfMachine = 8, kEnough = 3;
constexpr double kPriorSamples = 4;
constexpr int kMostOfAKind = 64;
// A sub-graph that is off by more says nothing of others.
constexpr double kMostRatio = 100;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// The prior, drawn to the median.
double Drawn(double prior, const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  return prior + (Median(values) - prior) * n / (n + kPriorSamples);
}

}  // namespace

ScaleFit::ScaleFit(const proto::CostSamples& samples) {
  std::vector<double> all;
  std::map<std::string, std::vector<double>> by_kind;
  std::map<std::pair<std::string, std::string>, std::vector<double>> by_backend;
  for (const proto::CostSamples::Sample& sample : samples.samples()) {
    if (!(sample.ratio() > 1 / kMostRatio && sample.ratio() < kMostRatio)) continue;
    const double value = std::log(sample.ratio());
    all.push_back(value);
    by_kind[sample.kind()].push_back(value);
    by_backend[{sample.backend(), sample.kind()}].push_back(value);
  }
  if (all.size() < kEnoughOfMachine) return;
  num_samples_ = static_cast<int>(all.size());
  machine_ = Median(all);
  for (const auto& [kind, values] : by_kind) {
    if (values.size() >= kEnough) kinds_[kind] = Drawn(machine_, values);
  }
  for (const auto& [key, values] : by_backend) {
    if (values.size() >= kEnough) backends_[key] = Drawn(kinds_.at(key.second), values);
  }
}

double ScaleFit::Scale(const std::string& backend, const std::string& kind) const {
  if (auto found = backends_.find({backend, kind}); found != backends_.end()) return std::exp(found->second);
  if (auto found = kinds_.find(kind); found != kinds_.end()) return std::exp(found->second);
  return std::exp(machine_);
}

proto::CostSamples MergeSamples(const proto::CostSamples& samples, const proto::CostSamples& more) {
  std::map<std::string, const proto::CostSamples::Sample*> by_key;
  for (const auto* list : {&samples, &more}) {
    for (const proto::CostSamples::Sample& sample : list->samples()) by_key.emplace(sample.key(), &sample);
  }
  std::map<std::pair<std::string, std::string>, int> count;
  proto::CostSamples merged;
  for (const auto& [key, sample] : by_key) {
    if (count[{sample->backend(), sample->kind()}]++ < kMostOfAKind) *merged.add_samples() = *sample;
  }
  return merged;
}

}  // namespace inlay::collage
