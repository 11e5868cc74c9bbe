#include "core/runtime/exported/library.h"

#include <dlfcn.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/runtime/exported/compatibility.h"
#include "core/runtime/exported/packed.h"
#include "core/runtime/threads.h"

namespace inlay::runtime {
namespace {

// An executor and the file that its parameters lie in.
struct Loaded {
  std::optional<MappedFile> params_file;
  std::unique_ptr<Executor> executor;
};

struct Manifest {
  std::vector<Dependency> dependencies;
  ExecutionPlan plan;
  bool params_linked = true;
  std::vector<uint64_t> param_offsets;
};

StatusOr<Manifest> ReadManifest(const InlayLibraryTable& table) {
  Manifest manifest;
  std::string plan;
  try {
    const nlohmann::json json = nlohmann::json::parse(table.manifest, table.manifest + table.manifest_bytes);
    if (Status fits = CheckMachine(json); !fits.ok()) return fits;
    manifest.dependencies = DependenciesOf(json);
    manifest.params_linked = json.at("params_linked").get<bool>();
    manifest.param_offsets = json.at("param_offsets").get<std::vector<uint64_t>>();
    plan = json.at("plan").dump();
  } catch (const std::exception& e) {
    return InvalidArgument(std::string("the library's manifest is damaged: ") + e.what());
  }
  StatusOr<ExecutionPlan> parsed = ExecutionPlan::FromJson(plan);
  if (!parsed.ok()) return parsed.status();
  manifest.plan = std::move(*parsed);
  return manifest;
}

// Before any code that may call them. Again at each load: what was missing may be there now.
Status LoadLibraries(const std::vector<Dependency>& dependencies) {
  std::vector<void*> addresses;
  if (Status s = LoadDependencies(dependencies, &addresses); !s.ok()) return s;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (inlay_library_imports[i] != addresses[i]) inlay_library_imports[i] = addresses[i];  // not under running code
  }
  return Status();
}

StatusOr<std::vector<const void*>> LinkedParams(const InlayLibraryTable& table, const Manifest& manifest) {
  std::vector<const void*> params;
  if (manifest.param_offsets.size() != manifest.plan.params.size()) return InvalidArgument("param_offsets do not fit");
  for (size_t i = 0; i < manifest.param_offsets.size(); ++i) {
    const uint64_t offset = manifest.param_offsets[i];
    const uint64_t bytes = manifest.plan.params[i].type.NumBytes();
    if (offset > table.params_bytes || bytes > table.params_bytes - offset) {
      return InvalidArgument("param '" + manifest.plan.params[i].name + "' lies outside the library");
    }
    params.push_back(table.params + offset);
  }
  return params;
}

// The file that this code was loaded from.
std::string OwnPath() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&inlay_library_table), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

StatusOr<std::shared_ptr<const Executor>> Library::Load() const {
  StatusOr<Manifest> manifest = ReadManifest(table_);
  if (!manifest.ok()) return manifest.status();
  if (Status s = LoadLibraries(manifest->dependencies); !s.ok()) return s;
  auto loaded = std::make_shared<Loaded>();
  StatusOr<std::vector<const void*>> params = std::vector<const void*>();
  if (manifest->params_linked) {
    params = LinkedParams(table_, *manifest);
  } else if (!manifest->plan.params.empty()) {
    const std::string path = params_path_.empty() ? OwnPath() + ".safetensors" : params_path_;
    StatusOr<MappedFile> file = MappedFile::Open(path);
    if (!file.ok()) return file.status();
    params = FindSafetensors(path, *file, manifest->plan.params);
    loaded->params_file = std::move(*file);
  }
  if (!params.ok()) return params.status();
  const auto* pointers = reinterpret_cast<const FunctionPointers*>(&table_ + 1);
  std::vector<FunctionPointers> functions(pointers, pointers + table_.num_functions);
  PinThreadLibrary();
  StatusOr<std::unique_ptr<Executor>> executor =
      LoadExecutor(std::move(manifest->plan), std::move(functions), *params, {num_threads_, &CallRegistered});
  if (!executor.ok()) return executor.status();
  loaded->executor = std::move(*executor);
  const ExecutionPlan& plan = loaded->executor->plan();
  for (size_t i = 0; i < plan.params.size(); ++i) {
    if (plan.param_load_only[i]) DropPages((*params)[i], plan.params[i].type.NumBytes());
  }
  const Executor* result = loaded->executor.get();
  return std::shared_ptr<const Executor>(std::move(loaded), result);
}

StatusOr<std::shared_ptr<const Executor>> Library::Get() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (executor_ == nullptr) {
    StatusOr<std::shared_ptr<const Executor>> executor = Load();
    if (!executor.ok()) return executor.status();
    executor_ = std::move(*executor);
  }
  return executor_;
}

Status Library::CheckCompatibility() const {
  StatusOr<Manifest> manifest = ReadManifest(table_);
  return manifest.ok() ? LoadLibraries(manifest->dependencies) : manifest.status();
}

Status Library::SetParamsPath(const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (executor_ != nullptr) return FailedPrecondition("the library is loaded already; give the parameters' path first");
  params_path_ = path;
  return Status();
}

Status Library::SetNumThreads(int num_threads) {
  if (num_threads < 0 || num_threads > 4096) {
    return InvalidArgument("num_threads is " + std::to_string(num_threads) + ", not 0 to 4096");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (num_threads == num_threads_) return Status();
  num_threads_ = num_threads;
  executor_ = nullptr;
  return Status();
}

}  // namespace inlay::runtime
