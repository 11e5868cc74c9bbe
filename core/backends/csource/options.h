// The attributes of the codegen target "csource", checked: what compiler, what options, which kernels of the user's.
// README.md has the table.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_OPTIONS_H_
#define INLAY_CORE_BACKENDS_CSOURCE_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/csource/user_kernel.h"
#include "core/target/target.h"
#include "core/target/target_kinds.h"

namespace inlay::csource {

struct Options {
  std::string compiler_path;
  std::vector<std::string> cflags;  // the user's, or -O3
  std::vector<UserKernel> kernels;
};

const std::vector<target::AttrSpec>& Attrs();

// INVALID_ARGUMENT names the attribute or the option that can't be used and says which can.
absl::StatusOr<Options> ParseOptions(const target::Target& target, const target::Target& codegen_target);

// Of one option of cflags. `target`: the device, completed: code must not ask for more than it has.
absl::Status CheckFlag(const std::string& flag, const target::Target& target);

// The compiler's arguments for the target, the user's options, and what an object of inlay's must be (position
// independent, integers that wrap). Without input and output.
std::vector<std::string> CompilerArguments(const target::Target& target, const Options& options);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_OPTIONS_H_
