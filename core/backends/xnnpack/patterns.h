// What XNNPACK claims.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_PATTERNS_H_
#define INLAY_CORE_BACKENDS_XNNPACK_PATTERNS_H_

#include <vector>

#include "core/backend/backend.h"

namespace inlay::xnnpack {

std::vector<backend::PatternRule> MakeRules();

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_PATTERNS_H_
