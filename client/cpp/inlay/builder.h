// FunctionBuilder: writes an IRModule one operator at a time. Operators, attributes and meanings are those of
// core/ir/OPS.md. The server infers the types of results and says what is wrong with them, naming the location; those
// of the module's own results are Executable::signature().
//
//   inlay::FunctionBuilder b;
//   auto x = b.Param("x", "f32", {1, 64});
//   auto w = b.Weight(tensor, "w");
//   auto y = b.Op("softmax", {b.Op("matmul", {x, w})}, {{"axis", -1}});
//   absl::StatusOr<inlay::IRModule> module = b.Finish({y}, {"probabilities"});
//
// Sizes that are open until a run (executor vm) are texts, in parameters and in operators' attributes:
//
//   auto x = b.Param("x", "f32", {"batch", "seq", 64});
//   auto y = b.Op("reshape", {x}, {{"shape", inlay::Shape{"batch*seq", 64}}});   // the result's dims: "batch*seq", 64
//   module->WithBounds({{"seq", {8, 512}}});
//
// Not thread-safe. Errors (a dtype that there is not, a Var of another builder) are kept, and returned by Finish.
#ifndef INLAY_BUILDER_H_
#define INLAY_BUILDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "inlay/ir_module.h"
#include "inlay/shape.h"
#include "inlay/tensor.h"

namespace inlay {

namespace proto {
class Binding;
class Operand;
}  // namespace proto

class FunctionBuilder {
 public:
  // A value of the function under construction.
  struct Var {
    int index = -1;
    bool constant = false;
    const FunctionBuilder* builder = nullptr;
  };
  struct TensorType {
    std::string dtype;
    Shape shape;
  };

  FunctionBuilder();
  ~FunctionBuilder();
  FunctionBuilder(const FunctionBuilder&) = delete;
  FunctionBuilder& operator=(const FunctionBuilder&) = delete;

  // Parameters are passed in the order of these calls. Every symbol of a module is one of its parameters'.
  Var Param(const std::string& name, const std::string& dtype, const Shape& shape);
  // A constant by digest: no pass looks at its value, no key contains it. The tensor must not change afterwards.
  Var Weight(const Tensor& tensor, const std::string& name = "");
  // A constant that is part of the program's meaning: at most 64 KiB.
  Var Literal(const Tensor& tensor, const std::string& name = "");
  // A Shape among the attributes may have open extents: they become -1, and the attribute "dims" says what they are. An
  // element type is a DType: Op("cast", {x}, {{"dtype", DType{"f16"}}}).
  Var Op(const std::string& op, const std::vector<Var>& args, const std::map<std::string, AttrValue>& attrs = {});
  // One of an operator's several results.
  Var Item(Var tuple, int index);
  // A function of the client's process (RegisterFunc), executor vm; one result of that type, which it must have.
  Var CallPacked(const std::string& name, const std::vector<Var>& args, const TensorType& result);

  // Put into every binding made from now on, for messages.
  void SetLocation(const std::string& location);

  // The module whose "main" this function is. INVALID_ARGUMENT.
  absl::StatusOr<IRModule> Finish(const std::vector<Var>& results, const std::vector<std::string>& names);

 private:
  struct Impl;
  proto::Binding* Bind(const std::vector<Var>& args, Var* result);
  void AddOperand(const Var& var, proto::Operand* operand);

  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay

#endif  // INLAY_BUILDER_H_
