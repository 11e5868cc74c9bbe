// Loads StaticLibraries into a test and calls their functions, as core/runtime/kernel_abi.h says, with every check that
// a caller could make: alignment, memory beyond the ends, inputs that may not be read any more.
#ifndef INLAY_CORE_BACKEND_TESTING_LOADED_LIBRARY_H_
#define INLAY_CORE_BACKEND_TESTING_LOADED_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/runtime/kernel_abi.h"
#include "proto/artifact.pb.h"

namespace inlay::backend::testing {

// The objects, linked by ld.lld into a shared library and opened. Undefined symbols (a backend's shim) come from the
// test's own executable, which is linked with --export-dynamic for that.
class LoadedLibrary {
 public:
  // FAILED_PRECONDITION: linker's or loader's message.
  static absl::StatusOr<std::unique_ptr<LoadedLibrary>> Load(const proto::StaticLibrary& library);
  ~LoadedLibrary();
  void* Find(const std::string& symbol) const;  // nullptr: not there

 private:
  void* handle_ = nullptr;
  std::string path_;
};

// One call site of a function: its state.
class LoadedFunction {
 public:
  // `inputs`: bytes of every input; only the constant ones are used. `library` outlives it.
  static absl::StatusOr<std::unique_ptr<LoadedFunction>> Init(const LoadedLibrary& library,
                                                              const proto::PrimitiveFunction& function,
                                                              const std::vector<std::string>& inputs, int num_threads);
  ~LoadedFunction();

  // Thread-safe. num_threads 0: as many as Init was told.
  absl::StatusOr<std::vector<std::string>> Run(const std::vector<std::string>& inputs, int num_threads = 0) const;

  // Buffers for one call, kept: so that repeated calls show what the function itself allocates.
  class Call;
  std::unique_ptr<Call> Prepare(const std::vector<std::string>& inputs, int num_threads = 0) const;

 private:
  LoadedFunction(const proto::PrimitiveFunction& function, int num_threads);
  struct Memory;
  proto::PrimitiveFunction function_;
  int num_threads_;
  InlayRunFunction run_ = nullptr;
  InlayDestroyFunction destroy_ = nullptr;
  void* state_ = nullptr;
  std::unique_ptr<Memory> memory_;
};

class LoadedFunction::Call {
 public:
  ~Call();
  // OUT_OF_RANGE where it wrote beyond an output or its workspace.
  absl::Status Run();
  std::vector<std::string> Outputs() const;

 private:
  friend class LoadedFunction;
  Call() = default;
  const LoadedFunction* function_ = nullptr;
  std::vector<void*> args_;
  std::vector<std::pair<char*, int64_t>> buffers_;  // all, with their sizes
  InlayCallContext context_ = {};
  struct Error {
    int32_t code = 0;
    std::string message;
  } error_;
};

int64_t ByteSize(const proto::TensorType& type);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_LOADED_LIBRARY_H_
