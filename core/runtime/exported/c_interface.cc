// The C interface of an exported library (executor aot, interface-api c): what its generated header declares
// (client/python/inlay/c_header.py). Kept and exported only where the linker is asked for it.
#include <exception>
#include <string>

#include "core/runtime/exported/library.h"
#include "core/runtime/exported/the_library.h"

namespace {

thread_local std::string last_error;

template <typename F>
int32_t Safely(F f) {
  inlay::runtime::Status status;
  try {
    status = f();
  } catch (const std::exception& e) {
    status = inlay::runtime::Internal(e.what());
  }
  if (status.ok()) return 0;
  last_error = status.message();
  return static_cast<int32_t>(status.code());
}

}  // namespace

#define INLAY_EXPORT extern "C" __attribute__((visibility("default")))

// NULL: as the library was made, its parameters inside or beside it.
INLAY_EXPORT int32_t inlay_model_load(const char* params_path) {
  return Safely([&]() -> inlay::runtime::Status {
    if (params_path != nullptr) {
      if (inlay::runtime::Status s = inlay::runtime::TheLibrary().SetParamsPath(params_path); !s.ok()) return s;
    }
    return inlay::runtime::TheLibrary().Get().status();
  });
}

// Structs of pointers to dense data, in the model's order.
INLAY_EXPORT int32_t inlay_model_run(const void* const* inputs, void* const* outputs) {
  return Safely([&]() -> inlay::runtime::Status {
    auto executor = inlay::runtime::TheLibrary().Get();
    if (!executor.ok()) return executor.status();
    const inlay::runtime::ExecutionPlan& plan = (*executor)->plan();
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      if (inputs[i] == nullptr) return inlay::runtime::InvalidArgument("input '" + plan.inputs[i].name + "' is NULL");
    }
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      if (outputs[i] == nullptr) {
        return inlay::runtime::InvalidArgument("output '" + plan.outputs[i].name + "' is NULL");
      }
    }
    return (*executor)->Run(inputs, outputs);
  });
}

// Of the calling thread's last call that failed.
INLAY_EXPORT const char* inlay_model_error() { return last_error.c_str(); }
