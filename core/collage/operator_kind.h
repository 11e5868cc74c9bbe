// What a partition spends its time on, in a word: estimates are off by the same factor for partitions of a kind.
#ifndef INLAY_CORE_COLLAGE_OPERATOR_KIND_H_
#define INLAY_CORE_COLLAGE_OPERATOR_KIND_H_

#include <string>

#include "core/ir/ir_module.h"

namespace inlay::collage {

// Of the call with the most multiply-adds or elements: "matmul", "matmul of a row", "conv 1x1", "conv 3x3",
// "conv grouped", "conv depthwise", "conv", "pointwise", "movement", "reduction", else the operator's name ("lstm").
// "attention" where there are two products and a softmax.
std::string OperatorKind(const ir::Function& partition);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_OPERATOR_KIND_H_
