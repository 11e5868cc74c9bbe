// Target and CompilationConfig: what a compile is for, in one object. proto/config.proto is the catalogue of options.
//
// Plain values. A text that can't be read, or an option that there is not, is kept and reported by what uses the value
// (Build, CheckConfig, Check): so that Target("cuda") reads like in Python. Combinations are checked by the server, in
// one place, before a weight is sent.
#ifndef INLAY_CONFIG_H_
#define INLAY_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay {

// A kind (a device: "llvm", "c", "cuda"; or a backend's name) and its attributes, as text.
//
// "llvm -mcpu=znver4 -num-cores=2" or {"kind": "llvm", "mcpu": "znver4"} as JSON. -mcpu=native is this machine,
// resolved by the client.
class Target {
 public:
  Target(absl::string_view text);                                       // NOLINT: text or JSON
  Target(const char* text) : Target(absl::string_view(text)) {}         // NOLINT
  Target(const std::string& text) : Target(absl::string_view(text)) {}  // NOLINT
  Target(absl::string_view kind, std::map<std::string, std::string> attrs);

  // INVALID_ARGUMENT names the word that can't be read, or the attribute that the kind does not have and those it has.
  const absl::Status& status() const { return status_; }
  const std::string& kind() const { return kind_; }
  const std::map<std::string, std::string>& attrs() const { return attrs_; }
  std::string attr(const std::string& name) const;  // "" where it is not given

  // Both read back to an equal Target.
  std::string ToString() const;
  std::string ToJson() const;
  bool is_native() const { return attr("mcpu") == "native"; }

  // Of the innermost TargetScope of this thread.
  static std::optional<Target> Current();

  bool operator==(const Target& other) const { return kind_ == other.kind_ && attrs_ == other.attrs_; }
  bool operator!=(const Target& other) const { return !(*this == other); }

 private:
  absl::Status status_;
  std::string kind_;
  std::map<std::string, std::string> attrs_;
};

// While it lives, Build without a target takes this one, in this thread. Scopes nest.
class TargetScope {
 public:
  explicit TargetScope(Target target);
  ~TargetScope();
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;
};

// The value of an option, as text; a bool is "0" or "1".
struct OptionValue {
  std::string text;
  OptionValue(const char* value) : text(value) {}             // NOLINT
  OptionValue(std::string value) : text(std::move(value)) {}  // NOLINT
  OptionValue(bool value) : text(value ? "1" : "0") {}        // NOLINT
  OptionValue(int value) : text(std::to_string(value)) {}     // NOLINT
};

// What calls the compiled partitions, "graph", "aot" or "vm": Executor("aot", {{"interface-api", "c"}}).
struct Executor {
  std::string kind = "graph";
  std::map<std::string, std::string> options;  // those that were given

  Executor() = default;
  Executor(const char* kind, std::map<std::string, OptionValue> options = {});  // NOLINT
  bool operator==(const Executor& other) const { return kind == other.kind && options == other.options; }
};

// What compiled code is linked with, "cpp" or "crt": Runtime("crt", {{"system-lib", true}}).
struct Runtime {
  std::string kind = "cpp";
  std::map<std::string, std::string> options;

  Runtime() = default;
  Runtime(const char* kind, std::map<std::string, OptionValue> options = {});  // NOLINT
  bool operator==(const Runtime& other) const { return kind == other.kind && options == other.options; }
};

struct CompilationConfig {
  // The device first, then codegen targets of backends; two of one kind are variants, which compete. Empty: what Build
  // says.
  std::vector<Target> targets;
  std::optional<Target> target_host;  // of the code around the partitions; absent: the first target
  Executor executor;
  Runtime runtime;
  bool link_params = true;                   // parameters inside the exported library, else beside it as safetensors
  std::string search;                        // "none", "analytic", "measured"; "": analytic
  double search_budget_s = 0;                // measured: seconds of measuring; 0: the server's default
  std::map<std::string, int64_t> dim_hints;  // executor vm: what estimates take an open dimension for; others: 64
  bool replan = false;                       // search again though a plan is known
  std::string pinned;                        // Executable::cover of an earlier compile: repeated without a search
  std::vector<std::string> backends;         // that may be used; empty: all
  std::optional<int> opt_level;              // 0 to 3; absent: 3
  std::vector<std::string> disabled_passes;
  std::string mixed_precision;  // "bf16": products of f32 (but small ones) are computed of that; "": as the model says
  int num_threads = 0;          // 0: the cores of the machine that runs it

  // The rest by default.
  static CompilationConfig FromTarget(Target target, std::optional<Target> target_host = std::nullopt);
  // As the wire has it, a serialised inlay.proto.CompilationConfig. INVALID_ARGUMENT.
  static absl::StatusOr<CompilationConfig> FromBytes(absl::string_view bytes);
  absl::StatusOr<std::string> ToBytes() const;

  // What can be said without a server: a target's text, options of executor and runtime. INVALID_ARGUMENT.
  absl::Status Check() const { return ToBytes().status(); }
  bool ShouldLinkParams() const { return link_params; }

  bool operator==(const CompilationConfig& other) const;
};

// Creators.
namespace config {

CompilationConfig Cpu(absl::string_view mcpu = "native");
// Another machine's CPU: Cross("aarch64-linux-gnu"). Other architectures than the server's come as sources and objects
// to link there (executor aot, runtime crt).
CompilationConfig Cross(absl::string_view triple, absl::string_view mcpu = "");
// This version's server has no backend for it, and says so.
CompilationConfig Cuda(absl::string_view arch = "sm_90");
// A microcontroller: C sources, no heap, no system. `model`: a board ("nrf52840"), or "unknown". INVALID_ARGUMENT says
// which there are. `options`: further attributes of the target.
absl::StatusOr<CompilationConfig> Micro(absl::string_view model = "unknown",
                                        const std::map<std::string, std::string>& options = {},
                                        Executor executor = "aot");

}  // namespace config
}  // namespace inlay

#endif  // INLAY_CONFIG_H_
