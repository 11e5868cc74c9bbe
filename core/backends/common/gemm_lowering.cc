#include "core/backends/common/gemm_lowering.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/literal.h"

namespace inlay::backends {
namespace {

using ir::Binding;
using ir::Operand;
using Dims = std::vector<int64_t>;

absl::Status Refuse(absl::string_view reason) { return absl::UnimplementedError(reason); }

int64_t Product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

// Row-major strides of `dims` seen with `rank` axes (ones in front); 0 along axes of extent 1.
Dims BroadcastStrides(Dims dims, size_t rank) {
  if (dims.size() < rank) dims.insert(dims.begin(), rank - dims.size(), 1);
  Dims strides(dims.size());
  int64_t stride = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    strides[i] = dims[i] == 1 ? 0 : stride;
    stride *= dims[i];
  }
  return strides;
}

class Chain {
 public:
  // The parameter that a Var is; negative: it is none.
  using InputOf = std::function<int(const Operand&)>;
  Chain(const std::vector<ir::DType>& dtypes, InputOf input_of) : dtypes_(dtypes), input_of_(std::move(input_of)) {}

  absl::StatusOr<GemmDescription> Lower(const std::vector<const Binding*>& calls) {
    for (const Binding* call : calls) {
      absl::Status status = last_ == nullptr ? LowerProduct(*call) : LowerStep(*call);
      if (!status.ok()) return absl::Status(status.code(), absl::StrCat(ir::Describe(*call), ": ", status.message()));
      last_ = call;
    }
    if (last_ == nullptr) return absl::InvalidArgumentError("a partition without calls");
    return std::move(d_);
  }

 private:
  absl::Status CheckTensor(const ir::TensorType& type) const {
    if (std::find(dtypes_.begin(), dtypes_.end(), type.dtype) == dtypes_.end()) {
      return Refuse(absl::StrCat("no product of dtype ", ir::Name(type.dtype)));
    }
    if (!type.is_static()) return Refuse(absl::StrCat("dimension '", type.FirstSymbol(), "' is symbolic"));
    if (type.rank() > 8) return Refuse("rank above 8");
    if (type.NumElements() == 0) return Refuse("a tensor without elements");
    // The libraries count in int.
    if (type.NumElements() >= int64_t{1} << 31) return Refuse("a tensor of 2^31 elements or more");
    return absl::OkStatus();
  }

  absl::Status CheckTensors(const Binding& call) const {
    if (!call.var->type.is_tensor()) return Refuse("several results");
    INLAY_RETURN_IF_ERROR(CheckTensor(call.var->type.tensor()));
    for (const Operand& arg : call.args) INLAY_RETURN_IF_ERROR(CheckTensor(arg.tensor_type()));
    return absl::OkStatus();
  }

  absl::StatusOr<int> ParamOf(const Operand& operand) const {
    if (operand.is_literal()) return Refuse("a literal tensor as an operand");
    const int input = input_of_(operand);
    if (input < 0) return Refuse("an operand that is neither a parameter of the partition nor a number");
    return input;
  }

  absl::Status LowerProduct(const Binding& call) {
    const bool matmul = call.IsCall("matmul");
    if (!matmul && !call.IsCall("conv")) {
      return Refuse(absl::StrCat("operator '", call.callee, "' is no matrix product"));
    }
    INLAY_RETURN_IF_ERROR(CheckTensors(call));
    d_.dtype = std::string(ir::Name(call.var->type.tensor().dtype));
    return matmul ? LowerMatmul(call) : LowerConv(call);
  }

  absl::Status LowerMatmul(const Binding& call) {
    INLAY_ASSIGN_OR_RETURN(d_.a.input, ParamOf(call.args[0]));
    INLAY_ASSIGN_OR_RETURN(d_.b.input, ParamOf(call.args[1]));
    Dims a = call.args[0].tensor_type().Shape(), b = call.args[1].tensor_type().Shape();
    const bool row = a.size() == 1, column = b.size() == 1;
    if (row) a.insert(a.begin(), 1);
    if (column) b.push_back(1);
    const bool transpose_a = call.attrs.Bool("transpose_a"), transpose_b = call.attrs.Bool("transpose_b");
    d_.m = a[a.size() - (transpose_a ? 1 : 2)];
    d_.k = a[a.size() - (transpose_a ? 2 : 1)];
    d_.n = b[b.size() - (transpose_b ? 2 : 1)];
    d_.a.row_stride = transpose_a ? 1 : d_.k;
    d_.a.column_stride = transpose_a ? d_.m : 1;
    d_.b.row_stride = transpose_b ? 1 : d_.n;
    d_.b.column_stride = transpose_b ? d_.k : 1;
    out_ = call.var->type.tensor().Shape();
    row_axes_ = row ? 0 : 1;
    column_axes_ = column ? 0 : 1;
    const Dims a_batch(a.begin(), a.end() - 2), b_batch(b.begin(), b.end() - 2);
    if (Product(b_batch) == 1 && !transpose_a) {  // every row of every batch times one matrix
      d_.m *= Product(a_batch);
      row_axes_ = static_cast<int>(out_.size()) - column_axes_;
    } else {
      d_.batch.assign(out_.begin(), out_.end() - row_axes_ - column_axes_);
      auto strides = [&](const Dims& batch, int64_t matrix) {
        Dims result = BroadcastStrides(batch, d_.batch.size());
        for (int64_t& stride : result) stride *= matrix;
        return result;
      };
      d_.a.batch_strides = strides(a_batch, d_.m * d_.k);
      d_.b.batch_strides = strides(b_batch, d_.k * d_.n);
    }
    d_.Normalise();
    const int64_t elements = call.var->type.tensor().NumElements();
    return elements == d_.num_products() * d_.m * d_.n ? absl::OkStatus() : Refuse("transposed vectors");
  }

  // W [M,C] times each image [C, pixels].
  absl::Status LowerConv(const Binding& call) {
    const Dims x = call.args[0].tensor_type().Shape(), w = call.args[1].tensor_type().Shape();
    auto all = [](const Dims& values, int64_t value) {
      return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
    };
    if (!all(Dims(w.begin() + 2, w.end()), 1) || !all(call.attrs.Ints("strides"), 1) ||
        !all(call.attrs.Ints("pads"), 0) || call.attrs.Int("groups") != 1) {
      return Refuse("a convolution that is no matrix product (1x1, stride 1, no padding, one group)");
    }
    INLAY_ASSIGN_OR_RETURN(d_.a.input, ParamOf(call.args[1]));
    INLAY_ASSIGN_OR_RETURN(d_.b.input, ParamOf(call.args[0]));
    out_ = call.var->type.tensor().Shape();
    d_.m = w[0];
    d_.k = w[1];
    d_.n = Product(Dims(x.begin() + 2, x.end()));
    d_.batch = {x[0]};
    d_.a = {d_.a.input, 0, {0}, d_.k, 1};
    d_.b = {d_.b.input, 0, {d_.k * d_.n}, d_.n, 1};
    row_axes_ = 1;
    column_axes_ = static_cast<int>(x.size()) - 2;
    if (call.args.size() < 3) return absl::OkStatus();
    GemmStep bias{"add", true};
    INLAY_ASSIGN_OR_RETURN(bias.operand.input, ParamOf(call.args[2]));
    bias.operand.batch_strides = {0};
    bias.operand.row_stride = 1;
    d_.steps.push_back(std::move(bias));
    return absl::OkStatus();
  }

  absl::Status LowerStep(const Binding& call) {
    static const auto* const kBinary = new std::map<std::string, const char*, std::less<>>{
        {"add", "add"}, {"sub", "sub"}, {"mul", "mul"}, {"div", "div"}};
    const Operand x(last_->var);
    const int uses = static_cast<int>(std::count(call.args.begin(), call.args.end(), x));
    if (call.kind != Binding::Kind::kCall || uses != 1) return Refuse("not a chain of operators");
    INLAY_RETURN_IF_ERROR(CheckTensors(call));
    GemmStep step;
    auto binary = kBinary->find(call.callee);
    if (binary == kBinary->end()) {
      INLAY_RETURN_IF_ERROR(LowerUnary(call, &step));
      d_.steps.push_back(std::move(step));
      return absl::OkStatus();
    }
    step.op = binary->second;
    step.binary = true;
    const int side = call.args[0] == x ? 0 : 1;
    if (side == 1 && step.op == "sub") step.op = "rsub";
    if (side == 1 && step.op == "div") return Refuse("a division by the product");
    if (x.tensor_type().dims != call.var->type.tensor().dims) return Refuse("the product is broadcast");
    INLAY_RETURN_IF_ERROR(LowerOperand(call.args[1 - side], &step.operand));
    d_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Status LowerUnary(const Binding& call, GemmStep* step) {
    static const auto* const kPlain = new std::vector<std::string>{"relu", "silu", "sigmoid", "tanh"};
    step->op = call.callee;
    if (std::find(kPlain->begin(), kPlain->end(), call.callee) != kPlain->end()) return absl::OkStatus();
    if (call.callee == "gelu") {
      if (call.attrs.String("approximate") == "tanh") step->op = "gelu_tanh";
      return absl::OkStatus();
    }
    if (call.callee == "leaky_relu") {
      step->alpha = call.attrs.Float("alpha");
      return absl::OkStatus();
    }
    if (call.callee != "clip") return Refuse(absl::StrCat("no step for operator '", call.callee, "'"));
    step->has_alpha = call.attrs.Has("min");
    step->has_beta = call.attrs.Has("max");
    if (step->has_alpha) step->alpha = call.attrs.Float("min");
    if (step->has_beta) step->beta = call.attrs.Float("max");
    // JSON has no infinity and no NaN.
    if (!std::isfinite(step->alpha) || !std::isfinite(step->beta)) return Refuse("a bound that is not finite");
    return absl::OkStatus();
  }

  absl::Status LowerOperand(const Operand& operand, GemmOperand* lowered) {
    if (auto number = ir::SplatDouble(operand); number.has_value()) {
      if (!std::isfinite(*number)) return Refuse("a number that is not finite");
      lowered->number = *number;
      lowered->batch_strides.assign(d_.batch.size(), 0);
      return absl::OkStatus();
    }
    INLAY_ASSIGN_OR_RETURN(lowered->input, ParamOf(operand));
    const Dims strides = BroadcastStrides(operand.tensor_type().Shape(), out_.size());
    const size_t batch_axes = out_.size() - row_axes_ - column_axes_;
    if (!d_.batch.empty()) lowered->batch_strides.assign(strides.begin(), strides.begin() + batch_axes);
    if (!Join(strides, batch_axes, batch_axes + row_axes_, &lowered->row_stride) ||
        !Join(strides, batch_axes + row_axes_, out_.size(), &lowered->column_stride)) {
      return Refuse("an operand that is broadcast along a part of the rows or columns");
    }
    return absl::OkStatus();
  }

  // The one stride of the axes [begin, end) of the result seen as one; false: they have none.
  bool Join(const Dims& strides, size_t begin, size_t end, int64_t* stride) const {
    *stride = 0;
    int64_t next = -1;  // what the next axis outward must have; -1: anything
    for (size_t axis = end; axis-- > begin;) {
      if (out_[axis] == 1) continue;
      if (next < 0) *stride = strides[axis];
      if (next >= 0 && strides[axis] != next) return false;
      next = strides[axis] * out_[axis];
    }
    return true;
  }

  const std::vector<ir::DType>& dtypes_;
  InputOf input_of_;
  GemmDescription d_;
  const Binding* last_ = nullptr;
  Dims out_;  // of the result: batch axes, then those of the rows, then those of the columns
  int row_axes_ = 0, column_axes_ = 0;
};

// One more elementwise operator on `x`.
ir::PatternPtr OneMore(const ir::PatternPtr& x) {
  return ir::Or({ir::OpOf({"relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "clip"}, {x}),
                 ir::OpOf({"add", "mul", "sub", "div"}, {x, ir::Any()}),
                 ir::OpOf({"add", "mul", "sub"}, {ir::Any(), x})});
}

}  // namespace

absl::Status CheckGemm(const std::vector<const ir::Binding*>& calls, const std::vector<ir::DType>& dtypes) {
  std::unordered_set<const ir::Var*> made;
  for (const Binding* call : calls) made.insert(call->var.get());
  auto input_of = [&](const Operand& operand) { return made.count(operand.var.get()) > 0 ? -1 : 0; };
  return Chain(dtypes, input_of).Lower(calls).status();
}

absl::StatusOr<GemmDescription> LowerGemm(const ir::Function& partition, const std::vector<ir::DType>& dtypes) {
  if (!partition.attrs.Has(backend::kConstantParams)) {
    return absl::InvalidArgumentError("a partition function without the attribute 'constant_params'");
  }
  std::unordered_map<const ir::Var*, int> inputs;
  for (const ir::VarPtr& param : partition.params) inputs.emplace(param.get(), static_cast<int>(inputs.size()));
  std::vector<const Binding*> calls;
  for (const Binding& binding : partition.body.bindings) calls.push_back(&binding);
  Chain chain(dtypes, [&](const Operand& operand) {
    auto found = inputs.find(operand.var.get());
    return found == inputs.end() ? -1 : found->second;
  });
  INLAY_ASSIGN_OR_RETURN(GemmDescription d, chain.Lower(calls));
  const auto& results = partition.body.results;
  if (results.size() != 1 || !(results[0] == Operand(calls.back()->var))) {
    return absl::InvalidArgumentError("a partition whose result is not that of its last call");
  }
  for (const ir::VarPtr& param : partition.params) {
    if (!param->type.is_tensor() || !param->type.tensor().is_static()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", param->name, "' is no tensor of known shape"));
    }
    d.input_elements.push_back(param->type.tensor().NumElements());
  }
  for (int64_t i : partition.attrs.IntsOr(backend::kConstantParams, {})) {
    if (i < 0 || i >= static_cast<int64_t>(partition.params.size())) {
      return absl::InvalidArgumentError(absl::StrCat("constant_params names parameter ", i));
    }
    if (i == d.b.input) d.b_constant = true;
  }
  return d;
}

std::vector<backend::PatternRule> GemmRules(const std::string& backend, const std::vector<ir::DType>& dtypes) {
  constexpr int kMostSteps = 4;
  auto check = [dtypes](const ir::PatternMatch& match, const target::Target&) {
    return CheckGemm(match.bindings, dtypes);
  };
  std::vector<backend::PatternRule> rules;
  const std::pair<const char*, const char*> kAnchors[] = {{"matmul", "matmul"}, {"conv1x1", "conv"}};
  for (const auto& [name, op] : kAnchors) {
    ir::PatternPtr chain = ir::Op(op);
    rules.push_back({absl::StrCat(backend, ".", name), chain, check, 10});
    for (int length = 1; length <= kMostSteps; ++length) {
      chain = OneMore(chain);
      rules.push_back({absl::StrCat(backend, ".", name, "_eltwise", length), chain, check, 10 + length});
    }
  }
  return rules;
}

}  // namespace inlay::backends
