// JSON of a Description, for the two files that write and read it. Reading throws nlohmann::json::exception.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_JSON_H_
#define INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_JSON_H_

#include <nlohmann/json.hpp>

#include "core/backends/xnnpack/description.h"

namespace inlay::xnnpack {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Value, elements, constant, literal_offset, offset, output)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Clamp, has_min, has_max, min, max)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Step, op, algorithm, args, out, batch, height, width, channels, out_height,
                                   out_width, out_channels, groups, kernel, strides, dilations, adjustment, pads, rows,
                                   transposed_weights, parts, dims, alpha, clamp)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Description, version, num_inputs, num_outputs, values, steps, workspace_bytes,
                                   split_macs)

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_DESCRIPTION_JSON_H_
