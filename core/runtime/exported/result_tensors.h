// ResultTensors: memory of large results, used again once nobody holds them.
//
// A result of many pages that is allocated anew costs a page fault for each of them, a third of the time of a small
// language model (its logits: 49 MB). So the library keeps a reference to the last results, and gives one out again
// whose only reference is its own. A result that outlives the library is the caller's alone then: nothing of it points
// into the library's code.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_RESULT_TENSORS_H_
#define INLAY_CORE_RUNTIME_EXPORTED_RESULT_TENSORS_H_

#include <tvm/ffi/c_api.h>

#include <deque>
#include <mutex>

#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

// Any thread.
class ResultTensors {
 public:
  ResultTensors() = default;
  ~ResultTensors();
  ResultTensors(const ResultTensors&) = delete;
  ResultTensors& operator=(const ResultTensors&) = delete;

  // A tensor with any content: from the caller's allocator where it set one (dlpack_args.h), else possibly one that was
  // given out before. Returns a strong reference in *tensor. Keeps no more than two results for each of the model's
  // `num_outputs`: callers often hold the last one while they ask for the next.
  Status Get(const TensorType& type, size_t num_outputs, TVMFFIObjectHandle* tensor);

 private:
  struct Kept {
    TensorType type;
    TVMFFIObjectHandle tensor;
  };

  std::mutex mutex_;
  std::deque<Kept> kept_;  // oldest first
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_RESULT_TENSORS_H_
