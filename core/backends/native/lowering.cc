#include "core/backends/native/lowering.h"

#include "core/backends/native/eval.h"
#include "mlir/IR/Value.h"

namespace inlay::native {

const LoweringTable& Lowerings() {
  static const auto* table = [] {
    auto* t = new LoweringTable;
    RegisterElementwise(t);
    RegisterCasts(t);
    RegisterDataMovement(t);
    RegisterDepthToSpace(t);
    RegisterDepthwiseTokens(t);
    RegisterIndexing(t);
    RegisterReductions(t);
    RegisterScans(t);
    RegisterSoftmax(t);
    RegisterNormalisation(t);
    RegisterContractions(t);
    RegisterAttention(t);
    RegisterPooling(t);
    RegisterResize(t);
    RegisterGridSample(t);
    RegisterRecurrent(t);
    RegisterTopK(t);
    return t;
  }();
  return *table;
}

const Lowering* FindLowering(absl::string_view op) {
  auto found = Lowerings().find(op);
  return found == Lowerings().end() ? nullptr : &found->second;
}

}  // namespace inlay::native
