#include "client/cpp/src/report.h"

#include <google/protobuf/util/json_util.h>

namespace inlay {

Report ReportOf(const proto::CompileReport& proto) {
  Report report;
  report.server_ms = proto.server_ms();
  report.actions_run = proto.actions_run();
  report.cache_hits = proto.cache_hits();
  report.shared_flight = proto.shared_flight();
  report.phase_ms = {proto.phase_ms().begin(), proto.phase_ms().end()};
  report.plan_source = proto.plan_source();
  for (const proto::PartitionReport& p : proto.partitions()) {
    Report::Partition& part = report.partitions.emplace_back();
    part.name = p.name();
    part.backend = p.backend();
    part.ops = {p.ops().begin(), p.ops().end()};
    part.cache_hit = p.cache_hit();
    part.why = p.why();
    part.miss_reason = p.miss_reason();
    part.compile_ms = p.compile_ms();
    part.cost_us = p.cost_us();
    part.call_sites = p.call_sites();
    part.action = p.action_digest();
    part.codegen_target = p.codegen_target();
    part.locations = {p.locations().begin(), p.locations().end()};
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  (void)google::protobuf::util::MessageToJsonString(proto, &report.json, options);
  return report;
}

}  // namespace inlay
