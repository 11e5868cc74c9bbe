// Recurrent networks with ONNX's gate order: OPS.md, "Recurrent".
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

// lstm, gru and rnn differ in the number of gates, the number of states and a few attributes.
OpSchema Recurrent(std::string name, int gates, int states, std::vector<AttrSpec> more) {
  std::vector<AttrSpec> attrs = {RequiredChoice("direction", {"forward", "reverse", "bidirectional"}),
                                 Required("hidden_size", AttrKind::kInt)};
  attrs.insert(attrs.end(), more.begin(), more.end());
  const int required = 4 + states;
  const bool peepholes = states == 2;
  return Schema(
      std::move(name), required, required + (peepholes ? 1 : 0), std::move(attrs), OpPattern::kOpaque,
      [=](const InferContext& ctx) -> absl::StatusOr<Type> {
        INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
        INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
        INLAY_RETURN_IF_ERROR(CheckRank(ctx, 0, 3));
        const std::vector<Dim>& x = ctx.arg(0).dims;  // [seq, batch, in]
        const int64_t hidden = ctx.attrs.Int("hidden_size");
        if (hidden < 1 || hidden > kMaxTensorBytes / 64) {
          return absl::InvalidArgumentError(absl::StrCat("hidden_size is ", hidden));
        }
        const Dim d = ctx.attrs.String("direction") == "bidirectional" ? 2 : 1;
        INLAY_RETURN_IF_ERROR(CheckDims(ctx, 1, {d, gates * hidden, x[2]}, "w: directions, gates * hidden_size, in"));
        INLAY_RETURN_IF_ERROR(
            CheckDims(ctx, 2, {d, gates * hidden, hidden}, "r: directions, gates * hidden_size, hidden_size"));
        INLAY_RETURN_IF_ERROR(CheckDims(ctx, 3, {d, 2 * gates * hidden}, "b: directions, 2 * gates * hidden_size"));
        const std::vector<Dim> state = {d, x[1], hidden};
        for (int i = 0; i < states; ++i) {
          INLAY_RETURN_IF_ERROR(CheckDims(ctx, 4 + i, state, "an initial state: directions, batch, hidden_size"));
        }
        if (static_cast<int>(ctx.args.size()) > required) {
          INLAY_RETURN_IF_ERROR(CheckDims(ctx, required, {d, 3 * hidden}, "p: directions, 3 * hidden_size"));
        }
        const DType dtype = ctx.arg(0).dtype;
        TupleType tuple;
        tuple.fields.push_back(TensorType{dtype, {x[0], d, x[1], hidden}});
        for (int i = 0; i < states; ++i) tuple.fields.push_back(TensorType{dtype, state});
        return Type(std::move(tuple));
      });
}

INLAY_REGISTER_OP(Recurrent("lstm", 4, 2, {}));
INLAY_REGISTER_OP(Recurrent("gru", 3, 1, {WithDefault("linear_before_reset", AttrKind::kBool, false)}));
INLAY_REGISTER_OP(Recurrent("rnn", 1, 1, {Choice("activation", "tanh", {"tanh", "relu", "sigmoid"})}));

}  // namespace
}  // namespace inlay::ir::ops
