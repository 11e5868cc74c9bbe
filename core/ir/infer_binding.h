// The type of one binding's value, whatever its kind; shared by proto_conversion, the verifier and the passes.
#ifndef INLAY_CORE_IR_INFER_BINDING_H_
#define INLAY_CORE_IR_INFER_BINDING_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

struct Signature {
  std::vector<Type> params;
  Type result;
};
// nullptr: no such function (or not yet known: callees come first).
using SignatureLookup = std::function<const Signature*(const std::string& function)>;

Signature SignatureOf(const Function& function);

// What a block (hence a function, or an if) gives: its one result, or a tuple of its several.
Type ResultType(const Block& block);

// Needs everything but `binding->var`; makes the attributes of a kCall canonical. `declared` is the type that a
// kCallPacked must be given. INVALID_ARGUMENT does not name the binding: the caller does.
absl::StatusOr<Type> InferBinding(Binding* binding, const SignatureLookup& lookup, const Type* declared);

// The functions so that callees come before callers. INVALID_ARGUMENT: calls in a circle, of an unknown function, or
// nested deeper than kMaxCallDepth.
inline constexpr int kMaxCallDepth = 64;
absl::StatusOr<std::vector<std::string>> CallOrder(const std::map<std::string, std::vector<std::string>>& calls);

// Limits on tuples: a short module could otherwise describe an exponentially large type.
inline constexpr int kMaxTupleLeaves = 4096;
inline constexpr int kMaxTupleDepth = 8;
absl::Status CheckTupleLimits(const Type& type);
// Tensors in a type (an empty tuple counts as one).
int64_t NumTensors(const Type& type);
// Of all Vars of a module together: calls and items could otherwise repeat a large tuple with a few bytes each.
inline constexpr int64_t kMaxModuleTensors = int64_t{1} << 22;

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_INFER_BINDING_H_
