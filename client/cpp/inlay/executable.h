// Build and Executable: a model compiled on a server, to be exported, or loaded here or there.
//
//   auto client = inlay::Client::Connect();
//   auto module = inlay::LoadModule("model.inlay");
//   auto ex = inlay::Build(*module, "llvm -mcpu=native");
//   inlay::VirtualMachine vm = *inlay::VirtualMachine::Create(*ex, "cpu");   // or of ex->Jit()
//   ex->ExportLibrary("model.so");
#ifndef INLAY_EXECUTABLE_H_
#define INLAY_EXECUTABLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inlay/client.h"
#include "inlay/config.h"
#include "inlay/ir_module.h"
#include "inlay/library.h"
#include "inlay/module.h"

namespace inlay {

// What a compile did (proto/artifact.proto, CompileReport).
struct Report {
  struct Partition {
    std::string name, backend;
    std::vector<std::string> ops;
    bool cache_hit = false;
    std::string why, miss_reason;
    double compile_ms = 0, cost_us = 0;
    int call_sites = 0;
    std::string action;          // the cache key
    std::string codegen_target;  // of the backend's variant; "" without attributes
    std::vector<std::string> locations;
  };
  double server_ms = 0;
  int actions_run = 0, cache_hits = 0;
  bool shared_flight = false;  // answered by an identical request that was under way
  std::vector<Partition> partitions;
  std::map<std::string, double> phase_ms;
  std::string plan_source;  // "search", "plan cache" or "pinned"
  int64_t upload_bytes = 0;
  std::string json;  // all that the server said: candidates and plans too
};

// A pass that ran on the server: its name, milliseconds, the module after it as text.
struct PassInfo {
  std::string name;
  int index = 0;  // how many ran before it
  double ms = 0;
  std::string ir;
};

// How passes run in the builds inside a PassScope; an inner scope adds to an outer one.
struct PassContext {
  std::optional<int> opt_level;
  std::vector<std::string> disabled_passes;
  std::vector<std::function<void(const PassInfo&)>> instruments;  // called in order, when the build is done

  static PassContext Current();  // of this thread
};

class PassScope {
 public:
  explicit PassScope(PassContext context);
  ~PassScope();
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;
};

struct BuildOptions : CallOptions {
  std::shared_ptr<Client> client;                 // null: Client::Connect()
  std::function<void(const Progress&)> progress;  // called in the thread of Build
  std::string mod_name;                           // what C names begin with (runtime crt); "": "default"
};

struct ExportOptions : CallOptions {
  Fcompile fcompile;                 // for sources among the modules
  std::vector<std::string> options;  // for it
  std::vector<Module> addons;        // what else to link in, besides the imported modules
  std::optional<bool> link_params;   // parameters inside, or beside it in "<path>.safetensors"; as it was configured
};

struct JitOptions : CallOptions {
  Fcompile fcompile;
  std::vector<std::string> options;
  int num_threads = 0;  // 0: what it was compiled for

  JitOptions() = default;
  JitOptions(Fcompile fcompile) : fcompile(std::move(fcompile)) {}  // NOLINT
  JitOptions(const char* fcompile) : fcompile(fcompile) {}          // NOLINT
};

struct RemoteJitOptions : CallOptions {
  CallOptions run;  // of each call of "main"
  int num_threads = 0;
  double idle_expiry_s = 0;  // the server unloads it after so long without a run; 0: the server's default
};

// Copies are the same Executable. Any thread, but for ImportModule.
class Executable {
 public:
  const std::string& digest() const;  // names it on the server (hex)
  const Report& report() const;
  const Signature& signature() const;
  const CompilationConfig& config() const;  // it was compiled with, targets resolved
  const std::string& cover() const;         // CompilationConfig::pinned repeats it without a search

  // The tree that Jit and ExportLibrary act on: the executor, which imports what each backend compiled, and your
  // modules.
  Module mod() const;
  // Adds a module of your own: its functions become the library's, or those of what Jit returns. What was returned
  // before stays as it is.
  void ImportModule(const Module& module);

  // A runnable module: what can be exported is linked by the server and loaded from memory, what can only be run is
  // imported again. Memoised, but for a compile function (two of them can't be told apart). FAILED_PRECONDITION names
  // the member in the way.
  absl::StatusOr<Module> Jit(const JitOptions& options = {}) const;

  // Loads the model into the server, where it is run over the wire: a module of kind "remote", unloaded when the last
  // reference goes. Takes no modules of your own.
  absl::StatusOr<Module> RemoteJit(const RemoteJitOptions& options = {}) const;

  // Writes the model as a shared library (runtime crt: a Model Library Format tar). Replaces an earlier file only when
  // all has arrived. FAILED_PRECONDITION names a member that can't be exported and its kind. With the executor's
  // interface-api c (runtime cpp), a C header lies beside it: "model.h" for "model.so".
  absl::Status ExportLibrary(const std::string& path, const ExportOptions& options = {}) const;

  // Writes a folder that runs the model on a machine with glibc and nothing else (deploy/README.md): model.so, the
  // shared libraries that it needs, their licences, and `run`, a program. An earlier bundle there is replaced;
  // ALREADY_EXISTS where the folder holds anything else.
  absl::Status ExportBundle(const std::string& path, const ExportOptions& options = {}) const;

  struct Impl;
  explicit Executable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// Compiles a module; uploads those of its weights that the server lacks. Without a configuration: the module's own if
// it has one, else Target::Current(), else this machine for a server on it, and x86-64-v3 for one elsewhere. Errors:
// client.h.
absl::StatusOr<Executable> Build(const IRModule& module, const CompilationConfig& config,
                                 const BuildOptions& options = {});
absl::StatusOr<Executable> Build(const IRModule& module, const Target& target, const BuildOptions& options = {});
absl::StatusOr<Executable> Build(const IRModule& module, const BuildOptions& options = {});
inline absl::StatusOr<Executable> Build(const IRModule& module, const char* target, const BuildOptions& options = {}) {
  return Build(module, Target(target), options);
}

// Runs a module on a device; "cpu" is the only one.
class VirtualMachine {
 public:
  // FAILED_PRECONDITION where the module can't run as it is, saying what would.
  static absl::StatusOr<VirtualMachine> Create(Module module, absl::string_view device = "cpu");
  // Calls Jit.
  static absl::StatusOr<VirtualMachine> Create(const Executable& executable, absl::string_view device = "cpu");

  Function operator[](const std::string& name) const { return module_[name]; }
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs) const { return module_.Run(inputs); }
  const Module& module() const { return module_; }

 private:
  explicit VirtualMachine(Module module) : module_(std::move(module)) {}
  Module module_;
};

}  // namespace inlay

#endif  // INLAY_EXECUTABLE_H_
