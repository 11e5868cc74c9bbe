// Where the bytes of parameters come from when they are linked or written: the pipeline gives one over its BlobStore.
#ifndef INLAY_CORE_ARTIFACT_PARAM_SOURCE_H_
#define INLAY_CORE_ARTIFACT_PARAM_SOURCE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/digest.h"

namespace inlay::artifact {

// Hands the whole blob to `sink`, in pieces, in order; stops at the sink's first error and returns it. The linker
// checks size and SHA-256 itself.
using ParamSource =
    std::function<absl::Status(const Digest& digest, const std::function<absl::Status(absl::string_view)>& sink)>;

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_PARAM_SOURCE_H_
