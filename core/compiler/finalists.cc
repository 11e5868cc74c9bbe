#include "core/compiler/finalists.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace inlay::compiler {
namespace {

// Each loads the plans anew: where their memory comes to lie makes copies of one executable differ by some percent, and
// more rounds of the same load would not show it.
constexpr int kMeasurements = 3;
// By less, gains were seen not to be there in the processes of a benchmark (mixes of ResNet-50 that had been ahead each
// time by 1.4% and 3.0% came out level with native code; those of MobileNetV2 with two threads behind it), and a plan
// with libraries needs these where it runs.
constexpr double kWorthIt = 0.03;
constexpr size_t kMostChallengers = 2;
// Nearer than this is a tie however little the runs of one load scatter (an LSTM of two threads: a plan with one
// library call won its search, and was 4% behind native code, ±2%, in a benchmark's processes).
constexpr double kLoadsDiffer = 0.05;
// Of four gains: the mean over their standard deviation, by Student's distribution with three degrees of freedom, 99%.
constexpr double kDeviations = 4.541 / 2;

bool Tied(const Finalist& a, const Finalist& b) {
  return std::abs(a.median_us - b.median_us) <=
         std::max(a.spread_us + b.spread_us, kLoadsDiffer * std::max(a.median_us, b.median_us));
}

std::string Describe(const Finalist& finalist) {
  return absl::StrFormat("'%s' (%.0f ±%.0f us)", finalist.name, finalist.median_us, finalist.spread_us);
}

std::string WhyPreferred(const Finalist& preferred, const std::vector<Finalist>& finalists,
                         const std::vector<int>& tied) {
  bool fewer = false, fewer_foreign = false;
  for (int i : tied) {
    fewer |= finalists[i].partitions > preferred.partitions;
    fewer_foreign |= finalists[i].foreign > preferred.foreign;
  }
  return fewer_foreign ? "less of libraries" : fewer ? "fewer partitions" : "the first listed";
}

}  // namespace

absl::StatusOr<FinalDecision> DecideFinal(const std::vector<Finalist>& finalists, const MeasureAgainFn& measure_again) {
  auto faster = [&](int a, int b) { return finalists[a].median_us < finalists[b].median_us; };
  int fastest = 0;
  for (int i = 1; i < static_cast<int>(finalists.size()); ++i) {
    if (faster(i, fastest)) fastest = i;
  }
  std::vector<int> tied;
  for (int i = 0; i < static_cast<int>(finalists.size()); ++i) {
    if (Tied(finalists[i], finalists[fastest])) tied.push_back(i);
  }
  if (tied.size() < 2) return FinalDecision{fastest, ""};
  const int preferred = *std::min_element(tied.begin(), tied.end(), [&](int a, int b) {
    return std::tuple(finalists[a].foreign, finalists[a].partitions, a) <
           std::tuple(finalists[b].foreign, finalists[b].partitions, b);
  });
  std::vector<std::string> others;
  for (int i : tied) {
    if (i != preferred) others.push_back(Describe(finalists[i]));
  }
  const std::string tie =
      absl::StrCat("a tie of ", Describe(finalists[preferred]), " with ", absl::StrJoin(others, ", "));
  const std::string why = WhyPreferred(finalists[preferred], finalists, tied);
  if (preferred == fastest) return FinalDecision{preferred, absl::StrCat(tie, ": ", why, ", and not behind")};

  // Who is ahead of it, and by what part of its time in each measurement.
  std::map<int, std::vector<double>> ahead;
  std::stable_sort(tied.begin(), tied.end(), faster);
  for (int i : tied) {
    const double gain = 1 - finalists[i].median_us / finalists[preferred].median_us;
    if (gain > kWorthIt && ahead.size() < kMostChallengers) ahead[i] = {gain};
  }
  if (ahead.empty()) return FinalDecision{preferred, absl::StrCat(tie, ": ", why, ", and nobody is ahead by 3%")};
  int rounds = 0, done = 0;
  for (; done < kMeasurements && !ahead.empty(); ++done) {
    std::vector<int> again = {preferred};
    for (const auto& [i, gains] : ahead) again.push_back(i);
    INLAY_ASSIGN_OR_RETURN(const auto timings, measure_again(again));
    if (timings.size() != again.size() || timings[0].code() != 0) break;
    for (size_t i = 0; i < again.size(); ++i) {
      rounds += timings[i].rounds();
      if (i == 0) continue;
      const double gain = timings[i].code() == 0 ? 1 - timings[i].median_us() / timings[0].median_us() : -1;
      ahead[again[i]].push_back(gain);
      if (gain <= 0) ahead.erase(again[i]);
    }
  }
  int winner = preferred;
  double best = kWorthIt;
  for (const auto& [i, gains] : ahead) {
    if (done < kMeasurements) continue;  // the time was over before they had shown it
    const double gain = std::accumulate(gains.begin(), gains.end(), 0.0) / gains.size();
    double squares = 0;
    for (double g : gains) squares += (g - gain) * (g - gain);
    const double deviation = std::sqrt(squares / (gains.size() - 1));
    if (gain > best && gain > kDeviations * deviation) winner = i, best = gain;
  }
  const std::string effort = done == 0 ? "no time was left to measure again"
                                       : absl::StrCat("measured ", done, " more times, ", rounds, " runs");
  if (winner == preferred) {
    return FinalDecision{winner, absl::StrCat(tie, "; ", effort, "; nobody was clearly ahead each time, so ", why)};
  }
  return FinalDecision{winner, absl::StrFormat("%s; %s; '%s' was ahead each time, by %.1f%%", tie, effort,
                                               finalists[winner].name, 100 * best)};
}

}  // namespace inlay::compiler
