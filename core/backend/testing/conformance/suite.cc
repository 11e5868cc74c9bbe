#include "core/backend/testing/conformance/suite.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/backend/testing/reference.h"
#include "core/ir/literal.h"
#include "core/ir/structural_hash.h"

namespace inlay::backend::testing {

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (const Backend* backend : BackendRegistry::Global().All()) {
    if (CodegenRegistry::Global().Find(backend->name()) != nullptr) names.push_back(backend->name());
  }
  return names;
}

const Backend& GetBackend(const std::string& name) { return *BackendRegistry::Global().Find(name); }
const BackendCodegen& GetCodegen(const std::string& name) { return *CodegenRegistry::Global().Find(name); }

target::Target TestTarget() { return *target::Target::Parse("llvm -mcpu=x86-64-v3")->Completed(); }

absl::StatusOr<proto::StaticLibrary> Compile(const std::string& backend, const ir::Function& partition,
                                             const std::string& symbol) {
  ir::IRModule module;
  module.functions[symbol] = partition;
  target::Target codegen_target;
  codegen_target.kind = backend;
  const char* tmp = std::getenv("TEST_TMPDIR");
  CodegenRequest request{module, TestTarget(), codegen_target, tmp == nullptr ? "/tmp" : tmp};
  return GetCodegen(backend).Codegen(request);
}

absl::StatusOr<proto::StaticLibrary> CompileOnce(const std::string& backend, const ir::Function& partition) {
  static auto* const known = new std::map<std::string, absl::StatusOr<proto::StaticLibrary>>;
  const std::string key = absl::StrCat(backend, " ", ir::StructuralHash(partition).hex());
  auto found = known->find(key);
  if (found == known->end()) found = known->emplace(key, Compile(backend, partition)).first;
  return found->second;
}

std::vector<std::string> MakeInputs(const ir::Function& function, const Case& c, int seed) {
  std::vector<std::string> inputs;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(c.low, c.high);
  for (const ir::VarPtr& param : function.params) {
    const ir::TensorType& type = param->type.tensor();
    std::string bytes;
    for (int64_t i = 0; i < type.NumElements(); ++i) {
      if (ir::IsFloat(type.dtype)) {
        ir::AppendDouble(type.dtype, uniform(random), &bytes);
      } else {
        const bool is_byte = type.dtype == ir::DType::kI8 || type.dtype == ir::DType::kU8;
        const auto value = static_cast<int64_t>(random() % (is_byte ? 256 : 2));
        ir::AppendInt(type.dtype, type.dtype == ir::DType::kI8 ? value - 128 : value, &bytes);
      }
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

std::string Compare(const ir::Function& function, const Case& c, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) {
  std::vector<RefTensor> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    arguments.push_back(FromBytes(function.params[i]->type.tensor(), inputs[i]));
  }
  auto expected = Evaluate(function, arguments);
  if (!expected.ok()) return std::string(expected.status().message());
  if (expected->size() != outputs.size()) return "another number of results";
  double worst = 0;
  std::string where;
  for (size_t r = 0; r < outputs.size(); ++r) {
    const RefTensor& want = (*expected)[r];
    const RefTensor got = FromBytes(want.type, outputs[r]);
    for (size_t i = 0; i < want.values.size(); ++i) {
      const double a = want.values[i], b = got.values[i];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      double excess = std::abs(a - b) / (c.atol + c.rtol * std::abs(a));
      if (std::isnan(excess)) excess = INFINITY;
      if (excess <= 1 || excess <= worst) continue;
      worst = excess;
      where = absl::StrCat("result ", r, " element ", i, ": ", b, ", expected ", a);
    }
  }
  return where;
}

}  // namespace inlay::backend::testing
