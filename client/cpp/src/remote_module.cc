#include "client/cpp/src/remote_module.h"

#include <tvm/ffi/container/array.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/src/client_impl.h"
#include "client/cpp/src/wire.h"

namespace inlay {
namespace {

// The handle on the server, held by the module and by functions taken from it.
struct Handle {
  std::shared_ptr<Client> client;
  std::string name;
  Signature signature;
  std::vector<int> updates;  // of each output the input whose new value it is, -1: none
  CallOptions run;
  ~Handle() { client->impl().Unload(name); }
};

[[noreturn]] void Throw(const absl::Status& status) {
  const bool invalid = absl::IsInvalidArgument(status);
  throw tvm::ffi::Error(invalid                    ? "ValueError"
                        : absl::IsNotFound(status) ? "KeyError"
                                                   : "RuntimeError",
                        std::string(status.message()), "");
}

void Run(const Handle& handle, tvm::ffi::PackedArgs args, Any* result) {
  const std::vector<TensorSpec>& specs = handle.signature.inputs;
  if (static_cast<size_t>(args.size()) != specs.size()) {
    const auto name = [](std::string* out, const TensorSpec& spec) { *out += spec.name; };
    TVM_FFI_THROW(TypeError) << "main takes " << specs.size() << " input(s) (" << absl::StrJoin(specs, ", ", name)
                             << "), not " << args.size();
  }
  std::vector<Tensor> inputs;
  for (int i = 0; i < args.size(); ++i) inputs.push_back(args[i].cast<Tensor>());
  for (const int updated : handle.updates) {
    if (updated < 0 || inputs[updated].IsContiguous()) continue;
    TVM_FFI_THROW(ValueError) << "input " << updated << " '" << specs[updated].name
                              << "' is updated in place: it must be dense and row-major";
  }
  absl::StatusOr<std::vector<Tensor>> outputs =
      handle.client->impl().Run(handle.name, inputs, handle.signature.outputs.size(), handle.run);
  if (!outputs.ok()) Throw(outputs.status());
  for (size_t o = 0; o < outputs->size() && o < handle.updates.size(); ++o) {
    if (handle.updates[o] < 0) continue;
    const Tensor& input = inputs[handle.updates[o]];
    const absl::string_view bytes = BytesOf((*outputs)[o]);
    if (!bytes.empty()) {
      std::memcpy(static_cast<char*>(input.data_ptr()) + input.byte_offset(), bytes.data(), bytes.size());
    }
    (*outputs)[o] = input;
  }
  if (outputs->size() == 1) {
    *result = (*outputs)[0];
  } else {
    *result = tvm::ffi::Array<Tensor>(outputs->begin(), outputs->end());
  }
}

class RemoteObj final : public NodeObj {
 public:
  RemoteObj(std::shared_ptr<const Handle> handle)  // NOLINT
      : NodeObj("remote", Module::kRunnable, handle->name), handle_(std::move(handle)) {}

  tvm::ffi::Optional<Function> GetFunction(const tvm::ffi::String& name) final {
    if (name != "main") return std::nullopt;
    return Function::FromPacked(
        [handle = handle_](tvm::ffi::PackedArgs args, Any* result) { Run(*handle, args, result); });
  }
  const Signature* signature() const final { return &handle_->signature; }
  std::string why_not_exported() const final { return "it is loaded on a server: export its Executable"; }

 private:
  const std::shared_ptr<const Handle> handle_;
};

}  // namespace

Module RemoteModule(std::shared_ptr<Client> client, const proto::JitResponse& response, const CallOptions& run) {
  auto handle = std::make_shared<Handle>();
  handle->client = std::move(client);
  handle->run = run;
  handle->name = response.handle();
  for (const auto& input : response.inputs()) handle->signature.inputs.push_back(SpecOf(input.name(), input.type()));
  for (const auto& output : response.outputs()) {
    handle->signature.outputs.push_back(SpecOf(output.name(), output.type()));
  }
  for (const int input : response.updates()) {
    handle->updates.push_back(input < static_cast<int>(handle->signature.inputs.size()) ? input : -1);
  }
  return tvm::ffi::Module(tvm::ffi::make_object<RemoteObj>(std::move(handle)));
}

}  // namespace inlay
