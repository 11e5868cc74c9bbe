#include "core/runtime/exported/packed.h"

#include <tvm/ffi/c_api.h>

#include <cstring>
#include <vector>

#include "core/runtime/exported/dlpack_args.h"

namespace inlay::runtime {
namespace {

TVMFFIByteArray Bytes(const std::string& text) { return {text.data(), text.size()}; }

// A strong reference to a tvm-ffi object, or a plain value.
struct Owned {
  TVMFFIAny any = {};
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (any.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(any.v_obj);
  }
};

struct Function {
  TVMFFIObjectHandle handle = nullptr;
  ~Function() {
    if (handle != nullptr) TVMFFIObjectDecRef(handle);
  }
  bool Find(const std::string& name) {
    const TVMFFIByteArray bytes = Bytes(name);
    return TVMFFIFunctionGetGlobal(&bytes, &handle) == 0 && handle != nullptr;
  }
};

std::string TakeRaised() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return "an error without a message";
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  std::string text =
      std::string(cell->kind.data, cell->kind.size) + ": " + std::string(cell->message.data, cell->message.size);
  TVMFFIObjectDecRef(error);
  return text;
}

Status TakeOutput(const std::string& what, const TVMFFIAny& given, const PackedTensor& want) {
  if (Status s = CheckTensor(given, {"", *want.type}, what); !s.ok()) return s;
  const DLTensor& tensor = *AsTensor(given);
  const int64_t bytes = want.type->NumBytes();
  if (bytes == 0) return Status();
  if (IsDense(tensor)) {
    std::memcpy(want.data, DataOf(tensor), bytes);
  } else {
    CopyDense(tensor, ByteSize(want.type->dtype), want.data);
  }
  return Status();
}

// Item `i` of an Array.
Status GetItem(const std::string& what, const TVMFFIAny& array, int64_t i, Owned* item) {
  static constexpr char kGet[] = "ffi.ArrayGetItem";
  Function get;
  if (!get.Find(kGet)) return Internal("this tvm-ffi has no ffi.ArrayGetItem");
  TVMFFIAny args[2] = {array, {}};
  args[1].type_index = kTVMFFIInt;
  args[1].v_int64 = i;
  if (TVMFFIFunctionCall(get.handle, args, 2, &item->any) == 0) return Status();
  return InvalidArgument(what + ": " + TakeRaised());
}

}  // namespace

Status CallRegistered(const std::string& name, const PackedTensor* inputs, int num_inputs, const PackedTensor* outputs,
                      int num_outputs) {
  const std::string what = "function '" + name + "' (call_packed)";
  Function function;
  if (!function.Find(name)) {
    return FailedPrecondition(what + " is not registered in this process: inlay.register_func(\"" + name + "\", f)");
  }
  std::vector<Owned> tensors(num_inputs);
  std::vector<TVMFFIAny> args;
  for (int i = 0; i < num_inputs; ++i) {
    TVMFFIObjectHandle tensor = nullptr;
    if (Status s = AllocateOutput(*inputs[i].type, &tensor); !s.ok()) return s;
    tensors[i].any.type_index = kTVMFFITensor;
    tensors[i].any.v_obj = static_cast<TVMFFIObject*>(tensor);
    const int64_t bytes = inputs[i].type->NumBytes();
    if (bytes > 0) std::memcpy(DataOf(*TVMFFITensorGetDLTensorPtr(tensor)), inputs[i].data, bytes);
    args.push_back(tensors[i].any);
  }
  Owned result;
  if (TVMFFIFunctionCall(function.handle, args.data(), num_inputs, &result.any) != 0) {
    return Internal(what + " failed: " + TakeRaised());
  }
  if (num_outputs == 1) return TakeOutput(what + ", its result", result.any, outputs[0]);
  for (int i = 0; i < num_outputs; ++i) {
    Owned item;
    if (Status s = GetItem(what, result.any, i, &item); !s.ok()) return s;
    if (Status s = TakeOutput(what + ", its result " + std::to_string(i), item.any, outputs[i]); !s.ok()) return s;
  }
  return Status();
}

}  // namespace inlay::runtime
