// GemmProgram: what `_init` makes of a GemmDescription and `_run` executes: the output's tiles, each computed by the
// library and finished by the steps while it is in the cache, spread over the caller's threads.
//
// The library is a GemmEngine; it runs on the thread that calls it. Owned by the state pointer of one call site; Run
// may be called from several threads at once, allocates nothing and does not throw.
#ifndef INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_PROGRAM_H_
#define INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_PROGRAM_H_

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/backends/common/gemm_description.h"
#include "core/backends/common/runtime/gemm_reader.h"
#include "core/backends/common/runtime/gemm_steps.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backends {

// Rows [row, row + rows) and columns [column, column + columns) of one product of the batch.
struct GemmTile {
  int64_t row, rows, column, columns;
};

struct GemmTiling {
  int64_t rows, columns;  // of a tile; those at the end may be smaller
};

struct GemmMatrices {
  const void *a, *b;
};

class GemmEngine {
 public:
  virtual ~GemmEngine() = default;
  virtual GemmTiling Tiling(int num_threads) const = 0;
  // Before the tiles, on the calling thread: packs what changes from call to call into ctx.workspace, with the batch
  // strides of the original, and points to it.
  virtual void Prepare(const InlayCallContext& ctx, GemmMatrices* matrices) const {}
  // The tile of C = A B; the pointers are those of this product's matrices.
  virtual void Multiply(const void* a, const void* b, void* c, const GemmTile& tile) const = 0;
};

class GemmProgram {
 public:
  // Throws std::runtime_error where a step is unknown.
  GemmProgram(GemmDescription description, std::unique_ptr<GemmEngine> engine);

  void Run(const InlayCallContext& ctx, void* const* args) const;

 private:
  struct Step {
    StepOp op;
    double alpha, beta;
    GemmOperand operand;
    float number;
  };
  struct Call;
  void RunTiles(const Call& call, int64_t begin, int64_t end) const;
  template <typename T>
  void RunSteps(const Call& call, int64_t product, const GemmTile& tile) const;
  int64_t BatchOffset(const GemmOperand& operand, int64_t product) const;

  GemmDescription d_;
  std::unique_ptr<GemmEngine> engine_;
  std::vector<Step> steps_;
  bool is_split_ = false;  // over the caller's threads
};

// The three functions of a shim. make_engine(description, ctx, args) makes the library's engine and may throw.
template <typename MakeEngine>
int32_t InitGemm(const char* component, const InlayCallContext* ctx, void* const* args, void** state,
                 const char* description, int64_t size, const MakeEngine& make_engine) {
  auto fail = [ctx](int32_t code, const char* message) {
    ctx->set_error(ctx->owner, code, message);
    return code;
  };
  try {
    GemmDescription d = ReadGemm(description, size);
    auto engine = make_engine(d, *ctx, args);
    *state = new GemmProgram(std::move(d), std::move(engine));
    return INLAY_OK;
  } catch (const std::bad_alloc&) {
    return fail(INLAY_E_NO_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    try {
      return fail(INLAY_E_LIBRARY, (std::string(component) + ": " + e.what()).c_str());
    } catch (const std::bad_alloc&) {
      return fail(INLAY_E_NO_MEMORY, "out of memory");
    }
  }
}
inline int32_t RunGemm(const InlayCallContext* ctx, void* const* args) {
  static_cast<const GemmProgram*>(ctx->state)->Run(*ctx, args);
  return INLAY_OK;
}
inline void DestroyGemm(void* state) { delete static_cast<GemmProgram*>(state); }

// Memory of the state. Throws std::bad_alloc.
inline void* AllocateState(const InlayCallContext& ctx, int64_t bytes) {
  void* data = ctx.alloc(ctx.owner, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

// parallel_for with a callable: task(begin, end). On the caller's thread where it is allowed one.
template <typename Task>
void ForEach(const InlayCallContext& ctx, int64_t n, const Task& task) {
  if (ctx.num_threads <= 1 || n <= 1 || ctx.parallel_for == nullptr) {
    task(0, n);
    return;
  }
  ctx.parallel_for(
      ctx.pool, n,
      [](void* closure, int64_t begin, int64_t end, int32_t) { (*static_cast<const Task*>(closure))(begin, end); },
      const_cast<Task*>(&task));
}

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_PROGRAM_H_
