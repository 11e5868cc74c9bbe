// Runs a C compiler: source in, relocatable object out. Nothing goes through a shell; files are in the action's own
// scratch directory under names that do not depend on it, so that equal sources give equal objects wherever they are
// compiled. Time and memory are the worker's to limit: the compiler is in its process group, and ends with it. It has a
// limit of its own on its processor time besides.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_COMPILE_H_
#define INLAY_CORE_BACKENDS_CSOURCE_COMPILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay::csource {

struct CompileJob {
  std::string compiler_path;
  std::vector<std::string> arguments;
  std::string scratch_dir;
  std::string name;  // of the files: letters, digits, '_'
  std::string source;
};

// INVALID_ARGUMENT: the compiler refuses, with the first lines of what it says. RESOURCE_EXHAUSTED: it was killed.
absl::StatusOr<std::string> CompileC(const CompileJob& job);

// "gcc 12.2.0 (0123456789abcdef)": name, version, and a hash of the programs and libraries that it consists of,
// wherever they lie. Cached by path.
std::string CompilerIdentity(const std::string& name, const std::string& path);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_COMPILE_H_
