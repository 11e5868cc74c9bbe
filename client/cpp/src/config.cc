#include "inlay/config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cpp/src/wire.h"
#include "core/target/target.h"

namespace inlay {
namespace {

thread_local std::vector<Target> target_scopes;

std::map<std::string, std::string> Texts(const std::map<std::string, OptionValue>& options) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : options) texts[name] = value.text;
  return texts;
}

target::Target CoreTarget(const Target& target) {
  target::Target core;
  core.kind = target.kind();
  core.attrs = target.attrs();
  return core;
}

}  // namespace

Target::Target(absl::string_view text) {
  absl::StatusOr<target::Target> parsed = target::Target::Parse(text);
  if (!parsed.ok()) {
    status_ = parsed.status();
    kind_ = std::string(text);
    return;
  }
  kind_ = parsed->kind;
  attrs_ = parsed->attrs;
}

Target::Target(absl::string_view kind, std::map<std::string, std::string> attrs)
    : kind_(kind), attrs_(std::move(attrs)) {
  status_ = target::Target::Parse(ToString()).status();
}

std::string Target::attr(const std::string& name) const {
  const auto it = attrs_.find(name);
  return it == attrs_.end() ? "" : it->second;
}

std::string Target::ToString() const { return status_.ok() ? CoreTarget(*this).ToString() : kind_; }
std::string Target::ToJson() const { return CoreTarget(*this).ToJson(); }

std::optional<Target> Target::Current() {
  if (target_scopes.empty()) return std::nullopt;
  return target_scopes.back();
}

TargetScope::TargetScope(Target target) { target_scopes.push_back(std::move(target)); }
TargetScope::~TargetScope() { target_scopes.pop_back(); }

Executor::Executor(const char* kind, std::map<std::string, OptionValue> options)
    : kind(kind), options(Texts(options)) {}

Runtime::Runtime(const char* kind, std::map<std::string, OptionValue> options) : kind(kind), options(Texts(options)) {}

CompilationConfig CompilationConfig::FromTarget(Target target, std::optional<Target> target_host) {
  CompilationConfig config;
  config.targets.push_back(std::move(target));
  config.target_host = std::move(target_host);
  return config;
}

absl::StatusOr<CompilationConfig> CompilationConfig::FromBytes(absl::string_view bytes) {
  proto::CompilationConfig proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the bytes are no CompilationConfig");
  }
  return FromProto(proto);
}

absl::StatusOr<std::string> CompilationConfig::ToBytes() const {
  absl::StatusOr<proto::CompilationConfig> proto = ToProto(*this);
  if (!proto.ok()) return proto.status();
  return proto->SerializeAsString();
}

bool CompilationConfig::operator==(const CompilationConfig& o) const {
  return targets == o.targets && target_host == o.target_host && executor == o.executor && runtime == o.runtime &&
         link_params == o.link_params && search == o.search && search_budget_s == o.search_budget_s &&
         dim_hints == o.dim_hints && replan == o.replan && pinned == o.pinned && backends == o.backends &&
         opt_level == o.opt_level && disabled_passes == o.disabled_passes && mixed_precision == o.mixed_precision &&
         num_threads == o.num_threads;
}

namespace config {
namespace {

// Boards by their usual names, and what their compiler calls the CPU; the Python package has the same
// (client/python/inlay/config.py).
constexpr std::pair<const char*, const char*> kMicroModels[] = {
    {"unknown", ""},
    {"host", ""},
    {"mps2_an385", "cortex-m3"},
    {"mps2_an386", "cortex-m4"},
    {"mps2_an500", "cortex-m7"},
    {"mps2_an521", "cortex-m33"},
    {"mps3_an547", "cortex-m55"},
    {"nrf52840", "cortex-m4"},
    {"nrf5340dk", "cortex-m33"},
    {"rp2040", "cortex-m0plus"},
    {"stm32f4xx", "cortex-m4"},
    {"stm32f746xx", "cortex-m7"},
    {"stm32h7xx", "cortex-m7"},
    {"stm32l4r5zi", "cortex-m4"},
    {"zynq_mp_r5", "cortex-r5"},
};

}  // namespace

CompilationConfig Cpu(absl::string_view mcpu) {
  return CompilationConfig::FromTarget(Target("llvm", {{"mcpu", std::string(mcpu)}}));
}

CompilationConfig Cross(absl::string_view triple, absl::string_view mcpu) {
  std::map<std::string, std::string> attrs = {{"mtriple", std::string(triple)}};
  if (!mcpu.empty()) attrs["mcpu"] = std::string(mcpu);
  CompilationConfig config = CompilationConfig::FromTarget(Target("llvm", std::move(attrs)));
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(triple, absl::MaxSplits('-', 1));
  if (parts.first != "x86_64" && parts.first != "amd64") {
    config.executor = "aot";
    config.runtime = "crt";
  }
  return config;
}

CompilationConfig Cuda(absl::string_view arch) {
  return CompilationConfig::FromTarget(Target("cuda", {{"arch", std::string(arch)}}));
}

absl::StatusOr<CompilationConfig> Micro(absl::string_view model, const std::map<std::string, std::string>& options,
                                        Executor executor) {
  std::map<std::string, std::string> attrs = options;
  bool known = false;
  for (const auto& [name, mcpu] : kMicroModels) {
    if (name != model) continue;
    known = true;
    if (*mcpu != '\0') attrs.emplace("mcpu", mcpu);
  }
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro model '", model, "' is not known; there are ",
                     absl::StrJoin(kMicroModels, ", ", [](std::string* out, const auto& m) { *out += m.first; })));
  }
  attrs.emplace("model", std::string(model));
  CompilationConfig config = CompilationConfig::FromTarget(Target("c", std::move(attrs)));
  const auto api = executor.options.find("interface-api");
  const bool by_name = api == executor.options.end() || api->second != "c";  // the entry is in the system library then
  config.runtime = Runtime("crt", {{"system-lib", by_name}});
  config.executor = std::move(executor);
  return config;
}

}  // namespace config
}  // namespace inlay
