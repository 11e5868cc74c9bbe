#include "core/backend/testing/cases.h"

#include <cstdio>
#include <cstdlib>

#include "core/backend/backend.h"

namespace inlay::backend::testing {

ir::VarPtr CaseBuilder::In(const Shape& shape, ir::DType dtype) {
  return builder_.Param("x" + std::to_string(function_.params.size()), ir::MakeTensorType(dtype, shape));
}

ir::VarPtr CaseBuilder::Weight(const Shape& shape, ir::DType dtype) {
  constant_params_.push_back(static_cast<int64_t>(function_.params.size()));
  return builder_.Param("w" + std::to_string(function_.params.size()), ir::MakeTensorType(dtype, shape));
}

namespace {

// Whether a backend may take Winograd's way. Its errors are relative to the terms: results are of magnitude 5, those
// that cancel have as much error.
bool IsWinogradConv(const std::string& op, const std::vector<ir::Operand>& args) {
  if (op != "conv") return false;
  const CaseBuilder::Shape x = args[0].tensor_type().Shape(), w = args[1].tensor_type().Shape();
  return w.size() == 4 && w[2] == 3 && w[3] == 3 && w[1] == x[1];
}

constexpr double kWinogradAtol = 5e-5;

}  // namespace

ir::VarPtr CaseBuilder::Op(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs) {
  if (IsWinogradConv(op, args)) atol_ = kWinogradAtol;
  auto var = builder_.Call(op, std::move(args), std::move(attrs));
  if (!var.ok()) {
    std::fprintf(stderr, "conformance case: %s\n", var.status().ToString().c_str());
    std::abort();
  }
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
  AddQuantisedCases(&cases);
  AddBf16Cases(&cases);
  return cases;
}

}  // namespace inlay::backend::testing
