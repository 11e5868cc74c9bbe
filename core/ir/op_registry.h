// The operators: schema and type inference of each, in one place an operator (core/ir/ops/). The catalogue is OPS.md.
//
// Registration happens before main() through INLAY_REGISTER_OP; afterwards the registry is read-only and needs no lock.
// What a backend knows about an op (its lowering) is registered by that backend, not here.
#ifndef INLAY_CORE_IR_OP_REGISTRY_H_
#define INLAY_CORE_IR_OP_REGISTRY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/attrs.h"
#include "core/ir/ir_module.h"
#include "core/ir/type.h"

namespace inlay::ir {

// kNumber: an int or a float, kept as it is (the value that fills an integer tensor must not pass through a double).
enum class AttrKind { kInt, kFloat, kNumber, kString, kBool, kDType, kInts, kFloats, kStrings };

struct AttrSpec {
  std::string name;
  AttrKind kind;
  bool required = true;
  AttrValue default_value = int64_t{0};  // where !required and has_default
  bool has_default = false;
  std::vector<std::string> choices;  // of a string
};

// How the value of an output element depends on input elements; what fusion asks.
enum class OpPattern {
  kElementwise,  // out[i] from in[i]
  kBroadcast,    // out[i] from in[f(i)] by broadcasting
  kInjective,    // out[i] from one element at an index that follows from i (transpose, slice, concat, gather, ...)
  kReduction,    // several elements of one input make one element
  kContraction,  // matmul, conv
  kOpaque,       // everything else; not fused into
};

struct InferContext {
  const std::vector<Operand>& args;
  // Defaults are filled in. An op's infer also makes axes non-negative and lists complete, so that what the registry
  // has seen is canonical: backends need not handle absent strides or axis=-1.
  Attrs& attrs;
  const TensorType& arg(int i) const { return args[i].tensor_type(); }
};

struct OpSchema {
  std::string name;
  int min_args = 0;
  int max_args = 0;  // -1: any number
  std::vector<AttrSpec> attrs;
  OpPattern pattern = OpPattern::kOpaque;
  // All arguments are tensors when it is called. Errors need not name the node: the caller does.
  std::function<absl::StatusOr<Type>(const InferContext&)> infer;
};

class OpRegistry {
 public:
  static OpRegistry& Global();
  void Register(OpSchema schema);
  const OpSchema* Find(absl::string_view name) const;  // nullptr: no such op
  std::vector<std::string> Names() const;              // sorted

  // Checks the number of arguments and the attributes (unknown, missing, of a wrong type), fills in defaults, makes the
  // attributes canonical, infers. The result's size has been checked (CheckTensorType).
  absl::StatusOr<Type> Infer(absl::string_view op, const std::vector<Operand>& args, Attrs* attrs) const;

 private:
  std::map<std::string, OpSchema, std::less<>> schemas_;
};

// kOpaque: not a call of an operator, or of one that is not registered.
OpPattern PatternOf(const Binding& binding);
inline bool IsContraction(const Binding& binding) { return PatternOf(binding) == OpPattern::kContraction; }

struct OpRegistration {
  explicit OpRegistration(OpSchema schema) { OpRegistry::Global().Register(std::move(schema)); }
};
#define INLAY_OP_CONCAT_INNER(a, b) a##b
#define INLAY_OP_CONCAT(a, b) INLAY_OP_CONCAT_INNER(a, b)
#define INLAY_REGISTER_OP static const ::inlay::ir::OpRegistration INLAY_OP_CONCAT(inlay_op_, __COUNTER__)

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_OP_REGISTRY_H_
