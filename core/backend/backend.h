// Backend and BackendCodegen: what claims parts of a model, and what turns them into StaticLibraries. The only thing
// that the rest of inlay knows about oneDNN, cuBLAS, ...
//
// Two halves, because the daemon must stay light: a Backend (rules, estimates) is linked into daemon and worker and
// sees no MLIR, no LLVM, no library; its BackendCodegen is linked into the worker alone.
//
// To add one: clone core/backends/null, derive both, declare INLAY_REGISTER_BACKEND and INLAY_REGISTER_CODEGEN at file
// scope, give the libraries alwayslink = 1 and name them in the lists of core/backends/BUILD.bazel; run the conformance
// suite (core/backend/testing) on it.
//
// Threads: every method is const and may be called from several threads.
#ifndef INLAY_CORE_BACKEND_BACKEND_H_
#define INLAY_CORE_BACKEND_BACKEND_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"
#include "core/ir/pattern.h"
#include "core/target/target.h"
#include "core/target/target_kinds.h"
#include "proto/artifact.pb.h"

namespace inlay::backend {

// Claims sub-graphs. The partitioner matches `pattern` at every binding, then asks `check`.
struct PatternRule {
  std::string name;        // "onednn.conv_bias_add_relu": kept for explanations
  ir::PatternPtr pattern;  // rooted at the binding whose value leaves the sub-graph
  // Whether this very match can be compiled (dtypes, shapes, attributes); the text of a refusal is kept for
  // explanations.
  std::function<absl::Status(const ir::PatternMatch&, const target::Target&)> check;
  int priority = 0;  // among this backend's rules: higher first (bigger patterns)
  // The configuration asks for just this (a user's own kernel): what it matches goes to nobody else, at any cost.
  bool intended = false;
};

// An element x of a result is right where |x - r| <= rtol * |r| + atol * rms, with r the fallback's and rms the root
// mean square of its output. The defaults: sums of f32 in another order, a Winograd transform.
struct Tolerance {
  double rtol = 1e-3, atol = 1e-3;
};

struct CodegenRequest {
  // A partition a function, whole IRModule at a time, so that they can share code. A function's name is the symbol that
  // the manifest must implement. Parameters with a true attribute "constant_params"[i] are constant after load.
  const ir::IRModule& module;
  target::Target target;          // completed
  target::Target codegen_target;  // this backend's own attributes
  std::string scratch_dir;        // private, removed afterwards
  std::string entry_plan;         // not empty: the module is, and this plan's compiled entry is wanted (backends/aot)
};

// Indices of a partition function's parameters and results, ascending.
struct ChannelsLast {
  std::vector<int64_t> params, results;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  // The attributes of its codegen target, each of which changes the code (and so the key): how it is configured, and
  // the only way. Servers list them.
  virtual const std::vector<target::AttrSpec>& attrs() const;
  // Whether it can serve a target at all (kind, architecture, features), and CheckAttrs.
  virtual absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const = 0;
  // INVALID_ARGUMENT: an attribute that is not one of attrs(), naming those, or a value that is not of its type.
  absl::Status CheckAttrs(const target::Target& codegen_target) const;
  virtual const std::vector<PatternRule>& rules() const = 0;
  // Rules that come from the codegen target's attributes, in addition to rules(). Both targets have been checked.
  virtual std::vector<PatternRule> ConfiguredRules(const target::Target& target,
                                                   const target::Target& codegen_target) const {
    return {};
  }
  // Whether adjacent matches may be merged into one partition, within which it chooses the layouts.
  virtual bool merges_regions() const { return false; }
  // Whether neighbouring partitions are fused by the kinds of their operators (ir::OpPattern): for a code generator.
  virtual bool fuses_by_kind() const { return false; }
  // Whether it takes any operator, so that others are preferred where nothing is known about costs.
  virtual bool is_fallback() const { return false; }
  // Whether its rules are asked about calls whose shapes a run alone knows (executor vm): their checks see symbols
  // then.
  virtual bool takes_open_shapes() const { return is_fallback(); }
  // Whether it is used for a device target only where a configuration names it: among the backends it may use, or by a
  // codegen target (then for the latter's ConfiguredRules alone).
  virtual bool is_hidden(const target::Target& device) const { return false; }
  // How far a contraction's results may be off where its codegen target is this one: what a measured search excludes it
  // by. Of n contractions one after the other, sqrt(n) times as far.
  virtual Tolerance tolerance(const target::Target& codegen_target) const { return {}; }
  // Which non-constant parameters and results of a partition (row-major as it stands) it works on with their channels
  // last: it is spared a transpose of each that crosses its border so.
  virtual ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target& target) const {
    return {};
  }
  // What it costs, in microseconds, to transpose a tensor of those where it crosses the border row-major, as far as
  // EstimateMicros does not count it. The search adds it up over borders.
  virtual double TransitionMicros(const ir::TensorType& tensor, const target::Target& target) const { return 0; }
  // Analytic estimate in microseconds of one call on one core of the target; negative: unknown.
  virtual double EstimateMicros(const ir::Function& partition, const target::Target& target) const { return -1; }
};

class BackendCodegen {
 public:
  virtual ~BackendCodegen() = default;

  virtual std::string name() const = 0;  // of its Backend
  // Changes whenever the code it generates may: the worker's build id, the versions and build ids of the libraries it
  // loads and of the compilers it calls. Part of every key; the daemon learns it by asking a worker.
  virtual std::string version() const = 0;
  // Whether Codegen knows kChannelsLastParams and kChannelsLastResults, for whatever they name.
  virtual bool takes_channels_last() const { return false; }
  virtual absl::StatusOr<proto::StaticLibrary> Codegen(const CodegenRequest& request) const = 0;
};

// The attribute of a partition function (ints): indices of its parameters that are constant after load.
inline constexpr char kConstantParams[] = "constant_params";

// Attributes of a partition function (ints; absent: none): indices of its parameters and results of type [N, C, S...]
// that lie as [N, S..., C]. All else at a border is row-major. The bytes are as many, so only the two partitions know.
// Set where both sides of a value prefer it so (collage/layouts.h).
inline constexpr char kChannelsLastParams[] = "channels_last_params";
inline constexpr char kChannelsLastResults[] = "channels_last_results";

class BackendRegistry {
 public:
  static BackendRegistry& Global();
  void Register(std::unique_ptr<Backend> backend);
  const Backend* Find(absl::string_view name) const;
  std::vector<const Backend*> All() const;  // sorted by name

 private:
  std::map<std::string, std::unique_ptr<Backend>, std::less<>> backends_;
};

class CodegenRegistry {
 public:
  static CodegenRegistry& Global();
  void Register(std::unique_ptr<BackendCodegen> codegen);
  const BackendCodegen* Find(absl::string_view name) const;
  std::vector<const BackendCodegen*> All() const;  // sorted by name

 private:
  std::map<std::string, std::unique_ptr<BackendCodegen>, std::less<>> codegens_;
};

struct BackendRegistration {
  explicit BackendRegistration(std::unique_ptr<Backend> b) { BackendRegistry::Global().Register(std::move(b)); }
};
#define INLAY_REGISTER_BACKEND(Type) \
  static const ::inlay::backend::BackendRegistration inlay_backend_registration(std::make_unique<Type>())

struct CodegenRegistration {
  explicit CodegenRegistration(std::unique_ptr<BackendCodegen> c) { CodegenRegistry::Global().Register(std::move(c)); }
};
#define INLAY_REGISTER_CODEGEN(Type) \
  static const ::inlay::backend::CodegenRegistration inlay_codegen_registration(std::make_unique<Type>())

}  // namespace inlay::backend

#endif  // INLAY_CORE_BACKEND_BACKEND_H_
