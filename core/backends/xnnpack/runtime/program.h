// Program: what `_init` makes of a partition and `_run` executes: XNNPACK operators with their weights packed.
//
// Owned by the state pointer of one call site. Run may be called from several threads at once. An operator holds the
// addresses of its tensors, so each step has a lock: calls that overlap follow each other through the steps. Values
// live in each call's own workspace. Run allocates nothing.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backends/common/transpose.h"
#include "core/backends/xnnpack/runtime/operators.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::xnnpack {

// Where the bytes of a value are.
struct Location {
  enum class Kind { kNowhere, kArgument, kState, kWorkspace };
  Kind kind = Kind::kNowhere;
  int argument = -1;      // kArgument: index into args
  float* data = nullptr;  // kState
  int64_t offset = 0;     // kWorkspace
};

struct Execution {
  std::string label;  // "step 3 (conv)", for messages
  std::vector<Location> args;
  Location out;
  backends::Transpose transpose;  // where there are no pieces
  std::vector<Piece> pieces;
  std::mutex mutex;
};

class Program {
 public:
  // Throws LibraryError, std::runtime_error.
  void Run(const InlayCallContext& ctx, void* const* args);

  size_t num_pieces() const;  // of all steps; for tests

 private:
  friend class ProgramBuilder;

  std::vector<std::unique_ptr<Execution>> executions_;
  int64_t workspace_bytes_ = 0;
};

// Runs one step, in as many threads as ctx allows. `args` and ctx.workspace may be null where no location needs them.
void RunExecution(Execution* execution, const InlayCallContext& ctx, void* const* args);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_PROGRAM_H_
