#include "core/artifact/run/model.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/runtime/exported/dlpack_dtype.h"

namespace inlay::run {
namespace {

using runtime::FailedPrecondition;
using runtime::Status;
using runtime::StatusOr;

StatusOr<void*> OpenLibrary(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) return FailedPrecondition(path + " is missing: the bundle is not whole");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* error = dlerror();
  return FailedPrecondition(path + " can't be loaded: " + (error == nullptr ? "unknown error" : error));
}

// An array as the argument of a call; it and the array must outlive the call.
struct Tensor {
  std::vector<int64_t> shape, strides;
  DLTensor dl = {};
  explicit Tensor(const Array& array) : shape(array.type.shape), strides(shape.size()) {
    int64_t stride = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t axis = array.fortran_order ? i : shape.size() - 1 - i;
      strides[axis] = stride;
      stride *= shape[axis];
    }
    dl.data = const_cast<char*>(array.data.data());
    dl.device = {kDLCPU, 0};
    dl.ndim = static_cast<int32_t>(shape.size());
    dl.dtype = runtime::ToDLPack(array.type.dtype);
    dl.shape = shape.data();
    dl.strides = strides.data();
  }
};

}  // namespace

StatusOr<Model> Model::Open(const std::string& folder) {
  Model model;
  StatusOr<void*> ffi = OpenLibrary(folder + "/lib/libtvm_ffi.so");
  if (!ffi.ok()) return ffi.status();
  model.ffi_ = *ffi;
  StatusOr<void*> library = OpenLibrary(folder + "/model.so");
  if (!library.ok()) return library.status();
  model.library_ = *library;
  if (Status s = model.ReadMetadata(); !s.ok()) return s;
  return model;
}

Status Model::ReadMetadata() {
  std::string text;
  if (Status s = Call("get_metadata", {}, &text); !s.ok()) return s;
  try {
    const nlohmann::json manifest = nlohmann::json::parse(text);
    StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(manifest.at("plan").dump());
    if (!plan.ok()) return FailedPrecondition("model.so: " + plan.status().message());
    plan_ = std::move(*plan);
    compatibility_ = manifest.at("compatibility").get<std::string>();
    for (const auto& backend : manifest.at("backends")) {
      backends_ += (backends_.empty() ? "" : ", ") + backend.at("name").get<std::string>();
    }
  } catch (const std::exception& e) {
    return FailedPrecondition(std::string("model.so: its manifest can't be read: ") + e.what());
  }
  return Status();
}

Status Model::Call(const std::string& function, const std::vector<Argument>& args, std::string* text) const {
  auto* call = reinterpret_cast<TVMFFISafeCallType>(dlsym(library_, ("__tvm_ffi_" + function).c_str()));
  auto* take_error = reinterpret_cast<decltype(&TVMFFIErrorMoveFromRaised)>(dlsym(ffi_, "TVMFFIErrorMoveFromRaised"));
  auto* release = reinterpret_cast<decltype(&TVMFFIObjectDecRef)>(dlsym(ffi_, "TVMFFIObjectDecRef"));
  if (call == nullptr || take_error == nullptr || release == nullptr) {
    return FailedPrecondition("model.so has no function '" + function + "', or lib/libtvm_ffi.so is another version");
  }
  std::vector<Tensor> tensors;
  tensors.reserve(args.size());
  std::vector<TVMFFIAny> values(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    values[i] = {};
    if (args[i].array == nullptr) {
      values[i].type_index = kTVMFFIInt;
      values[i].v_int64 = args[i].number;
      continue;
    }
    tensors.emplace_back(*args[i].array);
    values[i].type_index = kTVMFFIDLTensorPtr;
    values[i].v_ptr = &tensors.back().dl;
  }
  TVMFFIAny result = {};
  if (call(nullptr, values.data(), static_cast<int32_t>(values.size()), &result) == 0) {
    if (text != nullptr && result.type_index == kTVMFFIStr) {
      const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(result.v_obj);
      text->assign(bytes->data, bytes->size);
    }
    if (text != nullptr && result.type_index == kTVMFFISmallStr) {
      const TVMFFIByteArray bytes = TVMFFISmallBytesGetContentByteArray(&result);
      text->assign(bytes.data, bytes.size);
    }
    if (result.type_index >= kTVMFFIStaticObjectBegin) release(result.v_obj);
    return Status();
  }
  TVMFFIObjectHandle error = nullptr;
  take_error(&error);
  if (error == nullptr) return FailedPrecondition(function + " failed without a message");
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  const std::string kind(cell->kind.data, cell->kind.size);
  Status status(kind == "ValueError" ? runtime::Code::kInvalidArgument : runtime::Code::kFailedPrecondition,
                std::string(cell->message.data, cell->message.size));
  release(error);
  return status;
}

Status Model::SetNumThreads(int num_threads) const { return Call("set_num_threads", {{nullptr, num_threads}}); }

Status Model::Run(const std::vector<Array>& inputs, std::vector<Array>* outputs) const {
  std::vector<Argument> args;
  for (const Array& input : inputs) args.push_back({&input, 0});
  for (const Array& output : *outputs) args.push_back({&output, 0});
  return Call("main_into", args);
}

}  // namespace inlay::run
