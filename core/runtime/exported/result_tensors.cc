#include "core/runtime/exported/result_tensors.h"

#include <tvm/ffi/extra/c_env_api.h>

#include "core/runtime/exported/dlpack_args.h"

namespace inlay::runtime {
namespace {

// What malloc keeps of smaller ones serves as well.
constexpr int64_t kLarge = int64_t{1} << 20;
constexpr size_t kKeptOfEach = 2;

// Neither the caller nor an array made from the tensor holds it, nor a weak reference that could become a strong one.
bool IsOursAlone(TVMFFIObjectHandle tensor) {
  constexpr uint64_t kOneReference = (uint64_t{1} << 32) | 1;  // all strong ones together hold a weak one
  const auto* object = static_cast<const TVMFFIObject*>(tensor);
  return __atomic_load_n(&object->combined_ref_count, __ATOMIC_ACQUIRE) == kOneReference;
}

}  // namespace

ResultTensors::~ResultTensors() {
  for (const Kept& kept : kept_) TVMFFIObjectDecRef(kept.tensor);
}

Status ResultTensors::Get(const TensorType& type, size_t num_outputs, TVMFFIObjectHandle* tensor) {
  if (type.NumBytes() < kLarge || TVMFFIEnvGetDLPackManagedTensorAllocator() != nullptr) {
    return AllocateOutput(type, tensor);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Kept& kept : kept_) {
    if (!(kept.type == type) || !IsOursAlone(kept.tensor)) continue;
    TVMFFIObjectIncRef(kept.tensor);
    *tensor = kept.tensor;
    return Status();
  }
  if (Status s = AllocateOutput(type, tensor); !s.ok()) return s;
  TVMFFIObjectIncRef(*tensor);
  kept_.push_back({type, *tensor});
  if (kept_.size() > kKeptOfEach * num_outputs) {
    TVMFFIObjectDecRef(kept_.front().tensor);
    kept_.pop_front();
  }
  return Status();
}

}  // namespace inlay::runtime
