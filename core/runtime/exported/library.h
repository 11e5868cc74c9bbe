// Library: the model of an exported library, loaded when it is first used. One a library, made at first use.
//
// Threads: all methods may be called from any.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_LIBRARY_H_
#define INLAY_CORE_RUNTIME_EXPORTED_LIBRARY_H_

#include <memory>
#include <mutex>
#include <string>

#include "core/runtime/executor.h"
#include "core/runtime/exported/params.h"
#include "core/runtime/exported/result_tensors.h"
#include "core/runtime/exported/tables.h"

namespace inlay::runtime {

class Library {
 public:
  explicit Library(const InlayLibraryTable& table) : table_(table) {}

  // Whether this machine can run it: format, CPU, the shared libraries that it needs. These stay loaded.
  Status CheckCompatibility() const;

  // CheckCompatibility, then finds the parameters, runs the load steps; once. A failure is not remembered: what
  // hindered it (a missing file) may be gone next time.
  StatusOr<std::shared_ptr<const Executor>> Get();

  // The parameters' file instead of "<library>.safetensors"; before the first Get.
  Status SetParamsPath(const std::string& path);
  // Takes effect at once; a loaded model is loaded anew, for its state may depend on it. Calls under way end as they
  // began. 0 = the plan's default.
  Status SetNumThreads(int num_threads);

  ResultTensors& results() { return results_; }

  std::string manifest() const { return std::string(table_.manifest, table_.manifest_bytes); }

 private:
  StatusOr<std::shared_ptr<const Executor>> Load() const;

  const InlayLibraryTable& table_;
  std::mutex mutex_;
  std::shared_ptr<const Executor> executor_;
  std::string params_path_;
  int num_threads_ = 0;
  ResultTensors results_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_LIBRARY_H_
