// What oneDNN claims of a model.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_PATTERNS_H_
#define INLAY_CORE_BACKENDS_ONEDNN_PATTERNS_H_

#include <vector>

#include "core/backend/backend.h"

namespace inlay::onednn {

std::vector<backend::PatternRule> MakeRules();

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_PATTERNS_H_
