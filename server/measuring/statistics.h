// Times of one subject, over the rounds.
#ifndef INLAY_SERVER_MEASURING_STATISTICS_H_
#define INLAY_SERVER_MEASURING_STATISTICS_H_

#include <algorithm>
#include <vector>

namespace inlay::server {

struct TimeStatistics {
  double min = 0, median = 0, spread = 0;  // spread: half of p10..p90
};

// `samples` is not empty. Quantiles between two samples are interpolated.
inline TimeStatistics Summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  auto quantile = [&](double q) {
    const double at = q * static_cast<double>(samples.size() - 1);
    const size_t below = static_cast<size_t>(at), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (samples[above] - samples[below]) * (at - static_cast<double>(below));
  };
  return {samples.front(), quantile(0.5), (quantile(0.9) - quantile(0.1)) / 2};
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_STATISTICS_H_
