#include "absl/container/flat_hash_map.h"
#include "core/ir/proto_conversion.h"

namespace inlay::ir {
namespace {

using AttrMap = google::protobuf::Map<std::string, proto::AttrValue>;

struct AttrWriter {
  proto::AttrValue* out;
  void operator()(int64_t v) const { out->set_i(v); }
  void operator()(double v) const { out->set_f(v); }
  void operator()(const std::string& v) const { out->set_s(v); }
  void operator()(bool v) const { out->set_b(v); }
  void operator()(DType v) const { out->set_dtype(static_cast<proto::DType>(v)); }
  void operator()(const std::vector<int64_t>& v) const { out->mutable_ints()->mutable_v()->Assign(v.begin(), v.end()); }
  void operator()(const std::vector<double>& v) const {
    out->mutable_floats()->mutable_v()->Assign(v.begin(), v.end());
  }
  void operator()(const std::vector<std::string>& v) const {
    out->mutable_strings()->mutable_v()->Assign(v.begin(), v.end());
  }
  void operator()(const Literal& v) const {
    *out->mutable_tensor()->mutable_type() = ToProto(v.type);
    out->mutable_tensor()->set_data(v.data);
  }
};

void WriteAttrs(const Attrs& attrs, AttrMap* out) {
  for (const auto& [name, value] : attrs.values()) std::visit(AttrWriter{&(*out)[name]}, value);
}

class ModuleWriter {
 public:
  explicit ModuleWriter(proto::IRModule* out) : out_(out) {}

  void Write(const Function& function, proto::Function* out) {
    vars_.clear();
    function_ = out;
    for (const VarPtr& param : function.params) out->add_params(Define(param));
    WriteBlock(function.body, out->mutable_body());
    WriteAttrs(function.attrs, out->mutable_attrs());
    out->mutable_result_names()->Assign(function.result_names.begin(), function.result_names.end());
  }

 private:
  int Define(const VarPtr& var) {
    const int index = function_->vars_size();
    vars_[var.get()] = index;
    proto::Var* out = function_->add_vars();
    out->set_name(var->name);
    *out->mutable_type() = ToProto(var->type);
    return index;
  }

  void WriteOperand(const Operand& operand, proto::Operand* out) {
    if (operand.is_var()) {
      auto it = vars_.find(operand.var.get());
      out->set_var(it == vars_.end() ? -1 : it->second);  // -1: a malformed module, which FromProto refuses
      return;
    }
    auto [it, fresh] = constants_.emplace(operand.constant.get(), out_->constants_size());
    if (fresh) {
      proto::Constant* constant = out_->add_constants();
      *constant->mutable_type() = ToProto(operand.constant->type);
      constant->set_name(operand.constant->name);
      if (operand.constant->is_weight) {
        constant->set_digest(std::string(operand.constant->digest.bytes()));
      } else {
        constant->set_literal(operand.constant->data);
      }
    }
    out->set_constant(it->second);
  }

  void WriteBlock(const Block& block, proto::Block* out) {
    for (const Binding& binding : block.bindings) WriteBinding(binding, out->add_bindings());
    for (const Operand& result : block.results) WriteOperand(result, out->add_results());
  }

  void WriteBinding(const Binding& binding, proto::Binding* out) {
    for (const Operand& arg : binding.args) WriteOperand(arg, out->add_args());
    WriteAttrs(binding.attrs, out->mutable_attrs());
    out->set_location(binding.location);
    switch (binding.kind) {
      case Binding::Kind::kCall:
        out->mutable_call()->set_op(binding.callee);
        break;
      case Binding::Kind::kCallFunction:
        out->mutable_call_function()->set_function(binding.callee);
        break;
      case Binding::Kind::kCallPacked:
        out->mutable_call_packed()->set_name(binding.callee);
        *out->mutable_call_packed()->mutable_result() = ToProto(binding.var->type);
        break;
      case Binding::Kind::kTuple:
        out->mutable_tuple();
        break;
      case Binding::Kind::kTupleGetItem:
        out->mutable_tuple_get_item()->set_index(binding.index);
        break;
      case Binding::Kind::kIf:
        WriteBlock(binding.blocks[0], out->mutable_if_()->mutable_then_block());
        WriteBlock(binding.blocks[1], out->mutable_if_()->mutable_else_block());
        break;
    }
    out->set_var(Define(binding.var));
  }

  proto::IRModule* out_;
  proto::Function* function_ = nullptr;
  absl::flat_hash_map<const Var*, int> vars_;
  absl::flat_hash_map<const Constant*, int> constants_;
};

}  // namespace

proto::TensorType ToProto(const TensorType& type) {
  proto::TensorType out;
  out.set_dtype(static_cast<proto::DType>(type.dtype));
  for (const Dim& dim : type.dims) {
    if (dim.is_static()) {
      out.add_dims()->set_value(dim.value());
    } else {
      out.add_dims()->set_symbol(dim.symbol());
    }
  }
  return out;
}

proto::Type ToProto(const Type& type) {
  proto::Type out;
  if (type.is_tensor()) {
    *out.mutable_tensor() = ToProto(type.tensor());
    return out;
  }
  out.mutable_tuple();
  for (const Type& field : type.tuple().fields) *out.mutable_tuple()->add_fields() = ToProto(field);
  return out;
}

proto::IRModule ToProto(const IRModule& module) {
  proto::IRModule out;
  ModuleWriter writer(&out);
  for (const auto& [name, function] : module.functions) writer.Write(function, &(*out.mutable_functions())[name]);
  WriteAttrs(module.attrs, out.mutable_attrs());
  *out.mutable_config() = module.config().ToProto();
  return out;
}

}  // namespace inlay::ir
