#include "core/target/compilation_config.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "proto/config.pb.h"

namespace inlay::target {
namespace {

absl::StatusOr<Target> TargetFromProto(const proto::Target& proto, absl::string_view field) {
  Target target;
  if (!proto.kind().empty()) target.kind = proto.kind();
  target.attrs.insert(proto.attrs().begin(), proto.attrs().end());
  return Annotate(target.Completed(), absl::StrCat("config.", field));
}

proto::Target TargetToProto(const Target& target) {
  proto::Target proto;
  proto.set_kind(target.kind);
  proto.mutable_attrs()->insert(target.attrs.begin(), target.attrs.end());
  return proto;
}

template <typename Map>
absl::Status CheckNoOptions(const Map& options, absl::string_view field) {
  if (options.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("config.", field, ": unknown option '", options.begin()->first, "'; there are none yet"));
}

absl::Status Unimplemented(absl::string_view field, absl::string_view value, absl::string_view instead) {
  return absl::UnimplementedError(absl::StrCat("config.", field, ": ", value, " is not there yet; use ", instead));
}

}  // namespace

CompilationConfig CompilationConfig::Default() {
  static const auto* config = [] {
    auto* c = new CompilationConfig;
    c->target_host = *Target().Completed();
    c->targets = {c->target_host};
    return c;
  }();
  return *config;
}

absl::StatusOr<CompilationConfig> CompilationConfig::FromProto(const proto::CompilationConfig& proto) {
  CompilationConfig config = Default();
  if (proto.targets_size() > 64) return absl::InvalidArgumentError("config.targets: more than 64");
  if (proto.targets_size() > 0) config.targets.clear();
  std::set<std::string> kinds;
  for (int i = 0; i < proto.targets_size(); ++i) {
    const std::string field = absl::StrCat("targets[", i, "]");
    INLAY_ASSIGN_OR_RETURN(Target target, TargetFromProto(proto.targets(i), field));
    if (!kinds.insert(target.kind).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("config.", field, ": a second target of kind '", target.kind, "'"));
    }
    config.targets.push_back(std::move(target));
  }
  if (config.targets[0].kind != "llvm") {
    return Unimplemented("targets[0]", absl::StrCat("the device target '", config.targets[0].kind, "'"),
                         "kind 'llvm', and name external codegen targets after it");
  }
  config.target_host = config.targets[0];
  if (proto.has_target_host()) {
    INLAY_ASSIGN_OR_RETURN(config.target_host, TargetFromProto(proto.target_host(), "target_host"));
    if (config.target_host.kind != "llvm") {
      return absl::InvalidArgumentError(
          absl::StrCat("config.target_host: '", config.target_host.kind, "' can't be a host; use kind 'llvm'"));
    }
    if (config.target_host.attr("mtriple") != config.targets[0].attr("mtriple")) {
      return absl::InvalidArgumentError(
          absl::StrCat("config.target_host and config.targets[0] disagree: ", config.target_host.attr("mtriple"),
                       " against ", config.targets[0].attr("mtriple"), "; a CPU target runs on its host"));
    }
  }
  switch (proto.executor().kind()) {
    case proto::Executor::EXECUTOR_UNSPECIFIED:
    case proto::Executor::GRAPH:
      break;
    case proto::Executor::AOT:
      return Unimplemented("executor", "AOT", "GRAPH");
    case proto::Executor::VM:
      return Unimplemented("executor", "VM", "GRAPH");
    default:
      return absl::InvalidArgumentError(absl::StrCat("config.executor: unknown kind ", proto.executor().kind()));
  }
  INLAY_RETURN_IF_ERROR(CheckNoOptions(proto.executor().options(), "executor.options"));
  switch (proto.runtime().kind()) {
    case proto::Runtime::RUNTIME_UNSPECIFIED:
    case proto::Runtime::CPP:
      break;
    case proto::Runtime::CRT:
      return Unimplemented("runtime", "CRT", "CPP");
    default:
      return absl::InvalidArgumentError(absl::StrCat("config.runtime: unknown kind ", proto.runtime().kind()));
  }
  INLAY_RETURN_IF_ERROR(CheckNoOptions(proto.runtime().options(), "runtime.options"));
  if (proto.has_link_params()) config.link_params = proto.link_params();
  switch (proto.search().mode()) {
    case proto::SearchOptions::SEARCH_UNSPECIFIED:
    case proto::SearchOptions::ANALYTIC:
      config.search_mode = SearchMode::kAnalytic;
      break;
    case proto::SearchOptions::NONE:
      config.search_mode = SearchMode::kNone;
      break;
    case proto::SearchOptions::MEASURED:
      config.search_mode = SearchMode::kMeasured;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("config.search.mode: unknown mode ", proto.search().mode()));
  }
  if (!(proto.search().budget_s() >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.search.budget_s is ", proto.search().budget_s(), "; it must be 0 (the default) or more"));
  }
  config.backends.assign(proto.search().backends().begin(), proto.search().backends().end());
  if (proto.passes().has_opt_level()) config.opt_level = proto.passes().opt_level();
  if (config.opt_level < 0 || config.opt_level > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.passes.opt_level is ", config.opt_level, "; it must be 0 to 3"));
  }
  config.disabled_passes.assign(proto.passes().disabled_passes().begin(), proto.passes().disabled_passes().end());
  config.num_threads = proto.num_threads();
  if (config.num_threads < 0 || config.num_threads > 4096) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.num_threads is ", config.num_threads, "; it must be 0 to 4096"));
  }
  return config;
}

proto::CompilationConfig CompilationConfig::ToProto() const {
  proto::CompilationConfig proto;
  *proto.mutable_target_host() = TargetToProto(target_host);
  for (const Target& target : targets) *proto.add_targets() = TargetToProto(target);
  switch (executor) {
    case ExecutorKind::kGraph:
      proto.mutable_executor()->set_kind(proto::Executor::GRAPH);
      break;
    case ExecutorKind::kAot:
      proto.mutable_executor()->set_kind(proto::Executor::AOT);
      break;
    case ExecutorKind::kVm:
      proto.mutable_executor()->set_kind(proto::Executor::VM);
      break;
  }
  proto.mutable_runtime()->set_kind(runtime == RuntimeKind::kCpp ? proto::Runtime::CPP : proto::Runtime::CRT);
  proto.set_link_params(link_params);
  switch (search_mode) {
    case SearchMode::kNone:
      proto.mutable_search()->set_mode(proto::SearchOptions::NONE);
      break;
    case SearchMode::kAnalytic:
      proto.mutable_search()->set_mode(proto::SearchOptions::ANALYTIC);
      break;
    case SearchMode::kMeasured:
      proto.mutable_search()->set_mode(proto::SearchOptions::MEASURED);
      break;
  }
  for (const std::string& backend : backends) proto.mutable_search()->add_backends(backend);
  proto.mutable_passes()->set_opt_level(opt_level);
  for (const std::string& pass : disabled_passes) proto.mutable_passes()->add_disabled_passes(pass);
  proto.set_num_threads(num_threads);
  return proto;
}

Target CompilationConfig::CodegenTarget(const std::string& backend) const {
  for (size_t i = 1; i < targets.size(); ++i) {
    if (targets[i].kind == backend) return targets[i];
  }
  Target none;
  none.kind = backend;
  return none;
}

}  // namespace inlay::target
