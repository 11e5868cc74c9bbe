// Program: what `_init` makes of a partition and `_run` executes: oneDNN primitives with their layouts chosen, weights
// packed, memory planned.
//
// Owned by the state pointer of one call site. Run may be called from several threads at once: primitives are read-only
// and each call leases a Context (memory objects and, where the caller's workspace is too small for the layouts that
// this CPU prefers, memory). A Context is made when more calls overlap than ever before; otherwise Run allocates
// nothing (oneDNN itself keeps short-lived nodes of its argument map on the heap).
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backends/onednn/runtime/transpose.h"
#include "core/runtime/kernel_abi.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace inlay::onednn {

// Where the bytes of a tensor are.
struct Storage {
  enum class Kind { kArgument, kState, kTemporary };
  Kind kind = Kind::kTemporary;
  int argument = -1;     // kArgument: index into args
  void* data = nullptr;  // kState
  int64_t bytes = 0;     // kTemporary, at `offset` of the workspace, alive in executions [first, last]
  int64_t offset = 0;
  int first = -1, last = -1;
};

struct Tensor {
  int storage = -1;
  dnnl::memory::desc md;
};

struct Execution {
  std::string label;                      // "step 3 (conv)", for messages
  dnnl::primitive primitive;              // none: `transpose`, of the first argument into the second
  std::vector<std::pair<int, int>> args;  // oneDNN's argument number, tensor
  Transpose transpose;
};

class Program {
 public:
  explicit Program(int num_threads) : engine_(dnnl::engine::kind::cpu, 0), num_threads_(num_threads) {}

  // Throws dnnl::error, std::bad_alloc, std::runtime_error.
  void Run(const InlayCallContext& ctx, void* const* args);

  // One line an execution: its implementation and layouts, as ONEDNN_VERBOSE would say. For tests and benchmarks.
  std::vector<std::string> Describe() const;
  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend class ProgramBuilder;

  struct Context {
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;                        // one a tensor
    std::vector<void*> handles;                                // what they point at now
    std::vector<std::vector<dnnl_exec_arg_t>> execution_args;  // one an execution
    std::unique_ptr<void, void (*)(void*)> workspace{nullptr, nullptr};
  };

  std::unique_ptr<Context> MakeContext() const;
  std::unique_ptr<Context> Lease();
  void Return(std::unique_ptr<Context> context);
  void PointMemories(Context* context, const InlayCallContext& ctx, void* const* args) const;

  dnnl::engine engine_;
  int num_threads_;
  std::vector<Storage> storages_;
  std::vector<Tensor> tensors_;
  std::vector<Execution> executions_;
  int64_t workspace_bytes_ = 0;         // what the executions need
  bool use_callers_workspace_ = false;  // whether the manifest promised as much

  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

// Gives every temporary an offset so that those alive at once don't overlap; returns the bytes needed.
int64_t PlanMemory(std::vector<Storage>* storages);

// Limits OpenMP (oneDNN's thread pool) in the calling thread, for a scope, to n threads. Primitives ask for the number
// of threads that they were made for, whatever the limit; where that is more, and n is 1, parallel regions are switched
// off altogether.
class ThreadScope {
 public:
  ThreadScope(int n, int primitives_n);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
  int now_;
  bool serial_;
  int levels_before_ = 0;
};

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_PROGRAM_H_
