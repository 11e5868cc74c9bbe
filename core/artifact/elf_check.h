// What one relocatable object holds, as far as linking and loading need to know; and the refusal of what neither can
// do. LLVM's object reader stays in elf_check.cc.
#ifndef INLAY_CORE_ARTIFACT_ELF_CHECK_H_
#define INLAY_CORE_ARTIFACT_ELF_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay::artifact {

struct ObjectSymbols {
  std::vector<std::string> strong;     // defined, global
  std::vector<std::string> weak;       // defined, weak
  std::vector<std::string> undefined;  // wanted from elsewhere
  int64_t loaded_bytes = 0;            // of the sections that a load maps
};

// FAILED_PRECONDITION: not a whole relocatable ELF file for `architecture` ("x86_64", "aarch64"), or it has
// thread-local storage, static constructors, sections both writable and executable, indirect functions, or relocations
// that need a fixed address.
absl::StatusOr<ObjectSymbols> ReadObject(absl::string_view data, absl::string_view architecture);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_ELF_CHECK_H_
