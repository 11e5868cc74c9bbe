#include "inlay/executable.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/src/bundle.h"
#include "client/cpp/src/c_header.h"
#include "client/cpp/src/client_impl.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/memory_library.h"
#include "client/cpp/src/remote_module.h"
#include "client/cpp/src/report.h"
#include "client/cpp/src/wire.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

namespace inlay {
namespace {

namespace fs = std::filesystem;

thread_local std::vector<PassContext> pass_scopes;

std::string JitKey(const JitOptions& options) {
  return absl::StrCat(options.fcompile.compiler, "\n", options.num_threads, "\n", absl::StrJoin(options.options, "\n"));
}

}  // namespace

PassContext PassContext::Current() {
  PassContext all;
  for (const PassContext& scope : pass_scopes) {
    if (scope.opt_level.has_value()) all.opt_level = scope.opt_level;
    all.disabled_passes.insert(all.disabled_passes.end(), scope.disabled_passes.begin(), scope.disabled_passes.end());
    all.instruments.insert(all.instruments.end(), scope.instruments.begin(), scope.instruments.end());
  }
  return all;
}

PassScope::PassScope(PassContext context) { pass_scopes.push_back(std::move(context)); }
PassScope::~PassScope() { pass_scopes.pop_back(); }

struct Executable::Impl {
  std::shared_ptr<Client> client;
  IRModule module;  // for the case that the server has lost a blob of it since
  std::string digest;
  Report report;
  Signature signature;
  CompilationConfig config;
  std::string cover, mod_name, digest_hex;

  mutable absl::Mutex mutex;
  std::vector<Module> imports ABSL_GUARDED_BY(mutex);
  std::map<std::string, Module> jitted ABSL_GUARDED_BY(mutex);

  explicit Impl(IRModule module) : module(std::move(module)) {}

  bool is_crt() const { return config.runtime.kind == "crt"; }
  std::vector<Module> Imports() const {
    absl::MutexLock lock(&mutex);
    return imports;
  }

  // `call`; again, after uploading and compiling again, where the server has lost a blob of the executable (evicted, or
  // found damaged when it was read). Goes on as long as that brings back something.
  absl::Status Restoring(const CallContext& context, const std::function<absl::Status()>& call) const {
    for (bool restored = true;;) {
      const absl::Status status = call();
      const bool lost = (KindOf(status) == ErrorKind::kCompile || KindOf(status) == ErrorKind::kNotFound) &&
                        (absl::IsFailedPrecondition(status) || absl::IsNotFound(status));
      if (!lost || !restored) return status;
      int64_t uploaded = 0;
      INLAY_RETURN_IF_ERROR(client->impl().Compile(module.impl(), nullptr, nullptr, &uploaded, context).status());
      restored = uploaded > 0;
    }
  }

  proto::ExportLibraryRequest Request(const std::vector<Addon>& addons, std::optional<bool> link_params) const {
    proto::ExportLibraryRequest request;
    request.set_executable(digest);
    if (link_params.has_value()) request.set_link_params(*link_params);
    request.set_model_name(mod_name);
    for (const Addon& addon : addons) {
      proto::ObjectFile& object = *request.add_addons();
      object.set_name(addon.name);
      object.set_data(addon.data);
    }
    return request;
  }

  // What an export wants: the imported modules and `options.addons`, linked in.
  absl::StatusOr<proto::ExportLibraryRequest> Request(const ExportOptions& options) const {
    std::vector<Module> roots = Imports();
    roots.insert(roots.end(), options.addons.begin(), options.addons.end());
    INLAY_ASSIGN_OR_RETURN(const std::vector<Addon> addons, AddonsOf(Nodes(roots), options.fcompile, options.options));
    return Request(addons, options.link_params.value_or(config.link_params));
  }

  // Downloads the library.
  absl::Status Download(const proto::ExportLibraryRequest& request, const CallContext& context, OutputFile* library,
                        OutputFile* params) const {
    return Restoring(context, [&]() -> absl::Status {
      INLAY_RETURN_IF_ERROR(library->Truncate());
      INLAY_RETURN_IF_ERROR(params->Truncate());
      return client->impl().Export(
          request,
          [&](const proto::ExportLibraryChunk& chunk) -> absl::Status {
            INLAY_RETURN_IF_ERROR(library->Write(chunk.library()));
            return params->Write(chunk.params());
          },
          context);
    });
  }

  absl::StatusOr<Module> Load(const JitOptions& options) const {
    const std::vector<Module> own = Nodes(Imports());
    std::vector<Module> linked, imported;
    for (const Module& module : own) {
      // What can't be linked but can be run is imported again.
      const bool links = (module.properties() & Module::kCompilationExportable) != 0;
      (links || !module.is_runnable() ? linked : imported).push_back(module);
    }
    INLAY_ASSIGN_OR_RETURN(const std::vector<Addon> addons, AddonsOf(linked, options.fcompile, options.options));
    INLAY_ASSIGN_OR_RETURN(MemoryLibrary files, MemoryLibrary::Make());
    INLAY_RETURN_IF_ERROR(Download(Request(addons, std::nullopt), options, &files.library, &files.params));
    INLAY_ASSIGN_OR_RETURN(Module module, files.Load(options.num_threads));
    for (const Module& one : imported) INLAY_RETURN_IF_ERROR(module.ImportModule(one));
    return module;
  }
};

const std::string& Executable::digest() const { return impl_->digest_hex; }
const Report& Executable::report() const { return impl_->report; }
const Signature& Executable::signature() const { return impl_->signature; }
const CompilationConfig& Executable::config() const { return impl_->config; }
const std::string& Executable::cover() const { return impl_->cover; }

Module Executable::mod() const {
  Module root = ServerModule(impl_->config.executor.kind, Module::kBinarySerializable | Module::kRunnable,
                             impl_->digest_hex.substr(0, 12));
  for (const Report::Partition& part : impl_->report.partitions) {
    const bool generated = part.backend.substr(0, part.backend.find('#')) == "native";
    const int runnable = generated ? Module::kRunnable : 0;
    // New modules, which import nothing: no circle.
    (void)root.ImportModule(
        ServerModule(generated ? "llvm" : "static_library", Module::kCompilationExportable | runnable, part.name));
  }
  for (const Module& module : impl_->Imports()) (void)root.ImportModule(module);
  return root;
}

void Executable::ImportModule(const Module& module) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->imports.push_back(module);
  impl_->jitted.clear();
}

absl::StatusOr<Module> Executable::Jit(const JitOptions& options) const {
  if (impl_->is_crt()) {
    return ModuleError(
        "the executable is for runtime crt: sources or objects that are built for the device. Write them with "
        "ExportLibrary(\"model.tar\") and build that with the device's compiler; to run the model here, compile it "
        "with "
        "runtime cpp");
  }
  if (options.fcompile.function) return impl_->Load(options);  // two functions can't be told apart
  const std::string key = JitKey(options);
  {
    absl::MutexLock lock(&impl_->mutex);
    const auto it = impl_->jitted.find(key);
    if (it != impl_->jitted.end()) return it->second;
  }
  INLAY_ASSIGN_OR_RETURN(Module module, impl_->Load(options));
  absl::MutexLock lock(&impl_->mutex);
  return impl_->jitted.emplace(key, std::move(module)).first->second;
}

absl::StatusOr<Module> Executable::RemoteJit(const RemoteJitOptions& options) const {
  if (const std::vector<Module> own = impl_->Imports(); !own.empty()) {
    return ModuleError(
        absl::StrCat(own[0].ToString(), " is yours, and a server runs no code of its clients: use Jit()"));
  }
  proto::JitRequest request;
  request.set_executable(impl_->digest);
  request.set_num_threads(options.num_threads);
  request.set_idle_expiry_s(options.idle_expiry_s);
  proto::JitResponse response;
  INLAY_RETURN_IF_ERROR(impl_->Restoring(options, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(response, impl_->client->impl().Jit(request, options));
    return absl::OkStatus();
  }));
  return RemoteModule(impl_->client, response, options.run);
}

absl::Status Executable::ExportLibrary(const std::string& path, const ExportOptions& options) const {
  const fs::path parent = fs::absolute(path).parent_path();
  std::error_code error;
  if (!fs::is_directory(parent, error)) {
    return absl::NotFoundError(
        absl::StrCat("can't write ", path, ": there is no folder ", parent.string(), "; make it first"));
  }
  INLAY_ASSIGN_OR_RETURN(const proto::ExportLibraryRequest request, impl_->Request(options));
  INLAY_ASSIGN_OR_RETURN(const TempDir folder,
                         TempDir::Create(absl::StrCat(".", fs::path(path).filename().string()), parent.string()));
  const std::string library = folder.path() + "/library", params = folder.path() + "/params";
  INLAY_ASSIGN_OR_RETURN(OutputFile library_file, OutputFile::Create(library));
  INLAY_ASSIGN_OR_RETURN(OutputFile params_file, OutputFile::Create(params));
  INLAY_RETURN_IF_ERROR(impl_->Download(request, options, &library_file, &params_file));
  if (fchmod(library_file.fd(), impl_->is_crt() ? 0644 : 0755) != 0) return ErrnoStatus(errno, "write", path);
  FileSystem& files = *FileSystem::Default();
  if (params_file.size() > 0) INLAY_RETURN_IF_ERROR(files.Rename(params, path + ".safetensors"));
  INLAY_RETURN_IF_ERROR(files.Rename(library, path));
  const auto api = impl_->config.executor.options.find("interface-api");
  if (impl_->is_crt() || api == impl_->config.executor.options.end() || api->second != "c") return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::string manifest, ReadManifest(path));
  INLAY_ASSIGN_OR_RETURN(const std::string header, CHeader(manifest, fs::path(path).filename().string()));
  return WriteFileAtomically(fs::path(path).replace_extension(".h").string(), header);
}

absl::Status Executable::ExportBundle(const std::string& path, const ExportOptions& options) const {
  INLAY_ASSIGN_OR_RETURN(proto::ExportLibraryRequest request, impl_->Request(options));
  request.set_bundle(true);
  return WriteBundle(path, [&](BundleWriter* bundle) {
    return impl_->Restoring(options, [&]() -> absl::Status {
      INLAY_RETURN_IF_ERROR(bundle->Clear());
      return impl_->client->impl().Export(
          request, [&](const proto::ExportLibraryChunk& chunk) { return bundle->Add(chunk); }, options);
    });
  });
}

absl::StatusOr<Executable> Build(const IRModule& given, const CompilationConfig& wanted, const BuildOptions& options) {
  std::shared_ptr<Client> client = options.client;
  if (client == nullptr) {
    INLAY_ASSIGN_OR_RETURN(client, Client::Connect());
  }
  const CallContext context(options);
  const PassContext passes = PassContext::Current();
  CompilationConfig config = wanted;
  if (passes.opt_level.has_value()) config.opt_level = passes.opt_level;
  config.disabled_passes.insert(config.disabled_passes.end(), passes.disabled_passes.begin(),
                                passes.disabled_passes.end());
  std::optional<Target> host, fallback;
  bool wants_host = config.targets.empty();
  for (const Target& target : config.targets) wants_host |= target.is_native();
  if (client->is_local()) {
    fallback = Target("llvm -mcpu=native");
    if (wants_host) {
      INLAY_ASSIGN_OR_RETURN(const proto::GetServerInfoResponse info, client->impl().Info(context));
      host = FromProto(info.host());
    }
  }
  config = Resolved(std::move(config), host, fallback);
  INLAY_ASSIGN_OR_RETURN(IRModule module, given.WithConfiguration(config));
  Client::Impl::OnPass on_pass;
  int ran = 0;
  if (!passes.instruments.empty()) {
    on_pass = [&](const proto::PassTrace& trace) {
      const PassInfo info{trace.name(), ran++, trace.ms(), trace.ir()};
      for (const auto& instrument : passes.instruments) instrument(info);
    };
  }
  int64_t uploaded = 0;
  INLAY_ASSIGN_OR_RETURN(const proto::CompileEvent::Result result,
                         client->impl().Compile(module.impl(), options.progress, on_pass, &uploaded, context));
  auto impl = std::make_shared<Executable::Impl>(std::move(module));
  impl->client = std::move(client);
  impl->digest = result.executable();
  INLAY_ASSIGN_OR_RETURN(const Digest digest, Digest::FromBytes(result.executable()));
  impl->digest_hex = digest.hex();
  impl->report = ReportOf(result.report());
  impl->report.upload_bytes = uploaded;
  impl->cover = result.report().cover().SerializeAsString();
  for (const auto& input : result.inputs()) impl->signature.inputs.push_back(SpecOf(input.name(), input.type()));
  for (const auto& output : result.outputs()) impl->signature.outputs.push_back(SpecOf(output.name(), output.type()));
  impl->config = std::move(config);
  impl->mod_name = options.mod_name;
  return Executable(std::move(impl));
}

absl::StatusOr<Executable> Build(const IRModule& module, const Target& target, const BuildOptions& options) {
  return Build(module, CompilationConfig::FromTarget(target), options);
}

absl::StatusOr<Executable> Build(const IRModule& module, const BuildOptions& options) {
  if (module.has_config()) return Build(module, module.config(), options);
  const std::optional<Target> current = Target::Current();
  return Build(module, current.has_value() ? CompilationConfig::FromTarget(*current) : CompilationConfig(), options);
}

absl::StatusOr<VirtualMachine> VirtualMachine::Create(Module module, absl::string_view device) {
  if (device.substr(0, device.find(':')) != "cpu") {
    return MakeError(ErrorKind::kUnsupported, absl::StatusCode::kUnimplemented,
                     absl::StrCat("device ", device, " is not supported; this version runs on the CPU"));
  }
  const NodeObj* node = AsNode(module);
  if (!module.is_runnable() || (node != nullptr && !node->is_here())) {
    return ModuleError(absl::StrCat(module.ToString(),
                                    " can't run as it is: import it into an Executable and Jit() that, or export a "
                                    "library with it and load that"));
  }
  return VirtualMachine(std::move(module));
}

absl::StatusOr<VirtualMachine> VirtualMachine::Create(const Executable& executable, absl::string_view device) {
  INLAY_ASSIGN_OR_RETURN(Module module, executable.Jit());
  return Create(std::move(module), device);
}

}  // namespace inlay
