// An exported library, and where they lie beside it its parameters, in memory: nothing is written to a disk.
#ifndef INLAY_CLIENT_CPP_SRC_MEMORY_LIBRARY_H_
#define INLAY_CLIENT_CPP_SRC_MEMORY_LIBRARY_H_

#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/src/output_file.h"
#include "core/base/file_system.h"
#include "inlay/module.h"

namespace inlay {

// tvm-ffi wants a path with a suffix, so each is a memfd behind a symlink in a private folder. Write what arrives to
// `library` and `params`, then Load, once. What was loaded outlives this.
class MemoryLibrary {
 public:
  static absl::StatusOr<MemoryLibrary> Make();
  absl::StatusOr<Module> Load(int num_threads);

 private:
  MemoryLibrary(TempDir folder, OutputFile library, OutputFile params)
      : library(std::move(library)), params(std::move(params)), folder_(std::move(folder)) {}

 public:
  OutputFile library, params;

 private:
  TempDir folder_;
};

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_MEMORY_LIBRARY_H_
