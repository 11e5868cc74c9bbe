#include "core/backends/onednn/runtime/program.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace inlay::onednn {
namespace {

constexpr int64_t kAlignment = 64;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

ThreadScope::ThreadScope(int n, int primitives_n)
    : before_(omp_get_max_threads()), now_(n), serial_(n == 1 && primitives_n > 1) {
  if (now_ != before_) omp_set_num_threads(now_);
  if (!serial_) return;
  levels_before_ = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
}
ThreadScope::~ThreadScope() {
  if (serial_) omp_set_max_active_levels(levels_before_);
  if (now_ != before_) omp_set_num_threads(before_);
}

int64_t PlanMemory(std::vector<Storage>* storages) {
  std::vector<Storage*> by_size;
  for (Storage& storage : *storages) {
    if (storage.kind == Storage::Kind::kTemporary && storage.first >= 0) by_size.push_back(&storage);
  }
  std::stable_sort(by_size.begin(), by_size.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  int64_t total = 0;
  std::vector<Storage*> placed;  // by offset
  for (Storage* storage : by_size) {
    int64_t offset = 0;
    for (const Storage* other : placed) {
      if (other->last < storage->first || storage->last < other->first) continue;
      if (offset + storage->bytes <= other->offset) break;
      offset = std::max(offset, AlignUp(other->offset + other->bytes));
    }
    storage->offset = offset;
    total = std::max(total, AlignUp(offset + storage->bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), storage, [](auto* a, auto* b) { return a->offset < b->offset; }),
        storage);
  }
  return total;
}

std::unique_ptr<Program::Context> Program::MakeContext() const {
  auto context = std::make_unique<Context>();
  context->stream = dnnl::stream(engine_);
  for (const Tensor& tensor : tensors_) {
    const Storage& storage = storages_[tensor.storage];
    void* data = storage.kind == Storage::Kind::kState ? storage.data : nullptr;
    context->memories.emplace_back(tensor.md, engine_, data);
    context->handles.push_back(data);
  }
  for (const Execution& execution : executions_) {
    std::vector<dnnl_exec_arg_t> args;
    for (auto [number, tensor] : execution.args) args.push_back({number, context->memories[tensor].get()});
    context->execution_args.push_back(std::move(args));
  }
  if (!use_callers_workspace_ && workspace_bytes_ > 0) {
    void* block = std::aligned_alloc(kAlignment, AlignUp(workspace_bytes_));
    if (block == nullptr) throw std::bad_alloc();
    context->workspace = {block, std::free};
  }
  return context;
}

std::unique_ptr<Program::Context> Program::Lease() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      auto context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return MakeContext();
}

void Program::Return(std::unique_ptr<Context> context) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(context));
}

void Program::PointMemories(Context* context, const InlayCallContext& ctx, void* const* args) const {
  char* workspace = static_cast<char*>(use_callers_workspace_ ? ctx.workspace : context->workspace.get());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Storage& storage = storages_[tensors_[i].storage];
    void* data = storage.data;
    if (storage.kind == Storage::Kind::kArgument) data = args[storage.argument];
    if (storage.kind == Storage::Kind::kTemporary) data = workspace + storage.offset;
    if (data == context->handles[i]) continue;
    context->memories[i].set_data_handle(data);
    context->handles[i] = data;
  }
}

void Program::Run(const InlayCallContext& ctx, void* const* args) {
  if (use_callers_workspace_ && workspace_bytes_ > 0 && ctx.workspace == nullptr) {
    throw std::runtime_error("no workspace was given");
  }
  const int threads = std::max(1, std::min<int>(ctx.num_threads, num_threads_));
  ThreadScope scope(threads, num_threads_);
  auto context = Lease();
  PointMemories(context.get(), ctx, args);
  for (size_t i = 0; i < executions_.size(); ++i) {
    if (!executions_[i].primitive) {
      const auto& args_of = executions_[i].args;
      RunTranspose(executions_[i].transpose, static_cast<const float*>(context->handles[args_of[0].second]),
                   static_cast<float*>(context->handles[args_of[1].second]));
      continue;
    }
    const auto& execution_args = context->execution_args[i];
    dnnl_status_t status = dnnl_primitive_execute(executions_[i].primitive.get(), context->stream.get(),
                                                  static_cast<int>(execution_args.size()), execution_args.data());
    if (status != dnnl_success) throw dnnl::error(status, executions_[i].label.c_str());
  }
  Return(std::move(context));
}

std::vector<std::string> Program::Describe() const {
  std::vector<std::string> lines;
  for (const Execution& execution : executions_) {
    const char* info = "transpose";
    if (execution.primitive)
      dnnl_primitive_desc_query(execution.primitive.get_primitive_desc(), dnnl_query_impl_info_str, 0, &info);
    lines.push_back(execution.label + " " + info);
  }
  return lines;
}

}  // namespace inlay::onednn
