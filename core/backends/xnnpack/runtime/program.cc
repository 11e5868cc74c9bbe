#include "core/backends/xnnpack/runtime/program.h"

#include <atomic>

namespace inlay::xnnpack {
namespace {

// Below so many elements a transpose stays in the calling thread.
constexpr int64_t kMinElements = 32 << 10;

float* Resolve(const Location& location, const InlayCallContext& ctx, void* const* args) {
  switch (location.kind) {
    case Location::Kind::kArgument:
      return static_cast<float*>(args[location.argument]);
    case Location::Kind::kWorkspace:
      return reinterpret_cast<float*>(static_cast<char*>(ctx.workspace) + location.offset);
    default:
      return location.data;
  }
}

void ForEach(const InlayCallContext& ctx, bool split, int64_t n, InlayTask task, void* closure) {
  if (split && n > 1 && ctx.num_threads > 1) return ctx.parallel_for(ctx.pool, n, task, closure);
  task(closure, 0, n, 0);
}

struct TransposeTask {
  const backends::Transpose& transpose;
  const float* from;
  float* to;
};

void RunTranspose(const backends::Transpose& t, const InlayCallContext& ctx, const float* from, float* to) {
  TransposeTask task{t, from, to};
  const bool split = t.batch * t.rows * t.columns >= kMinElements;
  ForEach(
      ctx, split, t.NumPieces(),
      [](void* closure, int64_t begin, int64_t end, int32_t) {
        auto* task = static_cast<TransposeTask*>(closure);
        backends::TransposePieces(task->transpose, task->from, task->to, begin, end);
      },
      &task);
}

struct PiecesTask {
  Execution* execution;
  const InlayCallContext& ctx;
  void* const* args;
  std::atomic<int> status{xnn_status_success};
};

xnn_status RunPiece(const PiecesTask& task, const Piece& piece) {
  const Execution& e = *task.execution;
  const float* a = Resolve(e.args[piece.a_arg], task.ctx, task.args) + piece.a_offset;
  const float* b = piece.b_arg < 0 ? nullptr : Resolve(e.args[piece.b_arg], task.ctx, task.args) + piece.b_offset;
  float* out = Resolve(e.out, task.ctx, task.args) + piece.out_offset;
  const xnn_status status = piece.setup(piece.op.get(), a, b, out);
  return status == xnn_status_success ? xnn_run_operator(piece.op.get(), nullptr) : status;
}

}  // namespace

void RunExecution(Execution* execution, const InlayCallContext& ctx, void* const* args) {
  if (execution->pieces.empty()) {
    const float* from = Resolve(execution->args[0], ctx, args);
    return RunTranspose(execution->transpose, ctx, from, Resolve(execution->out, ctx, args));
  }
  PiecesTask task{execution, ctx, args};
  {
    std::lock_guard<std::mutex> lock(execution->mutex);
    ForEach(
        ctx, true, static_cast<int64_t>(execution->pieces.size()),
        [](void* closure, int64_t begin, int64_t end, int32_t) {
          auto* task = static_cast<PiecesTask*>(closure);
          for (int64_t i = begin; i < end; ++i) {
            const xnn_status status = RunPiece(*task, task->execution->pieces[i]);
            if (status != xnn_status_success) task->status = status;
          }
        },
        &task);
  }
  ThrowIfError(static_cast<xnn_status>(task.status.load()), execution->label.c_str());
}

void Program::Run(const InlayCallContext& ctx, void* const* args) {
  if (workspace_bytes_ > 0 && ctx.workspace == nullptr) throw std::runtime_error("xnnpack: no workspace was given");
  for (const auto& execution : executions_) RunExecution(execution.get(), ctx, args);
}

size_t Program::num_pieces() const {
  size_t count = 0;
  for (const auto& execution : executions_) count += execution->pieces.size();
  return count;
}

}  // namespace inlay::xnnpack
