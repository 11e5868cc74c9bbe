#include "core/compiler/measured_covers.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/collage/merge.h"
#include "core/collage/pricing.h"
#include "core/collage/search.h"

namespace inlay::compiler {
namespace {

using collage::Candidate;
using collage::Group;

// An estimate beside measured costs is trusted less, so that it wins only where nothing was measured.
constexpr double kEstimateFactor = 2;

class MeasuredCovers {
 public:
  explicit MeasuredCovers(const MeasuredModel& model) : model_(model), graph_(*model.main.graph) {}

  absl::StatusOr<std::vector<collage::Cover>> Run(const collage::Cover& base) const {
    std::vector<collage::Cover> covers;
    const std::vector<Candidate> measured = Measured();
    if (measured.empty()) return covers;
    INLAY_ASSIGN_OR_RETURN(const std::vector<Candidate> cheapest, Cheapest(measured));
    covers.push_back(CoverOf(base, "cheapest as measured", cheapest, /*merge_regions=*/false));
    covers.push_back(CoverOf(base, "cheapest as measured, regions merged", cheapest, /*merge_regions=*/true));
    return covers;
  }

 private:
  // A candidate for each occurrence of each alternative that has a time.
  std::vector<Candidate> Measured() const {
    std::vector<Candidate> candidates;
    for (const Site& site : model_.sites) {
      for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
        const double us = Micros(site, i);
        if (us < 0) continue;
        for (const Occurrence& occurrence : site.occurrences) {
          candidates.push_back({occurrence.positions, site.alternatives[i].backend, site.alternatives[i].rule, us});
        }
      }
    }
    return candidates;
  }

  // What a tie with the fallback takes is what the fallback takes; negative: no time.
  double Micros(const Site& site, int alternative) const {
    const SiteCosts::Timing* timing = model_.costs.Find(site, alternative);
    if (timing == nullptr || timing->code() != 0) return -1;
    return model_.costs.TiedWithFallback(site, *timing) ? model_.costs.Find(site, 0)->min_us() : timing->min_us();
  }

  absl::StatusOr<std::vector<Candidate>> Cheapest(std::vector<Candidate> candidates) const {
    for (const Candidate& candidate : model_.main.candidates) {
      if (!candidate.backend->is_fallback()) continue;
      candidates.push_back(candidate);
      candidates.back().cost_us *= kEstimateFactor;
    }
    return collage::CheapestCover(graph_, std::move(candidates));
  }

  // As groups, with a group without a backend for each binding that is in none.
  std::vector<Group> Alone(const std::vector<Candidate>& parts) const {
    std::vector<Group> groups;
    std::vector<bool> in_part(graph_.size());
    for (const Candidate& part : parts) {
      groups.push_back({part.positions, part.backend, {}, part.cost_us});
      for (int position : part.positions) in_part[position] = true;
    }
    for (int i = 0; i < graph_.size(); ++i) {
      if (!in_part[i]) groups.push_back({{i}, nullptr, {}, 0});
    }
    return groups;
  }

  collage::Cover CoverOf(const collage::Cover& base, std::string name, const std::vector<Candidate>& chosen,
                         bool merge_regions) const {
    std::vector<Candidate> parts;
    double sum = 0;
    for (const Candidate& candidate : chosen) {
      const Site* site = SiteAt(model_.site_at, candidate.positions);
      sum += candidate.cost_us;
      if (!candidate.backend->is_fallback() || site == nullptr) {
        parts.push_back(candidate);
        continue;
      }
      // The fallback may cut its site into several partitions; those it fuses with its neighbours, where it can.
      const auto& groups = site->alternatives[0].cover.functions.at("main");
      for (const Group& group : groups) {
        Candidate part = candidate;
        part.positions.clear();
        for (int position : group.positions) part.positions.push_back(candidate.positions[position]);
        part.cost_us /= groups.size();
        parts.push_back(std::move(part));
      }
    }
    collage::Cover cover = base;
    cover.name = std::move(name);
    cover.functions[model_.main.name] = collage::MergeCover(graph_, parts, merge_regions);
    cover.estimated_us = sum - MergedMicros(parts, cover.functions[model_.main.name]);
    return cover;
  }

  // What is in the times of the parts alone, and not in that of the groups that they are merged to: borders between
  // them, and calls.
  double MergedMicros(const std::vector<Candidate>& parts, const std::vector<Group>& merged) const {
    const std::vector<Group> alone = Alone(parts);
    double saved = collage::BorderMicros(graph_, alone, collage::Borders::kRowMajor, model_.transitions) -
                   collage::BorderMicros(graph_, merged, collage::Borders::kAgreed, model_.transitions);
    for (const Group& group : alone) {
      if (group.backend != nullptr) saved += model_.transitions.CallMicros(*group.backend);
    }
    for (const Group& group : merged) {
      if (group.backend != nullptr) saved -= model_.transitions.CallMicros(*group.backend);
    }
    return saved;
  }

  const MeasuredModel& model_;
  const collage::DataflowGraph& graph_;
};

}  // namespace

absl::StatusOr<std::vector<collage::Cover>> CheapestAsMeasured(const MeasuredModel& model, const collage::Cover& base) {
  return MeasuredCovers(model).Run(base);
}

}  // namespace inlay::compiler
