// An exported library of a bundle, called as tvm-ffi does. Nothing is linked: libtvm_ffi is loaded from the bundle's
// lib/, so that a missing file is an error that names it.
#ifndef INLAY_CORE_ARTIFACT_RUN_MODEL_H_
#define INLAY_CORE_ARTIFACT_RUN_MODEL_H_

#include <string>
#include <vector>

#include "core/artifact/run/npy.h"
#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::run {

using Spec = runtime::NamedTensor;

class Model {
 public:
  // `folder`/model.so, with `folder`/lib/libtvm_ffi.so. FAILED_PRECONDITION: a file is missing or damaged.
  static runtime::StatusOr<Model> Open(const std::string& folder);

  const std::vector<Spec>& inputs() const { return plan_.inputs; }
  const std::vector<Spec>& outputs() const { return plan_.outputs; }
  const runtime::OpenShapes& shapes() const { return plan_.shapes; }  // what of these is open
  // What a machine must have, in one line, and whether this one has it.
  const std::string& compatibility() const { return compatibility_; }
  const std::string& backends() const { return backends_; }
  runtime::Status CheckCompatibility() const { return Call("check_compatibility", {}); }

  runtime::Status SetNumThreads(int num_threads) const;
  // Packs weights: what the first Run would do otherwise.
  runtime::Status Load() const { return Call("load", {}); }
  // Arrays in the order of inputs() and outputs(); the latter are of the right size already.
  runtime::Status Run(const std::vector<Array>& inputs, std::vector<Array>* outputs) const;

 private:
  struct Argument {
    const Array* array = nullptr;  // nullptr: `number`
    int64_t number = 0;
  };
  Model() = default;
  runtime::Status Call(const std::string& function, const std::vector<Argument>& args,
                       std::string* text = nullptr) const;
  runtime::Status ReadMetadata();

  void* library_ = nullptr;
  void* ffi_ = nullptr;
  runtime::ExecutionPlan plan_;
  std::string compatibility_, backends_;
};

}  // namespace inlay::run

#endif  // INLAY_CORE_ARTIFACT_RUN_MODEL_H_
