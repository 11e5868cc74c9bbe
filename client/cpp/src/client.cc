#include "inlay/client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/src/client_impl.h"
#include "client/cpp/src/errors.h"
#include "client/cpp/src/wire.h"
#include "core/base/status_macros.h"
#include "proto/compile_service.grpc.pb.h"

namespace inlay {
namespace {

namespace pb = proto;

constexpr size_t kChunkBytes = 1 << 20;     // of streamed blobs and tensors
constexpr int kMaxMessageBytes = 64 << 20;  // the server's default bound; GetServerInfo says the real one
constexpr int kRetries = 8;
constexpr int kFirstContactRetries = 2;                    // where no server has answered at the address yet
constexpr absl::Duration kRetryLimit = absl::Seconds(60);  // of waiting, all in all
constexpr absl::Duration kShort = absl::Seconds(60);       // bound of a call that moves no data

std::string OneLine(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n\r\t"), absl::SkipEmpty()), " ");
}

// client/python/inlay/server_errors.py has the same words. `invalid`: the kind of what the server says is wrong.
absl::Status FromRpc(const grpc::Status& error, absl::string_view what, const std::string& address, ErrorKind invalid) {
  const auto code = static_cast<absl::StatusCode>(error.error_code());
  const std::string details = OneLine(error.error_message());
  auto make = [&](ErrorKind kind, const std::string& text) { return MakeError(kind, code, text, details); };
  switch (error.error_code()) {
    case grpc::UNAVAILABLE:
      return make(ErrorKind::kServerUnavailable,
                  absl::StrCat("no server at ", address, " (", details,
                               "); start one with `inlay serve`, or name another in $INLAY_SERVER"));
    case grpc::RESOURCE_EXHAUSTED:
      return make(ErrorKind::kServerBusy,
                  absl::StrCat(what, ": the server is full (", details, "); try again later, or use another server"));
    case grpc::DEADLINE_EXCEEDED:
      return make(ErrorKind::kDeadlineExceeded,
                  absl::StrCat(what, ": not finished within the timeout; give it more time"));
    case grpc::CANCELLED:
      return make(ErrorKind::kCancelled, absl::StrCat(what, ": cancelled"));
    case grpc::UNIMPLEMENTED:
      return make(ErrorKind::kUnsupported, absl::StrCat(what, ": not supported: ", details));
    case grpc::PERMISSION_DENIED:
    case grpc::UNAUTHENTICATED:
      return make(ErrorKind::kServer, absl::StrCat(what, ": the server at ", address, " refuses: ", details));
    case grpc::NOT_FOUND:  // of a compile: a name in the configuration
      return make(what == "compile" || what == "check config" ? invalid : ErrorKind::kNotFound,
                  absl::StrCat(what, ": ", details));
    case grpc::INVALID_ARGUMENT:
    case grpc::FAILED_PRECONDITION:
    case grpc::OUT_OF_RANGE:
      return make(invalid, absl::StrCat(what, ": ", details));
    default:
      return make(invalid, absl::StrCat(what, ": the server failed (", absl::StatusCodeToString(code), "): ", details));
  }
}

double Jitter(double low, double high) {
  thread_local std::mt19937 random{std::random_device{}()};
  return std::uniform_real_distribution<double>(low, high)(random);
}

// How long to wait before a retry; absl::InfiniteDuration() where none makes sense.
absl::Duration RetryDelay(const grpc::Status& error, const grpc::ClientContext& context, int attempt) {
  if (error.error_code() != grpc::UNAVAILABLE && error.error_code() != grpc::RESOURCE_EXHAUSTED) {
    return absl::InfiniteDuration();
  }
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto asked = trailing.find("retry-delay-ms");
  double ms = 0;
  if (asked != trailing.end() && absl::SimpleAtod({asked->second.data(), asked->second.size()}, &ms)) {
    return absl::Milliseconds(ms * Jitter(1.0, 1.3));
  }
  // Without a delay a full server means a bound (a message's size, memory), which no waiting changes.
  if (error.error_code() == grpc::RESOURCE_EXHAUSTED) return absl::InfiniteDuration();
  return absl::Seconds(std::min(0.1 * std::pow(2.0, attempt), 5.0) * Jitter(0.7, 1.3));
}

// A message at a time of blobs that the server lacks.
absl::Status CheckMessageSize(size_t size, int64_t limit) {
  if (limit == 0) limit = kMaxMessageBytes;
  if (static_cast<int64_t>(size) <= limit) return absl::OkStatus();
  return MakeError(ErrorKind::kCompile, absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the module is ", size, " bytes without its weights, the server takes ", limit,
                                ": large tensors in it should be weights (digests), or raise the server's "
                                "--max_message_bytes"));
}

}  // namespace

class Client::Impl::Connection {
 public:
  Connection(const std::string& address, std::string token) : address_(address), token_(std::move(token)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    arguments.SetMaxSendMessageSize(kMaxMessageBytes);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // done here, where the server's retry delay is known
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    stub_ =
        pb::CompileService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  // Calls once; `attempt` gives the RPC's status. `bound`: of this call, beside the user's deadline.
  grpc::Status Once(const CallContext& call, absl::Duration bound, grpc::ClientContext* context,
                    const std::function<grpc::Status(pb::CompileService::Stub&, grpc::ClientContext*)>& attempt) {
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
    const absl::Time now = absl::Now(), deadline = std::min(call.deadline, now + bound);
    // gRPC counts milliseconds: a call that is fast enough would still be made.
    if (deadline <= now) return grpc::Status(grpc::DEADLINE_EXCEEDED, "no time was left");
    if (deadline != absl::InfiniteFuture()) context->set_deadline(absl::ToChronoTime(deadline));
    std::unique_ptr<CancelToken::Registration> registration;
    if (call.cancellation != nullptr) {
      registration = call.cancellation->impl().token.OnCancel([context] { context->TryCancel(); });
    }
    const grpc::Status status = attempt(*stub_, context);
    if (status.ok()) has_answered_ = true;
    return status;
  }

  // Again after a delay where the server is full or away.
  absl::Status Call(absl::string_view what, const CallContext& call, absl::Duration bound,
                    const std::function<grpc::Status(pb::CompileService::Stub&, grpc::ClientContext*)>& attempt) {
    const absl::Time give_up = std::min(call.deadline, absl::Now() + kRetryLimit);
    for (int number = 0;; ++number) {
      grpc::ClientContext context;
      const grpc::Status status = Once(call, bound, &context, attempt);
      if (status.ok()) return absl::OkStatus();
      const absl::Duration delay = RetryDelay(status, context, number);
      // A server that has never answered is rather not there than restarting.
      const bool busy = status.error_code() == grpc::RESOURCE_EXHAUSTED;
      const int last = has_answered_ || busy ? kRetries : kFirstContactRetries;
      const bool cancelled = call.cancellation != nullptr && !call.cancellation->impl().token.status().ok();
      if (number >= last || absl::Now() + delay > give_up || cancelled) {
        return FromRpc(status, what, address_, ErrorKind::kCompile);
      }
      absl::SleepFor(delay);
    }
  }

  absl::Mutex info_mutex;
  std::unique_ptr<pb::GetServerInfoResponse> info ABSL_GUARDED_BY(info_mutex);

 private:
  const std::string address_;
  const std::string token_;
  std::unique_ptr<pb::CompileService::Stub> stub_;
  std::atomic<bool> has_answered_{false};
};

Client::Impl::Impl(std::string address, std::string token)
    : address(std::move(address)), connection(std::make_unique<Connection>(this->address, std::move(token))) {}
Client::Impl::~Impl() = default;

absl::StatusOr<pb::GetServerInfoResponse> Client::Impl::Info(const CallContext& call) {
  {
    absl::MutexLock lock(&connection->info_mutex);
    if (connection->info != nullptr) return *connection->info;
  }
  auto response = std::make_unique<pb::GetServerInfoResponse>();
  INLAY_RETURN_IF_ERROR(connection->Call("server info", call, absl::Seconds(10), [&](auto& stub, auto* context) {
    return stub.GetServerInfo(context, pb::GetServerInfoRequest(), response.get());
  }));
  absl::MutexLock lock(&connection->info_mutex);
  connection->info = std::move(response);
  return *connection->info;
}

absl::StatusOr<pb::CompilationConfig> Client::Impl::Check(const pb::CompilationConfig& config,
                                                          const CallContext& call) {
  pb::CheckConfigRequest request;
  *request.mutable_config() = config;
  pb::CheckConfigResponse response;
  INLAY_RETURN_IF_ERROR(connection->Call("check config", call, kShort, [&](auto& stub, auto* context) {
    return stub.CheckConfig(context, request, &response);
  }));
  return response.config();
}

absl::StatusOr<std::map<std::string, double>> Client::Impl::Stats(const CallContext& call) {
  pb::GetStatsResponse response;
  INLAY_RETURN_IF_ERROR(connection->Call("stats", call, absl::Seconds(10), [&](auto& stub, auto* context) {
    return stub.GetStats(context, pb::GetStatsRequest(), &response);
  }));
  return std::map<std::string, double>(response.values().begin(), response.values().end());
}

absl::StatusOr<int64_t> Client::Impl::Upload(const IRModule::Impl& module, const OnProgress& progress,
                                             const CallContext& call) {
  if (module.weights->empty()) return 0;
  pb::FindMissingBlobsRequest request;
  for (const auto& [digest, weight] : *module.weights) request.add_digests(std::string(digest.bytes()));
  pb::FindMissingBlobsResponse found;
  INLAY_RETURN_IF_ERROR(connection->Call("find missing weights", call, kShort, [&](auto& stub, auto* context) {
    return stub.FindMissingBlobs(context, request, &found);
  }));
  std::vector<Weights::const_iterator> missing;
  int64_t total = 0;
  for (const std::string& bytes : found.missing()) {
    INLAY_ASSIGN_OR_RETURN(const Digest digest, Digest::FromBytes(bytes));
    const auto it = module.weights->find(digest);
    if (it == module.weights->end()) continue;
    missing.push_back(it);
    total += static_cast<int64_t>(it->second.bytes.size());
  }
  if (missing.empty()) return 0;
  INLAY_RETURN_IF_ERROR(Check(module.proto.config(), call).status());
  INLAY_RETURN_IF_ERROR(connection->Call("upload weights", call, absl::InfiniteDuration(),
                                         [&](auto& stub, auto* context) -> grpc::Status {
                                           pb::UploadBlobsResponse response;
                                           auto writer = stub.UploadBlobs(context, &response);
                                           int64_t sent = 0;
                                           bool good = true;
                                           for (const auto& it : missing) {
                                             absl::string_view data = it->second.bytes;
                                             pb::UploadBlobsRequest message;
                                             message.set_digest(std::string(it->first.bytes()));
                                             message.set_size(static_cast<int64_t>(data.size()));
                                             do {
                                               const absl::string_view piece = data.substr(0, kChunkBytes);
                                               message.set_data(piece.data(), piece.size());
                                               if (!(good = writer->Write(message))) break;
                                               message.Clear();
                                               data.remove_prefix(piece.size());
                                               sent += static_cast<int64_t>(piece.size());
                                               if (progress) progress({"upload", sent, total, ""});
                                             } while (!data.empty());
                                             if (!good) break;
                                           }
                                           writer->WritesDone();
                                           return writer->Finish();
                                         }));
  return total;
}

absl::StatusOr<pb::CompileEvent::Result> Client::Impl::Compile(const IRModule::Impl& module, const OnProgress& progress,
                                                               const OnPass& on_pass, int64_t* uploaded,
                                                               const CallContext& call) {
  std::random_device random;
  pb::CompileRequest request;
  *request.mutable_module() = module.proto;
  request.set_request_id(absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8),
                                      absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8)));
  request.set_want_passes(static_cast<bool>(on_pass));
  INLAY_ASSIGN_OR_RETURN(const pb::GetServerInfoResponse info, Info(call));
  INLAY_RETURN_IF_ERROR(CheckMessageSize(request.ByteSizeLong(), info.max_message_bytes()));
  for (bool again = false;; again = true) {
    INLAY_ASSIGN_OR_RETURN(const int64_t bytes, Upload(module, progress, call));
    if (uploaded != nullptr) *uploaded += bytes;
    pb::CompileEvent::Result result;
    bool has_result = false;
    const absl::Status status = connection->Call("compile", call, absl::InfiniteDuration(),
                                                 [&](auto& stub, grpc::ClientContext* context) -> grpc::Status {
                                                   context->AddMetadata("request-id", request.request_id());
                                                   auto reader = stub.Compile(context, request);
                                                   pb::CompileEvent event;
                                                   while (reader->Read(&event)) {
                                                     if (event.has_result()) {
                                                       result = event.result();
                                                       has_result = true;
                                                     } else if (event.has_pass() && on_pass) {
                                                       on_pass(event.pass());
                                                     } else if (event.has_progress() && progress) {
                                                       const auto& p = event.progress();
                                                       progress({p.phase(), p.done(), p.total(), p.detail()});
                                                     }
                                                   }
                                                   return reader->Finish();
                                                 });
    if (status.ok() && has_result) return result;
    if (status.ok()) {
      return MakeError(ErrorKind::kCompile, absl::StatusCode::kInternal,
                       "compile: the server ended the stream without a result; see its log");
    }
    // A weight was evicted between upload and compile: once more.
    if (status.code() != absl::StatusCode::kFailedPrecondition || again || module.weights->empty()) return status;
  }
}

absl::Status Client::Impl::Export(const pb::ExportLibraryRequest& request, const OnChunk& on_chunk,
                                  const CallContext& call) {
  // Not retried once begun: what came was used.
  grpc::ClientContext context;
  absl::Status written;
  const grpc::Status status =
      connection->Once(call, absl::InfiniteDuration(), &context, [&](auto& stub, grpc::ClientContext* c) {
        auto reader = stub.ExportLibrary(c, request);
        pb::ExportLibraryChunk chunk;
        while (reader->Read(&chunk)) {
          written = on_chunk(chunk);
          if (!written.ok()) {
            c->TryCancel();
            break;
          }
        }
        return reader->Finish();
      });
  if (!written.ok()) return written;
  return status.ok() ? absl::OkStatus() : FromRpc(status, "export", address, ErrorKind::kCompile);
}

absl::StatusOr<pb::JitResponse> Client::Impl::Jit(const pb::JitRequest& request, const CallContext& call) {
  pb::JitResponse response;
  INLAY_RETURN_IF_ERROR(connection->Call("jit", call, absl::Seconds(300), [&](auto& stub, auto* context) {
    return stub.Jit(context, request, &response);
  }));
  return response;
}

void Client::Impl::Unload(const std::string& handle) {
  pb::UnloadRequest request;
  request.set_handle(handle);
  pb::UnloadResponse response;
  grpc::ClientContext context;
  (void)connection->Once({}, kShort, &context, [&](auto& stub, auto* c) { return stub.Unload(c, request, &response); });
}

namespace {

// Puts the chunks of the outputs together.
class Outputs {
 public:
  explicit Outputs(size_t count) : tensors_(count), filled_(count, 0) {}

  absl::Status Add(const pb::TensorChunk& chunk) {
    const size_t i = chunk.index();
    if (i >= tensors_.size()) return Bad(absl::StrCat("data of an output ", i));
    if (chunk.has_type()) {
      const TensorSpec spec = SpecOf("", chunk.type());
      absl::StatusOr<Tensor> tensor = EmptyTensor(spec.dtype, spec.shape);
      if (!tensor.ok()) return Bad(absl::StrCat("output ", i, " as ", tensor.status().message()));
      tensors_[i] = *tensor;
    }
    if (!tensors_[i].has_value()) return Bad(absl::StrCat("data of output ", i, " before its type"));
    const size_t size = BytesOf(*tensors_[i]).size();
    if (chunk.data().size() > size - filled_[i]) return Bad(absl::StrCat("more than ", size, " bytes of output ", i));
    std::memcpy(static_cast<char*>(tensors_[i]->data_ptr()) + filled_[i], chunk.data().data(), chunk.data().size());
    filled_[i] += chunk.data().size();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Tensor>> Finish() const {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].has_value() || filled_[i] != BytesOf(*tensors_[i]).size()) {
        return Bad(absl::StrCat("an answer that ends before output ", i, " is complete"));
      }
      tensors.push_back(*tensors_[i]);
    }
    return tensors;
  }

 private:
  static absl::Status Bad(const std::string& what) {
    return MakeError(ErrorKind::kRun, absl::StatusCode::kInternal, absl::StrCat("run: the server sent ", what));
  }
  std::vector<std::optional<Tensor>> tensors_;
  std::vector<size_t> filled_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> Client::Impl::Run(const std::string& handle, const std::vector<Tensor>& inputs,
                                                      size_t num_outputs, const CallContext& call) {
  std::vector<pb::TensorType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StatusOr<pb::TensorType> type = TypeOf(inputs[i]);
    if (!type.ok()) {
      return MakeError(ErrorKind::kRun, type.status().code(),
                       absl::StrCat("run: input ", i, " is ", type.status().message()));
    }
    types.push_back(*std::move(type));
  }
  Outputs outputs(num_outputs);
  absl::Status received;
  grpc::ClientContext context;
  const grpc::Status status =
      connection->Once(call, absl::InfiniteDuration(), &context, [&](auto& stub, grpc::ClientContext* c) {
        auto stream = stub.Run(c);
        pb::RunRequest request;
        request.set_handle(handle);
        bool good = true;
        for (size_t i = 0; i < inputs.size() && good; ++i) {
          absl::string_view data = BytesOf(inputs[i]);
          *request.mutable_input()->mutable_type() = types[i];
          do {
            const absl::string_view piece = data.substr(0, kChunkBytes);
            request.mutable_input()->set_index(static_cast<int>(i));
            request.mutable_input()->set_data(piece.data(), piece.size());
            data.remove_prefix(piece.size());
            request.mutable_input()->set_last(data.empty());
            good = stream->Write(request);
            request.Clear();
          } while (good && !data.empty());
        }
        if (inputs.empty()) stream->Write(request);
        stream->WritesDone();
        pb::RunResponse response;
        while (received.ok() && stream->Read(&response)) {
          if (response.has_output()) received = outputs.Add(response.output());
        }
        if (!received.ok()) c->TryCancel();
        return stream->Finish();
      });
  INLAY_RETURN_IF_ERROR(received);
  if (!status.ok()) return FromRpc(status, "run", address, ErrorKind::kRun);
  return outputs.Finish();
}

Cancellation::Cancellation() : impl_(std::make_unique<Impl>()) {}
Cancellation::~Cancellation() = default;
void Cancellation::Cancel() { impl_->token.Cancel(); }

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

const std::string& Client::address() const { return impl_->address; }
bool Client::is_local() const { return absl::StartsWith(impl_->address, "unix:"); }

namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where the command `inlay` has this user's daemon listen (client/python/inlay/daemon.py).
std::string OwnSocket() {
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty() && access(runtime.c_str(), W_OK) == 0) return runtime + "/inlay/inlayd.sock";
  const std::string cache = Environment("XDG_CACHE_HOME");
  return (cache.empty() ? Environment("HOME") + "/.cache" : cache) + "/inlay/run/inlayd.sock";
}

}  // namespace

absl::StatusOr<std::shared_ptr<Client>> Client::Connect(absl::string_view address, absl::string_view token) {
  std::string chosen(address);
  if (chosen.empty()) chosen = Environment("INLAY_SERVER");
  if (chosen.empty()) {
    const std::string socket = OwnSocket();
    if (access(socket.c_str(), F_OK) != 0) {
      return MakeError(ErrorKind::kServerUnavailable, absl::StatusCode::kUnavailable,
                       absl::StrCat("no daemon of yours runs (there is no ", socket,
                                    "); start one with `inlay serve`, or name a server in $INLAY_SERVER"));
    }
    chosen = "unix:" + socket;
  }
  return std::make_shared<Client>(std::make_unique<Impl>(std::move(chosen), std::string(token)));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(const CallOptions& options) {
  INLAY_ASSIGN_OR_RETURN(const pb::GetServerInfoResponse response, impl_->Info(options));
  ServerInfo info;
  info.version = response.version();
  for (const pb::BackendInfo& backend : response.backends()) {
    info.backends.push_back({backend.name(), backend.version(), backend.on_request(), backend.unusable()});
  }
  info.host = FromProto(response.host());
  info.num_workers = response.num_workers();
  info.max_message_bytes = response.max_message_bytes();
  info.pid = response.pid();
  return info;
}

absl::StatusOr<CompilationConfig> Client::CheckConfig(const CompilationConfig& config, const CallOptions& options) {
  INLAY_ASSIGN_OR_RETURN(const pb::CompilationConfig request, ToProto(config));
  INLAY_ASSIGN_OR_RETURN(const pb::CompilationConfig completed, impl_->Check(request, options));
  return FromProto(completed);
}

absl::StatusOr<std::map<std::string, double>> Client::Stats(const CallOptions& options) {
  return impl_->Stats(options);
}

}  // namespace inlay
