#include "core/target/compilation_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/target/target_kinds.h"
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

absl::Status Disagree(absl::string_view a, absl::string_view b, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("config.", a, " and config.", b, " disagree: ", why));
}

absl::Status Unimplemented(absl::string_view field, absl::string_view value, absl::string_view instead) {
  return absl::UnimplementedError(absl::StrCat("config.", field, ": ", value, " is not there yet; use ", instead));
}

std::string Arch(const Target& target) {
  const std::string triple = target.attr("mtriple");
  return triple.substr(0, triple.find('-'));
}

absl::StatusOr<std::vector<Target>> TargetsFromProto(const proto::CompilationConfig& proto) {
  if (proto.targets_size() > 64) return absl::InvalidArgumentError("config.targets: more than 64");
  std::vector<Target> targets;
  for (int i = 0; i < proto.targets_size(); ++i) {
    const std::string field = absl::StrCat("targets[", i, "]");
    INLAY_ASSIGN_OR_RETURN(Target target, TargetFromProto(proto.targets(i), field));
    const bool device = FindTargetKind(target.kind) != nullptr;
    if (i == 0 && !device) {
      return absl::InvalidArgumentError(absl::StrCat("config.targets[0]: '", target.kind,
                                                     "' is no device; a device (llvm, c, cuda) comes first, codegen "
                                                     "targets after it"));
    }
    if (i > 0 && device) {
      return absl::InvalidArgumentError(absl::StrCat("config.", field, ": a second device ('", target.kind, "' after '",
                                                     targets[0].kind, "'); a configuration has one"));
    }
    const auto twin = std::find(targets.begin(), targets.end(), target);
    if (twin != targets.end()) {
      return Disagree(absl::StrCat("targets[", twin - targets.begin(), "]"), field,
                      "they are the same; two variants of a backend differ in their attributes");
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

// The host of a CPU is that CPU's machine; one that is given must say the same.
absl::Status CompleteHost(const proto::CompilationConfig& proto, CompilationConfig* config) {
  const Target& device = config->targets[0];
  config->target_host = device.kind == "cuda" ? CompilationConfig::Default().target_host : device;
  if (!proto.has_target_host()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(config->target_host, TargetFromProto(proto.target_host(), "target_host"));
  const Target& host = config->target_host;
  if (host.kind != "llvm" && host.kind != "c") {
    return absl::InvalidArgumentError(
        absl::StrCat("config.target_host: '", host.kind, "' can't be a host; use kind 'llvm' or 'c'"));
  }
  if (device.kind == "cuda") return absl::OkStatus();
  if (host.kind != device.kind) {
    return Disagree("target_host", "targets[0]",
                    absl::StrCat("kind '", host.kind, "' against '", device.kind, "'; a CPU target runs on its host"));
  }
  if (host.attr("mtriple") != device.attr("mtriple")) {
    return Disagree(
        "target_host", "targets[0]",
        absl::StrCat(host.attr("mtriple"), " against ", device.attr("mtriple"), "; a CPU target runs on its host"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Executor> ExecutorFromProto(const proto::Executor& proto) {
  Executor executor;
  switch (proto.kind()) {
    case proto::Executor::EXECUTOR_UNSPECIFIED:
    case proto::Executor::GRAPH:
      break;
    case proto::Executor::AOT:
      executor.kind = ExecutorKind::kAot;
      break;
    case proto::Executor::VM:
      executor.kind = ExecutorKind::kVm;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("config.executor: unknown kind ", proto.kind()));
  }
  switch (proto.interface_api()) {
    case proto::Executor::INTERFACE_UNSPECIFIED:
    case proto::Executor::PACKED:
      break;
    case proto::Executor::C:
      executor.interface_api = InterfaceApi::kC;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("config.executor.interface_api: unknown value ", proto.interface_api()));
  }
  executor.unpacked_api = proto.unpacked_api();
  const int alignment = proto.workspace_byte_alignment();
  if (alignment < 0 || alignment > 4096 || (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("config.executor.workspace_byte_alignment is ", alignment,
                                                   "; it must be a power of two up to 4096, or 0 (64)"));
  }
  if (alignment != 0) executor.workspace_byte_alignment = alignment;
  return executor;
}

absl::StatusOr<Runtime> RuntimeFromProto(const proto::Runtime& proto) {
  Runtime runtime;
  switch (proto.kind()) {
    case proto::Runtime::RUNTIME_UNSPECIFIED:
    case proto::Runtime::CPP:
      break;
    case proto::Runtime::CRT:
      runtime.kind = RuntimeKind::kCrt;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("config.runtime: unknown kind ", proto.kind()));
  }
  runtime.system_lib = proto.system_lib();
  return runtime;
}

// Fields that are each fine and together are not.
absl::Status CheckCombinations(const CompilationConfig& config) {
  const Executor& executor = config.executor;
  const bool aot = executor.kind == ExecutorKind::kAot, crt = config.runtime.kind == RuntimeKind::kCrt;
  const std::string& device = config.target().kind;
  if (!aot && executor.interface_api == InterfaceApi::kC) {
    return Disagree("executor.interface_api", "executor.kind", "the interface C is that of AOT");
  }
  if (!aot && executor.unpacked_api) {
    return Disagree("executor.unpacked_api", "executor.kind", "an unpacked API is one of AOT");
  }
  if (!crt && executor.unpacked_api) {
    return Disagree("executor.unpacked_api", "runtime.kind",
                    "CPP calls partitions with an array of pointers; CRT can do without");
  }
  if (!crt && executor.workspace_byte_alignment < 64) {
    return Disagree("executor.workspace_byte_alignment", "runtime.kind", "CPP aligns tensors to 64 bytes at least");
  }
  if (!crt && config.runtime.system_lib) {
    return Disagree("runtime.system_lib", "runtime.kind", "a system library is one of CRT; CPP has shared libraries");
  }
  if (crt && executor.kind == ExecutorKind::kVm) {
    return Disagree("executor.kind", "runtime.kind", "the VM needs a heap, and CRT has none; use AOT");
  }
  if (crt && executor.kind == ExecutorKind::kGraph) {
    return Disagree("executor.kind", "runtime.kind",
                    "GRAPH reads its plan at run time, which CRT has no parser for; use AOT");
  }
  if (crt && !config.link_params) {
    return Disagree("link_params", "runtime.kind", "CRT reads no files; parameters are linked");
  }
  if (crt && config.num_threads > 1) {
    return Disagree("num_threads", "runtime.kind", "CRT has no threads; use 0 or 1");
  }
  if (crt && config.search_mode == SearchMode::kMeasured) {
    return Disagree("search.mode", "runtime.kind", "a server can't measure what runs without a system; use ANALYTIC");
  }
  if (!crt && device == "c") {
    return Disagree("targets[0]", "runtime.kind",
                    "kind 'c' yields C sources, which CRT is made for; with CPP use kind 'llvm'");
  }
  if (crt && device == "cuda") return Disagree("targets[0]", "runtime.kind", "CRT drives no GPU; use CPP");
  return absl::OkStatus();
}

// What a configuration may ask for and this version does not do.
absl::Status CheckImplemented(const CompilationConfig& config) {
  const Target& device = config.target();
  const bool crt = config.runtime.kind == RuntimeKind::kCrt;
  if (device.kind == "cuda") return Unimplemented("targets[0]", "kind 'cuda'", "kind 'llvm'");
  if (crt && Arch(device) == "x86_64") {
    return Unimplemented("targets[0]", "kind 'llvm' for x86_64 with the runtime CRT", "kind 'c', or the runtime CPP");
  }
  if (crt) return absl::OkStatus();
  if (Arch(device) != "x86_64") {
    return Unimplemented("targets[0]", absl::StrCat(Arch(device), " with the runtime CPP"), "x86_64");
  }
  return absl::OkStatus();
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

CompilationConfig CompilationConfig::FromTarget(const Target& target) {
  CompilationConfig config = Default();
  config.target_host = target;
  config.targets = {target};
  return config;
}

absl::StatusOr<CompilationConfig> CompilationConfig::FromProto(const proto::CompilationConfig& proto) {
  CompilationConfig config = Default();
  INLAY_ASSIGN_OR_RETURN(std::vector<Target> targets, TargetsFromProto(proto));
  if (!targets.empty()) config.targets = std::move(targets);
  INLAY_RETURN_IF_ERROR(CompleteHost(proto, &config));
  INLAY_ASSIGN_OR_RETURN(config.executor, ExecutorFromProto(proto.executor()));
  INLAY_ASSIGN_OR_RETURN(config.runtime, RuntimeFromProto(proto.runtime()));
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
  constexpr int64_t kMaxDimHint = 1 << 24;
  for (const auto& [name, hint] : proto.search().dim_hints()) {
    if (hint < 1 || hint > kMaxDimHint) {
      return absl::InvalidArgumentError(
          absl::StrCat("config.search.dim_hints: ", name, " is ", hint, "; it must be 1 to ", kMaxDimHint));
    }
    config.dim_hints[name] = hint;
  }
  if (!config.dim_hints.empty() && config.executor.kind != ExecutorKind::kVm) {
    return absl::InvalidArgumentError(
        "config.search.dim_hints are for dimensions that are left open, which config.executor.kind has only as vm");
  }
  config.backends.assign(proto.search().backends().begin(), proto.search().backends().end());
  if (proto.passes().has_opt_level()) config.opt_level = proto.passes().opt_level();
  if (config.opt_level < 0 || config.opt_level > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.passes.opt_level is ", config.opt_level, "; it must be 0 to 3"));
  }
  config.disabled_passes.assign(proto.passes().disabled_passes().begin(), proto.passes().disabled_passes().end());
  config.mixed_precision = proto.passes().mixed_precision();
  if (!config.mixed_precision.empty() && config.mixed_precision != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("config.passes.mixed_precision is '", config.mixed_precision, "'; it must be 'bf16', or empty"));
  }
  config.num_threads = proto.num_threads();
  if (config.num_threads < 0 || config.num_threads > 4096) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.num_threads is ", config.num_threads, "; it must be 0 to 4096"));
  }
  INLAY_RETURN_IF_ERROR(CheckCombinations(config));
  INLAY_RETURN_IF_ERROR(CheckImplemented(config));
  return config;
}

proto::CompilationConfig CompilationConfig::ToProto() const {
  proto::CompilationConfig proto;
  *proto.mutable_target_host() = TargetToProto(target_host);
  for (const Target& target : targets) *proto.add_targets() = TargetToProto(target);
  switch (executor.kind) {
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
  proto.mutable_executor()->set_interface_api(executor.interface_api == InterfaceApi::kC ? proto::Executor::C
                                                                                         : proto::Executor::PACKED);
  proto.mutable_executor()->set_unpacked_api(executor.unpacked_api);
  proto.mutable_executor()->set_workspace_byte_alignment(executor.workspace_byte_alignment);
  proto.mutable_runtime()->set_kind(runtime.kind == RuntimeKind::kCpp ? proto::Runtime::CPP : proto::Runtime::CRT);
  proto.mutable_runtime()->set_system_lib(runtime.system_lib);
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
  for (const auto& [name, hint] : dim_hints) (*proto.mutable_search()->mutable_dim_hints())[name] = hint;
  proto.mutable_passes()->set_opt_level(opt_level);
  for (const std::string& pass : disabled_passes) proto.mutable_passes()->add_disabled_passes(pass);
  proto.mutable_passes()->set_mixed_precision(mixed_precision);
  proto.set_num_threads(num_threads);
  return proto;
}

Target CompilationConfig::CodegenTarget(const std::string& variant) const {
  Target none;
  none.kind = BackendOfVariant(variant);
  int count = 0;
  for (size_t i = 1; i < targets.size(); ++i) {
    if (targets[i].kind == none.kind && VariantName(none.kind, ++count) == variant) return targets[i];
  }
  return none;
}

int CompilationConfig::NumVariants(const std::string& backend) const {
  const auto count =
      std::count_if(targets.begin() + 1, targets.end(), [&](const Target& target) { return target.kind == backend; });
  return std::max<int>(1, static_cast<int>(count));
}

std::string VariantName(const std::string& backend, int variant) {
  return variant == 1 ? backend : absl::StrCat(backend, "#", variant);
}

std::string BackendOfVariant(const std::string& name) { return name.substr(0, name.find('#')); }

}  // namespace inlay::target
