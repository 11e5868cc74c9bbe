#include "core/compiler/cost_samples.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/proto_bytes.h"
#include "core/collage/operator_kind.h"
#include "core/collage/outline.h"
#include "core/collage/pricing.h"
#include "core/collage/scale_fit.h"
#include "core/compiler/cost_rows.h"

namespace inlay::compiler {
namespace {

constexpr size_t kKeyBytes = 8;
// Of a measured time, however much its borders were expected to take.
constexpr double kLeastPart = 0.2;

}  // namespace

Digest SamplesKey(const target::CompilationConfig& config, const std::string& device) {
  return Hasher()
      .UpdateField("inlay cost samples/2")
      .UpdateField(device)
      .UpdateField(absl::StrCat(config.num_threads))
      .UpdateField(config.target().ToString())
      .Finish();
}

proto::CostSamples KnownSamples(const Digest& key, cache::KeyValueTable* costs) {
  return FindRow<proto::CostSamples>(key, costs).value_or(proto::CostSamples());
}

void KeepSamples(const Digest& key, cache::KeyValueTable* costs, const proto::CostSamples& more) {
  if (more.sites().empty()) return;
  const proto::CostSamples merged = collage::MergeSamples(KnownSamples(key, costs), more);
  costs->Put(key, DeterministicBytes(merged)).IgnoreError();  // a cache: else another time
}

double EstimateOf(const Site& site, const Alternative& alternative, const collage::CostEstimator& estimator) {
  const collage::DataflowGraph graph(site.module.functions.at("main"));
  const std::vector<collage::Group>& groups = alternative.cover.functions.at("main");
  double micros = collage::BorderMicros(graph, groups, collage::Borders::kAgreed, estimator);
  for (const collage::Group& group : groups) {
    if (group.backend != nullptr) micros += estimator.EstimateMicros(graph, {group.positions, group.backend, "", 0});
  }
  return micros;
}

void AddSample(const Site& site, const Alternative& alternative, const collage::CostModel& transitions,
               const std::string& version, double measured_us, proto::CostSamples::Site* samples) {
  const std::vector<collage::Group>& groups = alternative.cover.functions.at("main");
  if (groups.size() != 1 || measured_us <= 0) return;
  const target::CompilationConfig& config = site.module.config();
  const collage::DataflowGraph graph(site.module.functions.at("main"));
  const ir::Function partition = collage::Outline(graph, groups[0].positions).function;
  const double estimate = alternative.backend->EstimateMicros(partition, config.target());
  if (estimate <= 0) return;
  const auto estimator = collage::AnalyticEstimator(config, &transitions);
  const double around = EstimateOf(site, alternative, *estimator) - estimate;
  const double rest = std::max(measured_us - around, kLeastPart * measured_us);
  const std::string& name = alternative.backend->name();
  const Digest built_as = Hasher().UpdateField(version).UpdateField(config.CodegenTarget(name).ToString()).Finish();
  samples->set_key(std::string(site.structure.bytes().substr(0, kKeyBytes)));
  samples->set_kind(collage::OperatorKind(partition));
  proto::CostSamples::Sample* sample = samples->add_samples();
  sample->set_backend(name);
  sample->set_version(std::string(built_as.bytes().substr(0, kKeyBytes)));
  sample->set_ratio(rest / estimate);
  sample->set_fallback(alternative.backend->is_fallback());
}

}  // namespace inlay::compiler
