#include "server/daemon.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/artifact/linker.h"
#include "core/backend/backend.h"
#include "core/backend/external_compilers.h"
#include "core/backends/common/build_id.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/cache/completeness_checking_action_cache.h"
#include "core/cache/disk/disk_cache.h"
#include "core/cache/memory_blob_store.h"
#include "core/cache/metered_action_cache.h"
#include "core/cache/metered_blob_store.h"
#include "core/cache/tiered_blob_store.h"
#include "core/compiler/caching_compiler.h"
#include "core/compiler/pipeline.h"
#include "core/metrics/registry.h"
#include "core/passes/pass_manager.h"
#include "core/target/target.h"
#include "server/install_paths.h"
#include "server/measuring/measuring_pool.h"
#include "server/metrics_server.h"
#include "server/service/compile_service.h"
#include "server/service/handle_table.h"
#include "server/service/run_here.h"
#include "server/signals.h"
#include "server/socket_lock.h"
#include "server/version.h"
#include "server/worker/machine_gate.h"
#include "server/worker/worker_pool.h"

namespace inlay::server {
namespace {

constexpr int64_t kMemoryTierBytes = int64_t{256} << 20;
constexpr int64_t kMemoryTierBlob = 4 << 20;
// Each synchronous call holds a thread; past this gRPC answers RESOURCE_EXHAUSTED itself.
constexpr int kMaxRpcThreads = 512;
constexpr absl::Duration kDrainLimit = absl::Minutes(1);

}  // namespace

struct Daemon::Impl {
  proto::ServerConfig config;
  metrics::Registry registry;
  std::vector<std::unique_ptr<SocketLock>> sockets;
  std::unique_ptr<TempDir> scratch;

  std::unique_ptr<cache::DiskCache> disk;
  std::unique_ptr<cache::MemoryBlobStore> memory;
  std::unique_ptr<cache::TieredBlobStore> tiered;
  std::unique_ptr<cache::MeteredBlobStore> blobs;
  std::unique_ptr<cache::CompletenessCheckingActionCache> complete_actions;
  std::unique_ptr<cache::MeteredActionCache> actions;
  std::unique_ptr<cache::KeyValueTable> explanations;
  std::unique_ptr<cache::KeyValueTable> published;
  std::unique_ptr<cache::KeyValueTable> plans;
  std::unique_ptr<cache::KeyValueTable> costs;

  MachineGate gate;  // between the workers and the measurer
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<MeasuringPool> measurer;  // null: this server does not measure
  std::unique_ptr<compiler::CachingCompiler> caching;
  std::unique_ptr<compiler::Pipeline> pipeline;
  std::unique_ptr<artifact::LinkToolchain> toolchain;
  std::unique_ptr<HandleTable> handles;
  std::unique_ptr<CompileServiceImpl> service;
  std::unique_ptr<MetricsServer> metrics_server;
  std::vector<std::unique_ptr<metrics::Registry::CallbackRegistration>> gauges;
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;
  std::atomic<bool> drain{false};

  absl::Status OpenCache();
  absl::Status StartWorkers(const Paths& paths);
  void SetUpMeasuring(const Paths& paths);
  void FindToolchain(Paths paths);
  void LogUnusableBackends();
  absl::Status StartService();
  absl::Status Bind(grpc::ServerBuilder* builder, std::vector<std::pair<std::string, int>>* ports);
  proto::GetServerInfoResponse Info();
  void AddGauges();
  void Stop();
};

absl::Status Daemon::Impl::OpenCache() {
  cache::DiskCacheOptions options;
  options.directory = config.cache_dir();
  options.max_bytes = config.cache_max_bytes();
  INLAY_ASSIGN_OR_RETURN(disk, cache::DiskCache::Open(options, &registry));
  memory = std::make_unique<cache::MemoryBlobStore>(kMemoryTierBytes);
  tiered = std::make_unique<cache::TieredBlobStore>(memory.get(), &disk->blobs(), kMemoryTierBlob);
  blobs = std::make_unique<cache::MeteredBlobStore>(tiered.get(), &registry, "local");
  complete_actions = std::make_unique<cache::CompletenessCheckingActionCache>(&disk->actions(), blobs.get(), &registry);
  actions = std::make_unique<cache::MeteredActionCache>(complete_actions.get(), &registry, "local");
  explanations = disk->Table("explanations");
  published = disk->Table("executables");
  plans = disk->Table("plans");
  costs = disk->Table("costs");
  return absl::OkStatus();
}

absl::Status Daemon::Impl::StartWorkers(const Paths& paths) {
  WorkerPoolOptions options;
  options.worker_binary = paths.worker_binary.empty() ? FindWorkerBinary() : paths.worker_binary;
  if (options.worker_binary.empty()) {
    return absl::NotFoundError(absl::StrCat("no inlay_worker beside ", ExecutableDir(),
                                            "/inlayd: run deploy/setup.sh, or give --worker_binary"));
  }
  options.num_workers = config.workers();
  options.memory_bytes = config.worker_memory_bytes();
  options.action_timeout = absl::Seconds(config.action_timeout_s());
  options.scratch_dir = scratch->path();
  options.gate = &gate;
  if (!config.compilers().empty()) {
    // Here, where configurations are checked, and in the workers.
    const std::vector<std::string> compilers(config.compilers().begin(), config.compilers().end());
    INLAY_RETURN_IF_ERROR(backend::ExternalCompilers::Global().Set(compilers));
    options.flags.push_back(absl::StrCat("--compilers=", absl::StrJoin(compilers, ",")));
  }
  INLAY_ASSIGN_OR_RETURN(pool, WorkerPool::Start(options, &registry));
  return absl::OkStatus();
}

void Daemon::Impl::SetUpMeasuring(const Paths& paths) {
  if (!config.measure()) return;
  MeasuringPoolOptions options;
  options.measurer_binary = paths.measurer_binary.empty() ? FindMeasurerBinary() : paths.measurer_binary;
  if (options.measurer_binary.empty()) {
    spdlog::warn("no inlay_measurer beside {}/inlayd: this server does not measure", ExecutableDir());
    return;
  }
  options.memory_bytes = config.measure_memory_bytes();
  options.step_timeout = absl::Seconds(config.measure_step_timeout_s());
  options.machine_lock = config.measure_lock();
  options.machine_lock_wait = absl::Seconds(config.measure_lock_wait_s());
  options.scratch_dir = scratch->path();
  measurer = std::make_unique<MeasuringPool>(options, &gate, &registry);
}

void Daemon::Impl::FindToolchain(Paths paths) {
  if (paths.runtime_dirs.empty()) paths.runtime_dirs = DefaultRuntimeDirs();
  if (paths.library_dirs.empty()) paths.library_dirs = DefaultLibraryDirs();
  auto found = artifact::FindLinkToolchain(paths.runtime_dirs, paths.library_dirs);
  if (found.ok()) {
    toolchain = std::make_unique<artifact::LinkToolchain>(*std::move(found));
  } else {
    spdlog::warn("no export on this server: {}", std::string(found.status().message()));
  }
}

// For this machine's CPU, and without attributes: whose library is not here, for instance.
void Daemon::Impl::LogUnusableBackends() {
  const proto::GetServerInfoResponse info = Info();
  for (const proto::BackendInfo& backend : info.backends()) {
    if (!backend.unusable().empty()) spdlog::warn("backend {} is not offered: {}", backend.name(), backend.unusable());
  }
}

proto::GetServerInfoResponse Daemon::Impl::Info() {
  proto::GetServerInfoResponse info;
  info.set_version(kVersion);
  const target::Target host = target::HostTarget();
  const absl::StatusOr<target::Target> completed = host.Completed();
  for (const proto::BackendInfo& compiled : pool->backends()) {
    const backend::Backend* backend = backend::BackendRegistry::Global().Find(compiled.name());
    if (backend == nullptr) continue;  // code generation that no configuration names: executor aot's
    proto::BackendInfo* added = info.add_backends();
    *added = compiled;
    added->set_on_request(backend->is_hidden(completed.ok() ? *completed : host));
    for (const target::AttrSpec& spec : backend->attrs()) {
      proto::BackendInfo::Attr* attr = added->add_attrs();
      attr->set_name(spec.name);
      attr->set_type(target::TypeName(spec.type));
      attr->set_default_value(spec.default_value);
      attr->set_help(spec.help);
      for (const std::string& choice : spec.choices) attr->add_choices(choice);
      attr->set_min(spec.min);
      attr->set_max(spec.max);
    }
    const absl::Status usable =
        completed.ok() ? backend->CheckTarget(*completed, target::Target{backend->name(), {}}) : completed.status();
    if (!usable.ok()) added->set_unusable(std::string(usable.message()));
  }
  info.mutable_host()->set_kind(host.kind);
  for (const auto& [name, value] : host.attrs) (*info.mutable_host()->mutable_attrs())[name] = value;
  info.set_num_workers(config.workers());
  info.set_max_message_bytes(config.max_message_bytes());
  info.set_pid(static_cast<int>(getpid()));
  const passes::PassManager passes = passes::BuildNormalisePipeline(target::CompilationConfig::Default());
  for (const passes::Pass* pass : passes.DistinctPasses()) {
    proto::PassInfo* added = info.add_passes();
    added->set_name(std::string(pass->name()));
    added->set_min_opt_level(pass->min_opt_level());
  }
  return info;
}

absl::Status Daemon::Impl::Bind(grpc::ServerBuilder* builder, std::vector<std::pair<std::string, int>>* ports) {
  ports->reserve(config.listen_size());  // gRPC keeps pointers to the ports
  for (const std::string& address : config.listen()) {
    if (absl::StartsWith(address, "unix:")) {
      INLAY_ASSIGN_OR_RETURN(auto lock, SocketLock::Acquire(address.substr(5)));
      sockets.push_back(std::move(lock));
    }
    ports->emplace_back(address, -1);
    builder->AddListeningPort(address, grpc::InsecureServerCredentials(), &ports->back().second);
  }
  return absl::OkStatus();
}

absl::Status Daemon::Impl::StartService() {
  CompileServiceImpl::Dependencies deps;
  deps.pipeline = pipeline.get();
  deps.blobs = blobs.get();
  deps.published = published.get();
  deps.handles = handles.get();
  deps.toolchain = toolchain.get();
  deps.run_program = FindRunProgram();
  deps.stats = [this] { return registry.Snapshot(); };
  deps.drain = [this] { drain = true; };
  deps.info = Info();
  deps.scratch_dir = scratch->path();
  deps.queue_limit = config.queue_limit();
  deps.jit_enabled = config.trust_cache_for_jit();
  deps.trust_client_kernels = config.trust_client_kernels();
  service = std::make_unique<CompileServiceImpl>(std::move(deps));

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
  grpc::ServerBuilder builder;
  std::vector<std::pair<std::string, int>> ports;
  const mode_t before = umask(077);  // the socket is this user's alone
  absl::Status bound = Bind(&builder, &ports);
  if (bound.ok()) {
    builder.RegisterService(service.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(config.max_message_bytes()));
    builder.SetMaxSendMessageSize(static_cast<int>(config.max_message_bytes()));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    grpc::ResourceQuota quota("inlayd");
    quota.SetMaxThreads(kMaxRpcThreads);
    builder.SetResourceQuota(quota);
    server = builder.BuildAndStart();
  }
  umask(before);
  INLAY_RETURN_IF_ERROR(bound);
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", config.listen(0), ": is the address in use?"));
  }
  for (const auto& [address, port] : ports) {
    const bool is_socket = absl::StartsWith(address, "unix:");
    addresses.push_back(is_socket ? address : absl::StrCat(address.substr(0, address.rfind(':')), ":", port));
  }
  return absl::OkStatus();
}

void Daemon::Impl::AddGauges() {
  auto add = [&](const char* name, const char* help, std::function<double()> value) {
    gauges.push_back(registry.AddCallbackGauge(name, help, {}, std::move(value)));
  };
  add("inlay_requests_in_flight", "Calls that do work right now", [this] { return service->in_flight(); });
  add("inlay_jit_bytes", "Memory of the loaded modules", [this] { return static_cast<double>(handles->TotalBytes()); });
  add("inlay_jit_handles", "Loaded modules", [this] { return static_cast<double>(handles->List().size()); });
  const compiler::CachingCompiler::Stats& stats = caching->stats();
  add("inlay_partition_cache_hits_total", "Partitions answered by the cache", [&] { return double(stats.hits); });
  add("inlay_partition_cache_misses_total", "Partitions that were not in the cache",
      [&] { return double(stats.misses); });
  add("inlay_actions_run_total", "Compile actions given to workers", [&] { return double(stats.actions_run); });
  add("inlay_partition_flights_shared_total", "Partitions that another request was compiling already",
      [&] { return double(stats.shared_flights); });
  add("inlay_cache_write_failures_total", "Results that could not be kept",
      [&] { return double(stats.write_failures); });
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const proto::ServerConfig& config, Paths paths) {
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  INLAY_ASSIGN_OR_RETURN(TempDir scratch, TempDir::Create("inlayd"));
  impl->scratch = std::make_unique<TempDir>(std::move(scratch));
  INLAY_RETURN_IF_ERROR(Annotate(impl->OpenCache(), absl::StrCat("cache ", config.cache_dir())));
  INLAY_RETURN_IF_ERROR(Annotate(impl->StartWorkers(paths), "workers"));
  impl->SetUpMeasuring(paths);
  impl->caching = std::make_unique<compiler::CachingCompiler>(impl->pool.get(), impl->blobs.get(), impl->actions.get(),
                                                              impl->explanations.get());
  impl->pipeline = std::make_unique<compiler::Pipeline>(
      impl->caching.get(), impl->measurer.get(),
      compiler::PipelineTables{impl->published.get(), impl->plans.get(), impl->costs.get()},
      backends::ExecutableBuildId(),
      config.trust_cache_for_jit() ? RunInThisProcess(impl->blobs.get()) : compiler::RunHereFn());
  impl->FindToolchain(std::move(paths));
  impl->LogUnusableBackends();
  HandleTable::Options handle_options;
  handle_options.max_bytes = config.jit_memory_bytes();
  handle_options.idle_expiry = absl::Seconds(config.jit_idle_expiry_s());
  impl->handles = std::make_unique<HandleTable>(handle_options);
  INLAY_RETURN_IF_ERROR(impl->StartService());
  impl->AddGauges();
  if (!config.metrics_listen().empty()) {
    INLAY_ASSIGN_OR_RETURN(impl->metrics_server, MetricsServer::Start(config.metrics_listen(), &impl->registry));
  }
  for (const std::string& address : impl->addresses) spdlog::info("listening on {}", address);
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Daemon::~Daemon() {
  impl_->Stop();
  impl_->gauges.clear();
  impl_->metrics_server.reset();
}

const std::vector<std::string>& Daemon::addresses() const { return impl_->addresses; }

void Daemon::RunUntilStopped() {
  const absl::Duration idle_exit = absl::Seconds(impl_->config.idle_exit_s());
  while (!impl_->drain) {
    if (WaitForStopSignal(absl::Milliseconds(200))) break;
    const bool idle = impl_->service->in_flight() == 0 && impl_->handles->List().empty() &&
                      absl::Now() - impl_->service->last_request() > idle_exit;
    if (idle_exit > absl::ZeroDuration() && idle) {
      spdlog::info("no request for {}: leaving", absl::FormatDuration(idle_exit));
      break;
    }
  }
  impl_->Stop();
}

void Daemon::Impl::Stop() {
  if (server == nullptr) return;
  spdlog::info("draining: {} calls under way", service->in_flight());
  service->StopAccepting();
  server->GetHealthCheckService()->SetServingStatus(false);
  server->Shutdown(absl::ToChronoTime(absl::Now() + kDrainLimit));
  server->Wait();
  server.reset();
  absl::Status flushed = disk->Flush();
  if (!flushed.ok()) spdlog::warn("cache index: {}", std::string(flushed.message()));
  spdlog::info("stopped");
}

}  // namespace inlay::server
