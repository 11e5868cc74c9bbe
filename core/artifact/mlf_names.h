// The C names of a Model Library Format: of the model, its tensors and its kernels; and of types.
#ifndef INLAY_CORE_ARTIFACT_MLF_NAMES_H_
#define INLAY_CORE_ARTIFACT_MLF_NAMES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

struct MlfNames {
  std::string prefix;               // "inlaygen_default"
  std::string upper;                // "INLAYGEN_DEFAULT"
  std::vector<std::string> inputs;  // members of the structs, distinct
  std::vector<std::string> outputs;
  std::vector<std::string> kernels;  // of plan.functions: "inlaygen_default_conv_relu_0"
  std::vector<bool> is_object;       // of plan.functions: whether it is <symbol>_run of an object
  std::map<std::string, const proto::PrimitiveFunction*> functions;  // by symbol

  std::string Param(size_t i) const { return prefix + "_param_" + std::to_string(i); }
  std::string Literal(size_t i) const { return prefix + "_literal_" + std::to_string(i); }
};

// Kernels get readable names with the model's in them, so that two models of one program do not clash (objects keep
// their symbols, behind functions of those names). INVALID_ARGUMENT: the model's name.
absl::StatusOr<MlfNames> MakeMlfNames(const runtime::ExecutionPlan& plan,
                                      const std::vector<const proto::StaticLibrary*>& libraries,
                                      const std::string& model_name);

// "float"; f16 and bf16 are uint16_t, bool is uint8_t.
const char* CType(runtime::DType dtype);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MLF_NAMES_H_
