// What an IRModule holds.
#ifndef INLAY_CLIENT_CPP_SRC_IR_MODULE_IMPL_H_
#define INLAY_CLIENT_CPP_SRC_IR_MODULE_IMPL_H_

#include <map>
#include <memory>

#include "absl/strings/string_view.h"
#include "core/base/digest.h"
#include "inlay/ir_module.h"
#include "proto/ir.pb.h"

namespace inlay {

// The bytes of a weight, and what keeps them.
struct Weight {
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};

using Weights = std::map<Digest, Weight>;

struct IRModule::Impl {
  proto::IRModule proto;
  std::shared_ptr<const Weights> weights;
};

Weight WeightOf(const Tensor& tensor);
IRModule MakeIRModule(proto::IRModule proto, std::shared_ptr<const Weights> weights);
proto::AttrValue ToProto(const AttrValue& value);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_IR_MODULE_IMPL_H_
