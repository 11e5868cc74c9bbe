// IRModule <-> its wire form (proto/ir.proto).
#ifndef INLAY_CORE_IR_PROTO_CONVERSION_H_
#define INLAY_CORE_IR_PROTO_CONVERSION_H_

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"
#include "proto/ir.pb.h"

namespace inlay::ir {

// Checks whatever can be wrong with a module that anyone may have sent, infers every type and makes attributes
// canonical: what comes out satisfies Verify. INVALID_ARGUMENT names function, binding and what would be accepted.
// Recursion, and work in general, are bounded by the size of the message.
absl::StatusOr<IRModule> FromProto(const proto::IRModule& proto);

// The same of a module of partitions (a CompileAction's): no "main", no config.
absl::StatusOr<IRModule> PartitionsFromProto(const proto::IRModule& proto);

// The inverse, deterministic: Vars and constants are numbered in the order in which they first occur.
proto::IRModule ToProto(const IRModule& module);

absl::StatusOr<TensorType> FromProto(const proto::TensorType& proto);
proto::TensorType ToProto(const TensorType& type);
proto::Type ToProto(const Type& type);

// The literals that may travel inside a module, in bytes.
inline constexpr int64_t kMaxLiteralBytes = 64 << 10;
// Ifs inside Ifs.
inline constexpr int kMaxBlockDepth = 32;

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_PROTO_CONVERSION_H_
