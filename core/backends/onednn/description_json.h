// JSON of a Description, for the two files that write and read it. Reading throws nlohmann::json::exception.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_JSON_H_
#define INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_JSON_H_

#include <nlohmann/json.hpp>

#include "core/backends/onednn/description.h"

namespace inlay::onednn {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Value, dims, constant, literal_offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(View, value, dims, strides)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PostOp, op, alpha, beta, operand)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Step, op, algorithm, args, out, strides, dilations, pads_begin, pads_end, kernel,
                                   axis, alpha, beta, epsilon, post_ops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Description, version, num_inputs, values, outputs, channels_last_inputs,
                                   channels_last_outputs, steps, workspace_bytes, fpmath)

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_DESCRIPTION_JSON_H_
