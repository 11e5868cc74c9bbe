// Parameters on their way into a library or a safetensors file: where each lies, and their bytes, checked and streamed.
#ifndef INLAY_CORE_ARTIFACT_PARAM_WRITER_H_
#define INLAY_CORE_ARTIFACT_PARAM_WRITER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/artifact/param_source.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

class ParamWriter {
 public:
  using Sink = std::function<absl::Status(absl::string_view)>;

  // INVALID_ARGUMENT where `params` are not those of the plan.
  static absl::StatusOr<ParamWriter> Make(const runtime::ExecutionPlan& plan, absl::Span<const proto::ParamRef> params,
                                          ParamSource source);

  // One after the other, each 64-byte aligned, equal ones once.
  const std::vector<uint64_t>& offsets() const { return offsets_; }  // one a param
  uint64_t linked_bytes() const { return linked_bytes_; }
  absl::Status WriteLinked(const Sink& sink) const;

  // A whole safetensors file. The data begins at a multiple of 64, and tensors whose size is one come first, so that
  // almost all can be used where they lie in a mapped file.
  absl::Status WriteSafetensors(const Sink& sink) const;

 private:
  struct Param {
    std::string name;
    runtime::TensorType type;
    Digest digest;
    int64_t bytes;
  };
  // The blob's bytes; INVALID_ARGUMENT unless they have its size and digest.
  absl::Status Stream(const Param& param, const Sink& sink) const;

  std::vector<Param> params_;
  ParamSource source_;
  std::vector<uint64_t> offsets_;
  std::vector<int> unique_;  // those that WriteLinked writes, by offset
  uint64_t linked_bytes_ = 0;
};

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_PARAM_WRITER_H_
