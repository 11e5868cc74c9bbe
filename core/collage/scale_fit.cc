#include "core/collage/scale_fit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/types/optional.h"

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
  std::vector<double> all, of_fallback;
  std::map<std::string, std::vector<double>> by_kind, fallback_by_kind;
  std::map<std::pair<std::string, std::string>, std::vector<double>> differences;
  for (const proto::CostSamples::Site& site : samples.sites()) {
    absl::optional<double> fallback;
    std::map<std::string, double> others;
    for (const proto::CostSamples::Sample& sample : site.samples()) {
      if (!(sample.ratio() > 1 / kMostRatio && sample.ratio() < kMostRatio)) continue;
      const double value = std::log(sample.ratio());
      all.push_back(value);
      by_kind[site.kind()].push_back(value);
      if (sample.fallback()) {
        fallback = value;
        of_fallback.push_back(value);
        fallback_by_kind[site.kind()].push_back(value);
      } else {
        others[sample.backend()] = value;
      }
    }
    if (!fallback.has_value()) continue;
    for (const auto& [backend, value] : others) differences[{backend, site.kind()}].push_back(value - *fallback);
  }
  if (all.size() < kEnoughOfMachine) return;
  num_samples_ = static_cast<int>(all.size());
  machine_ = Median(of_fallback.size() >= kEnoughOfMachine ? of_fallback : all);
  for (const auto& [kind, values] : by_kind) {
    const std::vector<double>& fallback = fallback_by_kind[kind];
    const std::vector<double>& best = fallback.size() >= kEnough ? fallback : values;
    if (best.size() >= kEnough) kinds_[kind] = Drawn(machine_, best);
  }
  for (const auto& [key, values] : differences) {
    if (values.size() >= kEnough) backends_[key] = kinds_.at(key.second) + Drawn(0, values);
  }
}

double ScaleFit::Scale(const std::string& backend, const std::string& kind) const {
  if (auto found = backends_.find({backend, kind}); found != backends_.end()) return std::exp(found->second);
  if (auto found = kinds_.find(kind); found != kinds_.end()) return std::exp(found->second);
  return std::exp(machine_);
}

proto::CostSamples MergeSamples(const proto::CostSamples& samples, const proto::CostSamples& more) {
  std::map<std::string, std::string> newest;
  for (const proto::CostSamples::Site& site : more.sites()) {
    for (const proto::CostSamples::Sample& sample : site.samples()) newest[sample.backend()] = sample.version();
  }
  struct Site {
    std::string kind;
    std::map<std::string, const proto::CostSamples::Sample*> samples;
    bool compares = false;
  };
  std::map<std::string, Site> sites;
  for (const proto::CostSamples* list : {&samples, &more}) {
    for (const proto::CostSamples::Site& from : list->sites()) {
      Site& site = sites[from.key()];
      site.kind = from.kind();
      for (const proto::CostSamples::Sample& sample : from.samples()) {
        const auto version = newest.find(sample.backend());
        if (version == newest.end() || version->second == sample.version()) site.samples[sample.backend()] = &sample;
      }
    }
  }
  for (auto& [key, site] : sites) {
    const bool has_fallback = std::any_of(site.samples.begin(), site.samples.end(),
                                          [](const auto& sample) { return sample.second->fallback(); });
    site.compares = has_fallback && site.samples.size() > 1;
  }
  std::set<std::string> kept;
  std::map<std::string, int> count;
  for (const bool compares : {true, false}) {
    for (const auto& [key, site] : sites) {
      if (site.compares == compares && !site.samples.empty() && count[site.kind]++ < kMostOfAKind) kept.insert(key);
    }
  }
  proto::CostSamples merged;
  for (const std::string& key : kept) {
    const Site& site = sites.at(key);
    proto::CostSamples::Site* to = merged.add_sites();
    to->set_key(key);
    to->set_kind(site.kind);
    for (const auto& [backend, sample] : site.samples) *to->add_samples() = *sample;
  }
  return merged;
}

}  // namespace inlay::collage
