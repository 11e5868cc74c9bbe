// Short spellings for tests of the IR and of passes.
#ifndef INLAY_CORE_IR_TESTING_H_
#define INLAY_CORE_IR_TESTING_H_

#include <string>
#include <vector>

#include "core/ir/ir_module.h"
#include "core/ir/literal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::ir::testing {

inline TensorType F32(std::vector<Dim> dims) { return TensorType{DType::kF32, std::move(dims)}; }
inline TensorType I64(std::vector<Dim> dims) { return TensorType{DType::kI64, std::move(dims)}; }

inline ConstantPtr Weight(std::vector<int64_t> shape, std::string name = "w", DType dtype = DType::kF32) {
  return MakeWeight(MakeTensorType(dtype, shape), Digest::Of(name), name);
}

inline ConstantPtr FloatLiteral(std::vector<int64_t> shape, const std::vector<double>& values,
                                DType dtype = DType::kF32) {
  std::string data;
  for (double v : values) AppendDouble(dtype, v, &data);
  return MakeLiteral(MakeTensorType(dtype, shape), data);
}

inline ConstantPtr IntLiteral(std::vector<int64_t> shape, const std::vector<int64_t>& values,
                              DType dtype = DType::kI64) {
  std::string data;
  for (int64_t v : values) AppendInt(dtype, v, &data);
  return MakeLiteral(MakeTensorType(dtype, shape), data);
}

// A Builder whose calls must succeed.
class FunctionBuilder {
 public:
  FunctionBuilder() : builder_(&function) {}
  VarPtr Param(std::string name, TensorType type) { return builder_.Param(std::move(name), std::move(type)); }
  VarPtr Call(absl::string_view op, std::vector<Operand> args, Attrs attrs = {}, std::string location = "") {
    absl::StatusOr<VarPtr> var = builder_.Call(op, std::move(args), std::move(attrs), std::move(location));
    if (!var.ok()) {
      ADD_FAILURE() << op << ": " << var.status();
      return MakeVar("failed", F32({}));
    }
    return *var;
  }
  VarPtr GetItem(VarPtr tuple, int index) { return *builder_.GetItem(std::move(tuple), index); }
  void Return(std::vector<Operand> results) { builder_.Return(std::move(results)); }
  IRModule Module() const {
    IRModule module;
    module.functions["main"] = function;
    return module;
  }

  Function function;

 private:
  Builder builder_;
};

MATCHER_P(IsInvalid, text, "INVALID_ARGUMENT with '" + std::string(text) + "'") {
  *result_listener << arg;
  return arg.code() == absl::StatusCode::kInvalidArgument && std::string(arg.message()).find(text) != std::string::npos;
}

}  // namespace inlay::ir::testing

#endif  // INLAY_CORE_IR_TESTING_H_
