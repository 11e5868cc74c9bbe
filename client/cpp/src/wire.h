// Between the client's values and the protos.
#ifndef INLAY_CLIENT_CPP_SRC_WIRE_H_
#define INLAY_CLIENT_CPP_SRC_WIRE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "inlay/config.h"
#include "inlay/tensor.h"
#include "proto/config.pb.h"
#include "proto/ir.pb.h"

namespace inlay {

absl::StatusOr<proto::Target> ToProto(const Target& target);
Target FromProto(const proto::Target& target);
absl::StatusOr<proto::CompilationConfig> ToProto(const CompilationConfig& config);
CompilationConfig FromProto(const proto::CompilationConfig& config);

// With "native" replaced by a CPU and its features: of `host` (what a daemon on this machine says that it is), else by
// CPUID. Without a target: `fallback`, where there is one.
CompilationConfig Resolved(CompilationConfig config, const std::optional<Target>& host,
                           const std::optional<Target>& fallback);

TensorSpec MakeSpec(std::string name, std::string dtype, Shape shape);
TensorSpec SpecOf(const std::string& name, const proto::TensorType& type);
proto::DType ToProtoDType(const std::string& name);  // DTYPE_UNSPECIFIED: none
// INVALID_ARGUMENT: not dense, or of a dtype that inlay has not.
absl::StatusOr<proto::TensorType> TypeOf(const Tensor& tensor);
// The bytes of a dense tensor.
absl::string_view BytesOf(const Tensor& tensor);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_WIRE_H_
