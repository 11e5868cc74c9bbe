// Partitions to try on every backend: single operators and what backends fuse, on odd shapes.
#ifndef INLAY_CORE_BACKEND_TESTING_CASES_H_
#define INLAY_CORE_BACKEND_TESTING_CASES_H_

#include <string>
#include <utility>
#include <vector>

#include "core/ir/ir_module.h"

namespace inlay::backend::testing {

struct Case {
  std::string name;           // letters, digits, underscores: part of a test's name
  ir::Function function;      // with constant_params
  double low = -1, high = 1;  // inputs are uniform between them
  double rtol = 1e-4, atol = 1e-5;
};

std::vector<Case> AllCases();

// Builds a Case; an operator that does not infer aborts with its message.
class CaseBuilder {
 public:
  using Shape = std::vector<int64_t>;
  CaseBuilder() : builder_(&function_) {}
  ir::VarPtr In(const Shape& shape, ir::DType dtype = ir::DType::kF32);
  // A parameter that is constant after load.
  ir::VarPtr Weight(const Shape& shape, ir::DType dtype = ir::DType::kF32);
  ir::VarPtr Op(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs = {});
  Case Done(std::string name, std::vector<ir::Operand> results);

 private:
  ir::Function function_;
  ir::Builder builder_;
  std::vector<int64_t> constant_params_;
  double atol_ = Case().atol;
};

// Added by one file each.
void AddContractionCases(std::vector<Case>* cases);
void AddOtherCases(std::vector<Case>* cases);
void AddFusedCases(std::vector<Case>* cases);
void AddAttentionCases(std::vector<Case>* cases);
void AddQuantisedCases(std::vector<Case>* cases);
void AddBf16Cases(std::vector<Case>* cases);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_CASES_H_
