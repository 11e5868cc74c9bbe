#include "core/backend/testing/cases.h"

#include <cstdio>
#include <cstdlib>

#include "core/backend/backend.h"

namespace inlay::backend::testing {

ir::VarPtr CaseBuilder::In(const Shape& shape, ir::DType dtype) {
  return builder_.Param("x" + std::to_string(function_.params.size()), ir::MakeTensorType(dtype, shape));
}

ir::VarPtr CaseBuilder::Weight(const Shape& shape) {
  constant_params_.push_back(static_cast<int64_t>(function_.params.size()));
  return builder_.Param("w" + std::to_string(function_.params.size()), ir::MakeTensorType(ir::DType::kF32, shape));
}

ir::VarPtr CaseBuilder::Op(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs) {
  auto var = builder_.Call(op, std::move(args), std::move(attrs));
  if (!var.ok()) {
    std::fprintf(stderr, "conformance case: %s\n", var.status().ToString().c_str());
    std::abort();
  }
  if (op == "conv") atol_ = kConvAtol;
  return *var;
}

Case CaseBuilder::Done(std::string name, std::vector<ir::Operand> results) {
  builder_.Return(std::move(results));
  function_.attrs.Set(kConstantParams, constant_params_);
  Case result;
  result.name = std::move(name);
  result.function = std::move(function_);
  result.atol = atol_;
  return result;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  AddContractionCases(&cases);
  AddOtherCases(&cases);
  AddFusedCases(&cases);
  AddAttentionCases(&cases);
  return cases;
}

}  // namespace inlay::backend::testing
