#include "core/compiler/search_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_join.h"

namespace inlay::compiler {
namespace {

// What a report says at most about what was refused and what was only estimated.
constexpr size_t kMaxReported = 300;

}  // namespace

const collage::FunctionSpace* MainOf(const collage::SearchSpace& space) {
  for (const collage::FunctionSpace& function : space.functions) {
    if (function.is_main()) return &function;
  }
  return nullptr;
}

void DescribeCalls(const collage::DataflowGraph& graph, const std::vector<int>& positions,
                   proto::CandidateReport* report) {
  for (int position : positions) {
    if (!graph.needs_cover(position)) continue;
    report->add_ops(graph.binding(position).callee);
    if (!graph.binding(position).location.empty()) report->add_locations(graph.binding(position).location);
  }
}

bool IsChosen(const collage::Cover& cover, const backend::Backend* backend, const std::vector<int>& positions) {
  for (const collage::Group& group : cover.functions.at("main")) {
    if (group.backend == backend &&
        std::includes(group.positions.begin(), group.positions.end(), positions.begin(), positions.end())) {
      return true;
    }
  }
  return false;
}

void ReportRefusals(const collage::SearchSpace& space, proto::PlanRecord* record) {
  const collage::FunctionSpace* main = MainOf(space);
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const collage::Refusal& refusal : space.refusals) {
    if (seen.size() >= kMaxReported) return;
    if (!seen.emplace(refusal.backend, refusal.rule, refusal.reason).second) continue;
    proto::CandidateReport* report = record->add_candidates();
    report->set_backend(refusal.backend);
    report->set_rule(refusal.rule);
    DescribeCalls(*main->graph, {refusal.position}, report);
    report->set_excluded(refusal.reason);
  }
}

proto::PlanReport ReportPlan(const collage::Cover& cover) {
  proto::PlanReport report;
  report.set_name(cover.name);
  report.set_estimated_us(cover.estimated_us);
  for (const collage::Group& group : cover.functions.at("main")) {
    if (group.backend != nullptr) ++(*report.mutable_calls())[group.backend->name()];
  }
  return report;
}

void ReportCandidates(const collage::FunctionSpace& main, const collage::Cover& chosen, proto::PlanRecord* record) {
  std::map<std::tuple<std::string, std::string, std::string, double>, int> seen;
  for (const collage::Candidate& candidate : main.candidates) {
    proto::CandidateReport report;
    DescribeCalls(*main.graph, candidate.positions, &report);
    auto [found, is_new] = seen.emplace(
        std::make_tuple(candidate.backend->name(), candidate.rule, absl::StrJoin(report.ops(), " "), candidate.cost_us),
        record->candidates_size());
    if (is_new && seen.size() > kMaxReported) return;
    proto::CandidateReport* kept = is_new ? record->add_candidates() : record->mutable_candidates(found->second);
    if (is_new) {
      report.set_backend(candidate.backend->name());
      report.set_rule(candidate.rule);
      report.set_cost_us(candidate.cost_us);
      kept->Swap(&report);
    }
    kept->set_occurrences(kept->occurrences() + 1);
    if (IsChosen(chosen, candidate.backend, candidate.positions)) kept->set_chosen(true);
  }
}

}  // namespace inlay::compiler
