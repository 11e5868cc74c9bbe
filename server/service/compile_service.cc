#include "server/service/compile_service.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/artifact/mlf.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/target/compilation_config.h"
#include "server/service/blob_receiver.h"
#include "server/service/bundle_stream.h"
#include "server/service/rpc_status.h"
#include "server/service/tensor_stream.h"

namespace inlay::server {
namespace {

constexpr int kRetryDelayMs = 500;
constexpr absl::Duration kStallLimit = absl::Seconds(60);
constexpr int kMaxDigestsPerRequest = 100000;
constexpr int64_t kMapAbove = 1 << 20;

bool IsCrt(const proto::Executable& executable) { return executable.config().runtime().kind() == proto::Runtime::CRT; }

// The deadline that the client gave, if any.
absl::Time DeadlineOf(const grpc::ServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

proto::NamedType ToNamedType(const runtime::NamedTensor& tensor, const runtime::OpenShapes& shapes) {
  proto::NamedType named;
  named.set_name(tensor.name);
  *named.mutable_type() = ToProto(tensor.type, shapes);
  return named;
}

}  // namespace

class CompileServiceImpl::Admission {
 public:
  explicit Admission(CompileServiceImpl* service) : service_(service) {
    service_->last_request_ns_ = absl::ToUnixNanos(absl::Now());
    now_ = ++service_->in_flight_;
  }
  ~Admission() {
    --service_->in_flight_;
    service_->last_request_ns_ = absl::ToUnixNanos(absl::Now());
  }

  grpc::Status Check(grpc::ServerContext* context) const {
    if (service_->draining_) {
      return RetryLater(context, absl::UnavailableError("the server is shutting down"), kRetryDelayMs);
    }
    if (now_ > service_->deps_.queue_limit) {
      return RetryLater(context,
                        absl::ResourceExhaustedError(absl::StrCat("the queue is full (", service_->deps_.queue_limit,
                                                                  " requests): try again in a moment")),
                        kRetryDelayMs);
    }
    return grpc::Status::OK;
  }

 private:
  CompileServiceImpl* service_;
  int now_;
};

CompileServiceImpl::CompileServiceImpl(Dependencies dependencies)
    : deps_(std::move(dependencies)),
      executables_(deps_.blobs, deps_.published),
      last_request_ns_(absl::ToUnixNanos(absl::Now())) {}

grpc::Status CompileServiceImpl::GetServerInfo(grpc::ServerContext*, const proto::GetServerInfoRequest*,
                                               proto::GetServerInfoResponse* response) {
  *response = deps_.info;
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::CheckConfig(grpc::ServerContext*, const proto::CheckConfigRequest* request,
                                             proto::CheckConfigResponse* response) {
  absl::StatusOr<target::CompilationConfig> config = compiler::Pipeline::CheckConfig(request->config());
  if (!config.ok()) return ToGrpc(config.status());
  *response->mutable_config() = config->ToProto();
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::FindMissingBlobs(grpc::ServerContext*, const proto::FindMissingBlobsRequest* request,
                                                  proto::FindMissingBlobsResponse* response) {
  if (request->digests_size() > kMaxDigestsPerRequest) {
    return ToGrpc(absl::InvalidArgumentError(absl::StrCat("at most ", kMaxDigestsPerRequest, " digests a request")));
  }
  std::vector<Digest> digests;
  for (int i = 0; i < request->digests_size(); ++i) {
    absl::StatusOr<Digest> digest = Digest::FromBytes(request->digests(i));
    if (!digest.ok()) return ToGrpc(Annotate(digest.status(), absl::StrCat("digests[", i, "]")));
    digests.push_back(*digest);
  }
  absl::StatusOr<std::vector<Digest>> missing = deps_.blobs->FindMissing(digests);
  if (!missing.ok()) return ToGrpc(missing.status());
  for (const Digest& digest : *missing) response->add_missing(std::string(digest.bytes()));
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::UploadBlobs(grpc::ServerContext* context,
                                             grpc::ServerReader<proto::UploadBlobsRequest>* reader,
                                             proto::UploadBlobsResponse* response) {
  Admission admission(this);
  if (grpc::Status status = admission.Check(context); !status.ok()) return status;
  auto watch = watcher_.Add(context, nullptr, kStallLimit);
  BlobReceiver receiver(deps_.blobs);
  proto::UploadBlobsRequest message;
  while (reader->Read(&message)) {
    watch->Touch();
    if (absl::Status status = receiver.Receive(message); !status.ok()) return ToGrpc(status);
  }
  if (context->IsCancelled()) return ToGrpc(absl::CancelledError("the upload was cut off, or stalled"));
  if (absl::Status status = receiver.Finish(); !status.ok()) return ToGrpc(status);
  response->set_blobs(receiver.blobs());
  response->set_bytes(receiver.bytes());
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::Compile(grpc::ServerContext* context, const proto::CompileRequest* request,
                                         grpc::ServerWriter<proto::CompileEvent>* writer) {
  Admission admission(this);
  if (grpc::Status status = admission.Check(context); !status.ok()) return status;
  auto token = std::make_shared<CancelToken>(DeadlineOf(*context));
  auto watch = watcher_.Add(context, token.get());
  auto progress = [&](const compiler::Progress& p) {
    proto::CompileEvent event;
    event.mutable_progress()->set_phase(p.phase);
    event.mutable_progress()->set_done(p.done);
    event.mutable_progress()->set_total(p.total);
    event.mutable_progress()->set_detail(p.detail);
    writer->Write(event);
  };
  absl::StatusOr<compiler::CompileResult> result =
      deps_.pipeline->Compile(request->module(), token.get(), progress, request->want_passes());
  if (!result.ok()) {
    spdlog::info("compile failed request={} code={} message={}", request->request_id(),
                 absl::StatusCodeToString(result.status().code()), std::string(result.status().message()));
    return ToGrpc(result.status());
  }
  for (compiler::PassTrace& pass : result->passes) {
    proto::CompileEvent event;
    event.mutable_pass()->set_name(std::move(pass.name));
    event.mutable_pass()->set_ms(pass.millis);
    event.mutable_pass()->set_ir(std::move(pass.ir));
    writer->Write(event);
  }
  proto::CompileEvent event;
  proto::CompileEvent::Result* out = event.mutable_result();
  out->set_executable(std::string(result->executable_digest.bytes()));
  *out->mutable_report() = result->report;
  if (request->want_plan()) out->set_plan_json(result->executable.plan_json());
  runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(result->executable.plan_json());
  if (!plan.ok())
    return ToGrpc(absl::InternalError(absl::StrCat("the plan does not read back: ", plan.status().message())));
  for (const runtime::NamedTensor& input : plan->inputs) *out->add_inputs() = ToNamedType(input, plan->shapes);
  for (const runtime::NamedTensor& output : plan->outputs) *out->add_outputs() = ToNamedType(output, plan->shapes);
  spdlog::info("compiled request={} executable={} server_ms={:.1f} actions_run={} partitions={} hits={}",
               request->request_id(), result->executable_digest.short_hex(), result->report.server_ms(),
               result->report.actions_run(), result->report.partitions_size(), result->report.cache_hits());
  writer->Write(event);
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::ExportLibrary(grpc::ServerContext* context, const proto::ExportLibraryRequest* request,
                                               grpc::ServerWriter<proto::ExportLibraryChunk>* writer) {
  Admission admission(this);
  if (grpc::Status status = admission.Check(context); !status.ok()) return status;
  CancelToken token(DeadlineOf(*context));
  auto watch = watcher_.Add(context, &token);
  artifact::BundleRequest bundle;
  bundle.run_program = deps_.run_program;
  absl::StatusOr<TempDir> directory = TempDir::Create("export", deps_.scratch_dir);
  if (!directory.ok()) return ToGrpc(directory.status());
  bundle.scratch_dir = directory->path() + "/bundle";
  constexpr char kNoLinker[] = "this server has no linker (ld.lld 19, libstdc++.a): see deploy/setup.sh";
  if (request->bundle() && request->executable().empty()) {
    if (deps_.toolchain == nullptr) return ToGrpc(absl::UnimplementedError(kNoLinker));
    bundle.required_libraries.assign(request->support_for().begin(), request->support_for().end());
    bundle.linked_packages.assign(request->support_packages().begin(), request->support_packages().end());
    return ToGrpc(SendBundle(*deps_.toolchain, bundle, writer));
  }
  auto loaded = executables_.Load(request->executable());
  if (!loaded.ok()) return ToGrpc(loaded.status());
  if (IsCrt((*loaded)->executable)) {
    if (!request->bundle()) return ExportModelLibrary(**loaded, *request, writer);
    return ToGrpc(
        absl::InvalidArgumentError("a bundle is of runtime cpp; runtime crt has no shared library: export it"));
  }
  if (deps_.toolchain == nullptr) return ToGrpc(absl::UnimplementedError(kNoLinker));
  runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson((*loaded)->executable.plan_json());
  if (!plan.ok()) return ToGrpc(absl::InternalError("the executable's plan does not read back"));

  artifact::LinkRequest link;
  link.libraries = (*loaded)->library_pointers();
  link.plan = &*plan;
  link.params.assign((*loaded)->executable.params().begin(), (*loaded)->executable.params().end());
  link.param_source = executables_.param_source();
  const auto& config = (*loaded)->executable.config();
  link.link_params =
      request->has_link_params() ? request->link_params() : (!config.has_link_params() || config.link_params());
  link.c_interface = config.executor().interface_api() == proto::Executor::C;
  for (const proto::ObjectFile& addon : request->addons()) link.addons.push_back(&addon);
  link.output = directory->path() + "/library.so";
  link.cancel = &token;
  absl::StatusOr<artifact::LinkResult> linked = artifact::LinkLibrary(*deps_.toolchain, link);
  if (!linked.ok()) return ToGrpc(linked.status());
  if (request->bundle()) {
    bundle.library = link.output;
    bundle.params_path = linked->params_path;
    bundle.required_libraries = linked->required_libraries;
    bundle.linked_packages = linked->linked_packages;
    return ToGrpc(SendBundle(*deps_.toolchain, bundle, writer));
  }

  auto library = FileSystem::Default()->Read(link.output, kMapAbove);
  if (!library.ok()) return ToGrpc(library.status());
  proto::ExportLibraryChunk first;
  first.set_library_size(static_cast<int64_t>(library->data.size()));
  for (const proto::RequiredLibrary& required : linked->required_libraries) *first.add_required_libraries() = required;
  if (!writer->Write(first)) return grpc::Status::CANCELLED;
  auto send = [&](absl::string_view data, auto set) -> bool {
    for (size_t at = 0; at < data.size(); at += kChunkBytes) {
      proto::ExportLibraryChunk chunk;
      set(&chunk, std::string(data.substr(at, kChunkBytes)));
      if (!writer->Write(chunk)) return false;
    }
    return true;
  };
  if (!send(library->data, [](proto::ExportLibraryChunk* c, std::string d) { c->set_library(std::move(d)); })) {
    return grpc::Status::CANCELLED;
  }
  if (!linked->params_path.empty()) {
    auto params = FileSystem::Default()->Read(linked->params_path, kMapAbove);
    if (!params.ok()) return ToGrpc(params.status());
    if (!send(params->data, [](proto::ExportLibraryChunk* c, std::string d) { c->set_params(std::move(d)); })) {
      return grpc::Status::CANCELLED;
    }
  }
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::ExportModelLibrary(const LoadedExecutable& loaded,
                                                    const proto::ExportLibraryRequest& request,
                                                    grpc::ServerWriter<proto::ExportLibraryChunk>* writer) {
  if (request.has_link_params() && !request.link_params()) {
    return ToGrpc(absl::InvalidArgumentError(
        "link_params=false and the executable's runtime crt disagree: CRT reads no files; parameters are linked"));
  }
  if (request.addons_size() > 0) {
    return ToGrpc(
        absl::InvalidArgumentError("addons and the executable's runtime crt disagree: nothing is linked here; build "
                                   "them beside the tar's sources"));
  }
  absl::StatusOr<TempDir> directory = TempDir::Create("export", deps_.scratch_dir);
  if (!directory.ok()) return ToGrpc(directory.status());
  runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(loaded.executable.plan_json());
  if (!plan.ok()) return ToGrpc(absl::InternalError("the executable's plan does not read back"));
  absl::StatusOr<target::CompilationConfig> config = target::CompilationConfig::FromProto(loaded.executable.config());
  if (!config.ok()) return ToGrpc(config.status());
  artifact::MlfRequest mlf;
  mlf.libraries = loaded.library_pointers();
  mlf.plan = &*plan;
  mlf.params.assign(loaded.executable.params().begin(), loaded.executable.params().end());
  mlf.param_source = executables_.param_source();
  if (!request.model_name().empty()) mlf.model_name = request.model_name();
  mlf.ir_text = loaded.executable.ir_text();
  for (const target::Target& target : config->targets) mlf.targets.push_back(target.ToString());
  mlf.c_interface = config->executor.interface_api == target::InterfaceApi::kC;
  mlf.unpacked_api = config->executor.unpacked_api;
  mlf.system_lib = config->runtime.system_lib;
  mlf.workspace_alignment = config->executor.workspace_byte_alignment;
  mlf.output = directory->path() + "/model.tar";
  if (absl::Status written = artifact::WriteModelLibrary(mlf); !written.ok()) return ToGrpc(written);
  auto tar = FileSystem::Default()->Read(mlf.output, kMapAbove);
  if (!tar.ok()) return ToGrpc(tar.status());
  proto::ExportLibraryChunk chunk;
  chunk.set_library_size(static_cast<int64_t>(tar->data.size()));
  if (!writer->Write(chunk)) return grpc::Status::CANCELLED;
  for (size_t at = 0; at < tar->data.size(); at += kChunkBytes) {
    chunk.Clear();
    chunk.set_library(std::string(tar->data.substr(at, kChunkBytes)));
    if (!writer->Write(chunk)) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::Jit(grpc::ServerContext* context, const proto::JitRequest* request,
                                     proto::JitResponse* response) {
  Admission admission(this);
  if (grpc::Status status = admission.Check(context); !status.ok()) return status;
  if (!deps_.jit_enabled) {
    return ToGrpc(absl::FailedPreconditionError(
        "this server's configuration does not trust its cache for JIT (trust_cache_for_jit=false): export instead"));
  }
  if (request->num_threads() < 0 || request->num_threads() > 1024) {
    return ToGrpc(absl::InvalidArgumentError(absl::StrCat("num_threads ", request->num_threads(), ": 0 to 1024")));
  }
  const absl::Time start = absl::Now();
  auto loaded = executables_.Load(request->executable());
  if (!loaded.ok()) return ToGrpc(loaded.status());
  if (IsCrt((*loaded)->executable)) {
    return ToGrpc(absl::FailedPreconditionError(
        "the executable is for runtime crt: sources or objects that are built for the device. Write them with "
        "export_library(\"model.tar\") and build that with the device's compiler; to run the model here, compile it "
        "with runtime cpp"));
  }
  for (const proto::StaticLibrary* library : (*loaded)->library_pointers()) {
    if (deps_.trust_client_kernels || !library->manifest().has_client_code()) continue;
    return ToGrpc(absl::FailedPreconditionError(absl::StrCat(
        "the executable holds C kernels that came with the model (", library->manifest().functions(0).symbol(),
        "), which this server does not run: load it in your own process (jit()), export it, or have the server "
        "configured with trust_client_kernels")));
  }
  if (absl::Status room = deps_.handles->CheckRoom((*loaded)->param_bytes); !room.ok()) return ToGrpc(room);
  jit::LoadedModule::Options options;
  options.num_threads = request->num_threads();
  auto get_param = [&](const Digest& digest) -> absl::StatusOr<jit::ParamBytes> {
    INLAY_ASSIGN_OR_RETURN(cache::Blob blob, executables_.Param(digest));
    auto owner = std::make_shared<cache::Blob>(blob);
    return jit::ParamBytes{owner->view(), owner};
  };
  const auto& refs = (*loaded)->executable.params();
  const std::vector<proto::ParamRef> params(refs.begin(), refs.end());
  auto module = jit::LoadedModule::Load((*loaded)->executable.plan_json(), (*loaded)->library_pointers(), params,
                                        get_param, options);
  if (!module.ok()) return ToGrpc(module.status());
  std::shared_ptr<const jit::LoadedModule> shared = *std::move(module);
  for (const runtime::NamedTensor& input : shared->inputs())
    *response->add_inputs() = ToNamedType(input, shared->shapes());
  for (const runtime::NamedTensor& output : shared->outputs())
    *response->add_outputs() = ToNamedType(output, shared->shapes());
  for (int32_t input : shared->updates()) response->add_updates(input);
  auto handle = deps_.handles->Add((*loaded)->digest, std::move(shared), absl::Seconds(request->idle_expiry_s()));
  if (!handle.ok()) return ToGrpc(handle.status());
  response->set_handle(*handle);
  response->set_load_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::Run(grpc::ServerContext* context,
                                     grpc::ServerReaderWriter<proto::RunResponse, proto::RunRequest>* stream) {
  Admission admission(this);
  CancelToken token(DeadlineOf(*context));
  auto watch = watcher_.Add(context, &token, kStallLimit);
  proto::RunRequest message;
  if (!stream->Read(&message)) return ToGrpc(absl::InvalidArgumentError("Run: the stream has no message"));
  auto module = deps_.handles->Get(message.handle());
  if (!module.ok()) return ToGrpc(module.status());
  InputCollector inputs((*module)->inputs(), (*module)->shapes());
  do {
    watch->Touch();
    if (!message.has_input()) continue;  // a model without inputs: the handle alone
    if (absl::Status status = inputs.Add(message.input()); !status.ok()) return ToGrpc(status);
  } while (stream->Read(&message));
  if (absl::Status status = inputs.Finish(); !status.ok()) return ToGrpc(status);

  runtime::CallTypes types;
  runtime::Status match = types.Bind((*module)->shapes(), (*module)->inputs(), (*module)->outputs(), inputs.types());
  if (!match.ok()) return ToGrpc(absl::InvalidArgumentError(match.message()));

  std::vector<AlignedBuffer> outputs;
  std::vector<void*> output_pointers;
  for (const runtime::NamedTensor& output : types.outputs()) {
    outputs.emplace_back(output.type.NumBytes());
    if (outputs.back().data() == nullptr) return ToGrpc(absl::ResourceExhaustedError("no memory for the outputs"));
    output_pointers.push_back(outputs.back().data());
  }
  const absl::Time start = absl::Now();
  std::vector<const void*> input_pointers = inputs.pointers();
  // A model's loop may never end; its client's patience does.
  const auto stop = [&] {
    watch->Touch();
    return !token.status().ok();
  };
  absl::Status ran = (*module)->Run(input_pointers, output_pointers, stop, types.shapes());
  // Stopped for its client: the token knows why. A server's clock may be ahead of the client's.
  if (!ran.ok()) return ToGrpc(token.status().ok() ? ran : token.status());
  const double run_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  watch->Touch();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool last_output = i + 1 == outputs.size();
    bool sent =
        SendTensor(static_cast<int>(i), types.outputs()[i].type, outputs[i].data(), [&](proto::TensorChunk chunk) {
          proto::RunResponse response;
          if (last_output && chunk.last()) response.set_run_ms(run_ms);
          *response.mutable_output() = std::move(chunk);
          watch->Touch();
          return stream->Write(response);
        });
    if (!sent) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::Unload(grpc::ServerContext*, const proto::UnloadRequest* request,
                                        proto::UnloadResponse*) {
  return ToGrpc(deps_.handles->Remove(request->handle()));
}

grpc::Status CompileServiceImpl::ListHandles(grpc::ServerContext*, const proto::ListHandlesRequest*,
                                             proto::ListHandlesResponse* response) {
  for (const HandleTable::Info& info : deps_.handles->List()) {
    proto::ListHandlesResponse::Handle* handle = response->add_handles();
    handle->set_handle(info.handle);
    handle->set_executable(info.executable.hex());
    handle->set_memory_bytes(info.memory_bytes);
    handle->set_runs(info.runs);
    handle->set_idle_s(absl::ToDoubleSeconds(info.idle));
  }
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::GetStats(grpc::ServerContext*, const proto::GetStatsRequest*,
                                          proto::GetStatsResponse* response) {
  for (const auto& [name, value] : deps_.stats()) (*response->mutable_values())[name] = value;
  return grpc::Status::OK;
}

grpc::Status CompileServiceImpl::Drain(grpc::ServerContext* context, const proto::DrainRequest*,
                                       proto::DrainResponse*) {
  if (context->peer().rfind("unix:", 0) != 0) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "Drain is taken over the Unix socket only");
  }
  StopAccepting();
  deps_.drain();
  return grpc::Status::OK;
}

}  // namespace inlay::server
