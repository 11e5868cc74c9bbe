#include "inlay/builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/ir_module_impl.h"
#include "client/cpp/src/wire.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"

namespace inlay {
namespace {

constexpr size_t kLiteralLimit = 64 << 10;  // proto/ir.proto, Constant.literal
constexpr char kDims[] = "dims";            // core/ir/OPS.md, "Symbolic extents"

// Texts in their normal form, one that is a number as that. INVALID_ARGUMENT: an empty text.
absl::StatusOr<Shape> Canonical(const Shape& shape) {
  std::vector<Dim> dims;
  for (const Dim& dim : shape.dims()) {
    if (!dim.is_open()) {
      dims.push_back(dim);
      continue;
    }
    if (dim.symbol().empty()) return absl::InvalidArgumentError("an extent's text is empty");
    const ir::Dim canonical = ir::CanonicalDim(dim.symbol());
    dims.push_back(canonical.is_static() ? Dim(canonical.value()) : Dim(canonical.symbol()));
  }
  return Shape(std::move(dims));
}

}  // namespace

struct FunctionBuilder::Impl {
  absl::Status status;  // the first error
  std::string location;
  proto::IRModule module;
  proto::Function function;
  std::shared_ptr<Weights> weights = std::make_shared<Weights>();

  void Fail(const absl::Status& error) {
    if (!status.ok() || error.ok()) return;
    status = absl::InvalidArgumentError(absl::StrCat(location, location.empty() ? "" : ": ", error.message()));
  }
  void SetType(const std::string& dtype, const Shape& shape, const std::string& whose, proto::TensorType* type);
  void SetAttr(const std::string& name, const AttrValue& value, proto::Binding* binding);
  void SetExtents(const std::string& name, const Shape& shape, proto::Binding* binding);
};

void FunctionBuilder::Impl::SetType(const std::string& dtype, const Shape& shape, const std::string& whose,
                                    proto::TensorType* type) {
  type->set_dtype(ToProtoDType(dtype));
  if (type->dtype() == proto::DTYPE_UNSPECIFIED) {
    Fail(absl::InvalidArgumentError(absl::StrCat(whose, ": there is no dtype '", dtype, "'")));
  }
  const absl::StatusOr<Shape> canonical = Canonical(shape);
  if (!canonical.ok()) return Fail(Annotate(canonical.status(), whose));
  for (const Dim& dim : canonical->dims()) {
    if (!dim.is_open() && dim.value() < 0) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(whose, ": a negative extent in ", shape.ToString())));
    }
    dim.is_open() ? type->add_dims()->set_symbol(dim.symbol()) : type->add_dims()->set_value(dim.value());
  }
}

void FunctionBuilder::Impl::SetAttr(const std::string& name, const AttrValue& value, proto::Binding* binding) {
  if (const auto* shape = std::get_if<Shape>(&value.value)) return SetExtents(name, *shape, binding);
  const auto* dtype = std::get_if<DType>(&value.value);
  if (dtype != nullptr && ToProtoDType(dtype->name) == proto::DTYPE_UNSPECIFIED) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat(binding->call().op(), ": attribute ", name, ": there is no dtype '", dtype->name, "'")));
  }
  (*binding->mutable_attrs())[name] = ToProto(value);
}

void FunctionBuilder::Impl::SetExtents(const std::string& name, const Shape& shape, proto::Binding* binding) {
  const absl::StatusOr<Shape> canonical = Canonical(shape);
  if (!canonical.ok()) {
    return Fail(Annotate(canonical.status(), absl::StrCat(binding->call().op(), ": attribute ", name)));
  }
  (*binding->mutable_attrs())[name] = ToProto(AttrValue(*canonical));
  if (!canonical->is_open()) return;
  std::vector<std::string> texts;
  for (const Dim& dim : canonical->dims()) texts.push_back(dim.symbol());
  (*binding->mutable_attrs())[kDims] = ToProto(AttrValue(texts));
}

FunctionBuilder::FunctionBuilder() : impl_(std::make_unique<Impl>()) {}
FunctionBuilder::~FunctionBuilder() = default;

void FunctionBuilder::SetLocation(const std::string& location) { impl_->location = location; }

FunctionBuilder::Var FunctionBuilder::Param(const std::string& name, const std::string& dtype, const Shape& shape) {
  proto::Var& var = *impl_->function.add_vars();
  var.set_name(name);
  impl_->SetType(dtype, shape, absl::StrCat("parameter '", name, "'"), var.mutable_type()->mutable_tensor());
  const int index = impl_->function.vars_size() - 1;
  impl_->function.add_params(index);
  return {index, false, this};
}

FunctionBuilder::Var FunctionBuilder::Weight(const Tensor& tensor, const std::string& name) {
  proto::Constant& constant = *impl_->module.add_constants();
  absl::StatusOr<proto::TensorType> type = TypeOf(tensor);
  impl_->Fail(type.status());
  if (type.ok()) {
    *constant.mutable_type() = *std::move(type);
    const Digest digest = Digest::Of(BytesOf(tensor));
    constant.set_digest(std::string(digest.bytes()));
    impl_->weights->emplace(digest, WeightOf(tensor));
  }
  constant.set_name(name);
  return {impl_->module.constants_size() - 1, true, this};
}

FunctionBuilder::Var FunctionBuilder::Literal(const Tensor& tensor, const std::string& name) {
  proto::Constant& constant = *impl_->module.add_constants();
  absl::StatusOr<proto::TensorType> type = TypeOf(tensor);
  impl_->Fail(type.status());
  if (type.ok()) {
    *constant.mutable_type() = *std::move(type);
    if (BytesOf(tensor).size() > kLiteralLimit) {
      impl_->Fail(absl::InvalidArgumentError(
          absl::StrCat("a literal of ", BytesOf(tensor).size(), " bytes; over ", kLiteralLimit, " use Weight")));
    } else {
      constant.set_literal(std::string(BytesOf(tensor)));
    }
  }
  constant.set_name(name);
  return {impl_->module.constants_size() - 1, true, this};
}

proto::Binding* FunctionBuilder::Bind(const std::vector<Var>& args, Var* result) {
  proto::Binding& binding = *impl_->function.mutable_body()->add_bindings();
  binding.set_location(impl_->location);
  for (const Var& arg : args) AddOperand(arg, binding.add_args());
  impl_->function.add_vars();
  *result = {impl_->function.vars_size() - 1, false, this};
  binding.set_var(result->index);
  return &binding;
}

void FunctionBuilder::AddOperand(const Var& var, proto::Operand* operand) {
  if (var.builder != this) impl_->Fail(absl::InvalidArgumentError("a Var of another builder"));
  var.constant ? operand->set_constant(var.index) : operand->set_var(var.index);
}

FunctionBuilder::Var FunctionBuilder::Op(const std::string& op, const std::vector<Var>& args,
                                         const std::map<std::string, AttrValue>& attrs) {
  Var result;
  proto::Binding& binding = *Bind(args, &result);
  binding.mutable_call()->set_op(op);
  for (const auto& [name, value] : attrs) impl_->SetAttr(name, value, &binding);
  return result;
}

FunctionBuilder::Var FunctionBuilder::Item(Var tuple, int index) {
  Var result;
  Bind({tuple}, &result)->mutable_tuple_get_item()->set_index(index);
  return result;
}

FunctionBuilder::Var FunctionBuilder::CallPacked(const std::string& name, const std::vector<Var>& args,
                                                 const TensorType& type) {
  Var result;
  proto::Binding::CallPacked& call = *Bind(args, &result)->mutable_call_packed();
  call.set_name(name);
  impl_->SetType(type.dtype, type.shape, absl::StrCat("the result of '", name, "'"),
                 call.mutable_result()->mutable_tensor());
  return result;
}

absl::StatusOr<IRModule> FunctionBuilder::Finish(const std::vector<Var>& results,
                                                 const std::vector<std::string>& names) {
  if (results.size() != names.size() || results.empty()) {
    impl_->Fail(absl::InvalidArgumentError("a function has at least one result, and a name for each"));
  }
  proto::IRModule module = impl_->module;
  proto::Function& main = (*module.mutable_functions())["main"];
  main = impl_->function;
  for (const Var& result : results) AddOperand(result, main.mutable_body()->add_results());
  for (const std::string& name : names) main.add_result_names(name);
  if (!impl_->status.ok()) return impl_->status;
  return MakeIRModule(std::move(module), impl_->weights);
}

}  // namespace inlay
