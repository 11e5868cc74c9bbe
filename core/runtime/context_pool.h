// ContextPool: contexts that are made when first needed and used again. Any thread.
#ifndef INLAY_CORE_RUNTIME_CONTEXT_POOL_H_
#define INLAY_CORE_RUNTIME_CONTEXT_POOL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/runtime/status.h"

namespace inlay::runtime {

// Context has bytes().
template <typename Context>
class ContextPool {
 public:
  // make() gives a StatusOr<std::unique_ptr<Context>>.
  template <typename Make>
  StatusOr<std::unique_ptr<Context>> Acquire(Make make) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Context> context = std::move(idle_.back());
        idle_.pop_back();
        return context;
      }
    }
    StatusOr<std::unique_ptr<Context>> context = make();
    if (context.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      bytes_ += (*context)->bytes();
      idle_.reserve(++num_contexts_);  // so that Release never allocates
    }
    return context;
  }

  // `grown`: how many bytes it has more than when it was acquired.
  void Release(std::unique_ptr<Context> context, int64_t grown = 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(context));
    bytes_ += grown;
  }

  int64_t bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> idle_;  // guarded
  int64_t num_contexts_ = 0;                    // guarded; idle or running
  int64_t bytes_ = 0;                           // guarded
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_CONTEXT_POOL_H_
