// CallSite: what a shim is called with, without an artifact around it: a call context, arguments, memory.
//
// One thread; parallel_for makes a thread a range for the call: slow, and right.
#ifndef INLAY_CORE_BACKEND_TESTING_CALL_SITE_H_
#define INLAY_CORE_BACKEND_TESTING_CALL_SITE_H_

#include <string>
#include <vector>

#include "core/ir/ir_module.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backend::testing {

class CallSite {
 public:
  // `inputs`: dense bytes, one a parameter; where there are fewer, small numbers that repeat.
  CallSite(const ir::Function& function, int num_threads, const std::vector<std::string>& inputs = {});
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  const InlayCallContext& context() const { return context_; }
  void* const* args() const { return args_.data(); }
  std::vector<std::string> Outputs() const;
  void SetWorkspace(int64_t bytes) { context_.workspace = New(bytes); }
  const std::string& error() const { return error_; }  // the last that was set

 private:
  void* New(int64_t bytes);

  const ir::Function& function_;
  InlayCallContext context_ = {};
  std::vector<void*> args_, blocks_;
  std::string error_;
};

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_CALL_SITE_H_
