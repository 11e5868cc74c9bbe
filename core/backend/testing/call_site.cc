#include "core/backend/testing/call_site.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace inlay::backend::testing {
namespace {

void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure) {
  const int64_t threads = std::min<int64_t>(n, *static_cast<int32_t*>(pool));
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) {
    others.emplace_back([=] { task(closure, n * i / threads, n * (i + 1) / threads, static_cast<int32_t>(i)); });
  }
  if (n > 0) task(closure, 0, n / std::max<int64_t>(threads, 1), 0);
  for (std::thread& other : others) other.join();
}

}  // namespace

CallSite::CallSite(const ir::Function& function, int num_threads, const std::vector<std::string>& inputs)
    : function_(function) {
  for (size_t i = 0; i < function.params.size(); ++i) {
    const int64_t bytes = function.params[i]->type.tensor().NumBytes();
    args_.push_back(New(bytes));
    if (i < inputs.size()) {
      std::memcpy(args_.back(), inputs[i].data(), bytes);
    } else {
      auto* data = static_cast<float*>(args_.back());
      for (int64_t j = 0; j < bytes / 4; ++j) data[j] = 0.01f * static_cast<float>(j % 7 - 3);
    }
  }
  for (const ir::Operand& result : function.body.results) args_.push_back(New(result.tensor_type().NumBytes()));
  context_.num_threads = num_threads;
  context_.pool = &context_.num_threads;
  context_.parallel_for = ParallelFor;
  context_.owner = this;
  context_.alloc = [](void* owner, int64_t bytes) { return static_cast<CallSite*>(owner)->New(bytes); };
  context_.set_error = [](void* owner, int32_t, const char* text) { static_cast<CallSite*>(owner)->error_ = text; };
}

CallSite::~CallSite() {
  for (void* block : blocks_) std::free(block);
}

void* CallSite::New(int64_t bytes) {
  blocks_.push_back(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  std::memset(blocks_.back(), 0, bytes);
  return blocks_.back();
}

std::vector<std::string> CallSite::Outputs() const {
  std::vector<std::string> outputs;
  for (size_t i = 0; i < function_.body.results.size(); ++i) {
    outputs.emplace_back(static_cast<const char*>(args_[function_.params.size() + i]),
                         function_.body.results[i].tensor_type().NumBytes());
  }
  return outputs;
}

}  // namespace inlay::backend::testing
