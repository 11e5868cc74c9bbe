// Parameters and literals as C arrays: <prefix>_params.c.
#ifndef INLAY_CORE_ARTIFACT_MLF_CONSTANTS_H_
#define INLAY_CORE_ARTIFACT_MLF_CONSTANTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/artifact/mlf.h"
#include "core/artifact/mlf_names.h"

namespace inlay::artifact {

struct MlfConstants {
  std::string source;
  int64_t bytes = 0;  // of the arrays: what they take of a read-only memory
};

// INVALID_ARGUMENT where a parameter's bytes are not those of its digest and type.
absl::StatusOr<MlfConstants> WriteMlfConstants(const MlfRequest& request, const MlfNames& names);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MLF_CONSTANTS_H_
