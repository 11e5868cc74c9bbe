#include <functional>
#include <map>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/batch.h"
#include "core/ir/dim_expr.h"
#include "core/ir/infer_binding.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/required_extents.h"
#include "core/ir/updates.h"

namespace inlay::ir {
namespace {

constexpr size_t kMaxSymbol = 256;
// Text that ends up in messages is cut there.
constexpr size_t kMaxShown = 128;

std::string Shown(const std::string& text) { return absl::CEscape(text.substr(0, kMaxShown)); }

absl::StatusOr<DType> DTypeFromProto(proto::DType dtype) {
  if (dtype < proto::F32 || dtype > proto::BOOL) {
    return absl::InvalidArgumentError(absl::StrCat("dtype ", dtype, " is none of proto/ir.proto's"));
  }
  return static_cast<DType>(dtype);
}

absl::StatusOr<Type> TypeFromProto(const proto::Type& proto, int depth = 0) {
  switch (proto.kind_case()) {
    case proto::Type::kTensor: {
      INLAY_ASSIGN_OR_RETURN(TensorType tensor, FromProto(proto.tensor()));
      return Type(std::move(tensor));
    }
    case proto::Type::kTuple: {
      if (depth >= kMaxTupleDepth || proto.tuple().fields_size() > kMaxTupleLeaves) {
        return absl::InvalidArgumentError("a tuple type that is too deep or too wide");
      }
      TupleType tuple;
      for (const proto::Type& field : proto.tuple().fields()) {
        INLAY_ASSIGN_OR_RETURN(Type type, TypeFromProto(field, depth + 1));
        tuple.fields.push_back(std::move(type));
      }
      Type type(std::move(tuple));
      if (depth == 0) INLAY_RETURN_IF_ERROR(CheckTupleLimits(type));
      return type;
    }
    default:
      return absl::InvalidArgumentError("a type that is neither tensor nor tuple");
  }
}

absl::Status CheckData(const TensorType& type, const std::string& data) {
  if (!type.is_static()) {
    return absl::InvalidArgumentError(absl::StrCat("its type ", type.ToString(), " is symbolic; data needs numbers"));
  }
  if (type.NumBytes() > kMaxLiteralBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a literal of ", type.NumBytes(), " bytes; at most ",
                                                   kMaxLiteralBytes, " travel inside a module, more is a weight"));
  }
  if (static_cast<int64_t>(data.size()) != type.NumBytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the literal has ", data.size(), " bytes; ", type.ToString(), " has ", type.NumBytes()));
  }
  if (type.dtype == DType::kBool && data.find_first_not_of(std::string("\0\1", 2)) != std::string::npos) {
    return absl::InvalidArgumentError("a bool literal holds a byte that is neither 0 nor 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<AttrValue> AttrFromProto(const proto::AttrValue& proto) {
  switch (proto.kind_case()) {
    case proto::AttrValue::kI:
      return AttrValue(int64_t{proto.i()});
    case proto::AttrValue::kF:
      return AttrValue(proto.f());
    case proto::AttrValue::kS:
      return AttrValue(proto.s());
    case proto::AttrValue::kB:
      return AttrValue(proto.b());
    case proto::AttrValue::kDtype: {
      INLAY_ASSIGN_OR_RETURN(DType dtype, DTypeFromProto(proto.dtype()));
      return AttrValue(dtype);
    }
    case proto::AttrValue::kInts:
      return AttrValue(std::vector<int64_t>(proto.ints().v().begin(), proto.ints().v().end()));
    case proto::AttrValue::kFloats:
      return AttrValue(std::vector<double>(proto.floats().v().begin(), proto.floats().v().end()));
    case proto::AttrValue::kStrings:
      return AttrValue(std::vector<std::string>(proto.strings().v().begin(), proto.strings().v().end()));
    case proto::AttrValue::kTensor: {
      INLAY_ASSIGN_OR_RETURN(TensorType type, FromProto(proto.tensor().type()));
      INLAY_RETURN_IF_ERROR(CheckData(type, proto.tensor().data()));
      return AttrValue(Literal{std::move(type), proto.tensor().data()});
    }
    default:
      return absl::InvalidArgumentError("no value is set");
  }
}

absl::StatusOr<Attrs> AttrsFromProto(const google::protobuf::Map<std::string, proto::AttrValue>& proto) {
  Attrs attrs;
  for (const auto& [name, value] : proto) {
    absl::StatusOr<AttrValue> converted = AttrFromProto(value);
    INLAY_RETURN_IF_ERROR(Annotate(converted.status(), absl::StrCat("attribute '", Shown(name), "'")));
    attrs.Set(name, *std::move(converted));
  }
  return attrs;
}

absl::StatusOr<ConstantPtr> ConstantFromProto(const proto::Constant& proto) {
  INLAY_ASSIGN_OR_RETURN(TensorType type, FromProto(proto.type()));
  switch (proto.value_case()) {
    case proto::Constant::kDigest: {
      if (!type.is_static()) {
        return absl::InvalidArgumentError(
            absl::StrCat("its type ", type.ToString(), " is symbolic; data needs numbers"));
      }
      INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(proto.digest()));
      return MakeWeight(std::move(type), digest, proto.name());
    }
    case proto::Constant::kLiteral:
      INLAY_RETURN_IF_ERROR(CheckData(type, proto.literal()));
      return MakeLiteral(std::move(type), proto.literal(), proto.name());
    default:
      return absl::InvalidArgumentError("it has neither a digest (a weight) nor a literal");
  }
}

absl::Status CollectCalls(const proto::Block& block, int depth, std::vector<std::string>* callees) {
  if (depth > kMaxBlockDepth) {
    return absl::InvalidArgumentError(absl::StrCat("ifs are nested deeper than ", kMaxBlockDepth));
  }
  for (const proto::Binding& binding : block.bindings()) {
    if (binding.has_call_function()) callees->push_back(binding.call_function().function());
    if (!binding.has_if_()) continue;
    INLAY_RETURN_IF_ERROR(CollectCalls(binding.if_().then_block(), depth + 1, callees));
    INLAY_RETURN_IF_ERROR(CollectCalls(binding.if_().else_block(), depth + 1, callees));
  }
  return absl::OkStatus();
}

// One function; its callees are known already.
class FunctionReader {
 public:
  // `num_tensors` counts those of the whole module.
  FunctionReader(const proto::Function& proto, const std::vector<ConstantPtr>& constants, const SignatureLookup& lookup,
                 int64_t* num_tensors)
      : proto_(proto),
        constants_(constants),
        lookup_(lookup),
        num_tensors_(num_tensors),
        defined_(proto.vars_size()),
        visible_(proto.vars_size()) {}

  absl::StatusOr<Function> Run() {
    Function function;
    INLAY_ASSIGN_OR_RETURN(function.attrs, AttrsFromProto(proto_.attrs()));
    for (int i = 0; i < proto_.params_size(); ++i) {
      absl::StatusOr<VarPtr> param = Param(proto_.params(i));
      INLAY_RETURN_IF_ERROR(Annotate(param.status(), absl::StrCat("parameter ", i)));
      function.params.push_back(*std::move(param));
    }
    INLAY_ASSIGN_OR_RETURN(function.body, ReadBlock(proto_.body()));
    if (function.body.results.empty()) return absl::InvalidArgumentError("it has no results");
    function.result_names.assign(proto_.result_names().begin(), proto_.result_names().end());
    if (!function.result_names.empty() && function.result_names.size() != function.body.results.size()) {
      return absl::InvalidArgumentError(absl::StrCat(function.result_names.size(), " result_names for ",
                                                     function.body.results.size(), " results; give one each, or none"));
    }
    return function;
  }

 private:
  absl::Status CheckFresh(int index) {
    if (index < 0 || index >= proto_.vars_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("defines var ", index, "; the function has ", proto_.vars_size(), " vars"));
    }
    if (defined_[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("defines var ", index, " (%", Shown(proto_.vars(index).name()), ") a second time"));
    }
    return absl::OkStatus();
  }

  void Define(int index, VarPtr var) {
    defined_[index] = true;
    visible_[index] = std::move(var);
  }

  absl::StatusOr<VarPtr> Param(int index) {
    INLAY_RETURN_IF_ERROR(CheckFresh(index));
    const proto::Var& var = proto_.vars(index);
    const std::string what = absl::StrCat("%", Shown(var.name()));
    if (!var.type().has_tensor()) {
      return absl::InvalidArgumentError(absl::StrCat(what, " has no tensor type; a parameter must have one"));
    }
    absl::StatusOr<TensorType> type = FromProto(var.type().tensor());
    INLAY_RETURN_IF_ERROR(Annotate(type.status(), what));
    VarPtr param = MakeVar(var.name(), *std::move(type));
    Define(index, param);
    return param;
  }

  absl::StatusOr<Operand> ReadOperand(const proto::Operand& operand) {
    switch (operand.kind_case()) {
      case proto::Operand::kVar: {
        const int index = operand.var();
        if (index < 0 || index >= proto_.vars_size()) {
          return absl::InvalidArgumentError(
              absl::StrCat("uses var ", index, "; the function has ", proto_.vars_size(), " vars"));
        }
        if (visible_[index] == nullptr) {
          return absl::InvalidArgumentError(absl::StrCat(
              "uses var ", index, " (%", Shown(proto_.vars(index).name()), ") ",
              defined_[index] ? "outside of the block that defines it"
                              : "before it is defined; bindings must be in execution order, without cycles"));
        }
        return Operand(visible_[index]);
      }
      case proto::Operand::kConstant: {
        const int index = operand.constant();
        if (index < 0 || index >= static_cast<int>(constants_.size())) {
          return absl::InvalidArgumentError(
              absl::StrCat("uses constant ", index, "; the module has ", constants_.size(), " constants"));
        }
        return Operand(constants_[index]);
      }
      default:
        return absl::InvalidArgumentError("has an operand that is neither var nor constant");
    }
  }

  absl::StatusOr<Block> ReadBlock(const proto::Block& proto) {
    Block block;
    block.bindings.reserve(proto.bindings_size());
    std::vector<int> local;
    for (int i = 0; i < proto.bindings_size(); ++i) {
      const proto::Binding& binding = proto.bindings(i);
      absl::StatusOr<Binding> read = ReadBinding(binding);
      if (!read.ok()) return Annotate(read.status(), DescribeProto(binding, i));
      block.bindings.push_back(*std::move(read));
      local.push_back(binding.var());
    }
    for (int i = 0; i < proto.results_size(); ++i) {
      absl::StatusOr<Operand> result = ReadOperand(proto.results(i));
      INLAY_RETURN_IF_ERROR(Annotate(result.status(), absl::StrCat("result ", i)));
      block.results.push_back(*std::move(result));
    }
    if (!in_body_) {
      for (int index : local) visible_[index] = nullptr;
    }
    return block;
  }

  absl::StatusOr<Binding> ReadBinding(const proto::Binding& proto) {
    Binding binding;
    INLAY_RETURN_IF_ERROR(CheckFresh(proto.var()));
    binding.location = proto.location();
    INLAY_ASSIGN_OR_RETURN(binding.attrs, AttrsFromProto(proto.attrs()));
    for (const proto::Operand& arg : proto.args()) {
      INLAY_ASSIGN_OR_RETURN(Operand operand, ReadOperand(arg));
      binding.args.push_back(std::move(operand));
    }
    Type declared;
    INLAY_RETURN_IF_ERROR(ReadExpr(proto, &binding, &declared));
    INLAY_ASSIGN_OR_RETURN(Type type, InferBinding(&binding, lookup_, &declared));
    if ((*num_tensors_ += NumTensors(type)) > kMaxModuleTensors) {
      return absl::InvalidArgumentError(
          absl::StrCat("the module's values, tuples taken apart, are more than ", kMaxModuleTensors));
    }
    // A nested block may have used the same index.
    INLAY_RETURN_IF_ERROR(CheckFresh(proto.var()));
    const proto::Var& var = proto_.vars(proto.var());
    if (var.has_type()) {
      INLAY_ASSIGN_OR_RETURN(Type believed, TypeFromProto(var.type()));
      if (believed != type) {
        return absl::InvalidArgumentError(
            absl::StrCat("is declared ", believed.ToString(), "; inference gives ", type.ToString()));
      }
    }
    binding.var = MakeVar(var.name(), std::move(type));
    Define(proto.var(), binding.var);
    return binding;
  }

  absl::Status ReadExpr(const proto::Binding& proto, Binding* binding, Type* declared) {
    switch (proto.expr_case()) {
      case proto::Binding::kCall:
        binding->kind = Binding::Kind::kCall;
        binding->callee = proto.call().op();
        return absl::OkStatus();
      case proto::Binding::kCallFunction:
        binding->kind = Binding::Kind::kCallFunction;
        binding->callee = proto.call_function().function();
        return absl::OkStatus();
      case proto::Binding::kCallPacked: {
        binding->kind = Binding::Kind::kCallPacked;
        binding->callee = proto.call_packed().name();
        INLAY_ASSIGN_OR_RETURN(*declared, TypeFromProto(proto.call_packed().result()));
        return absl::OkStatus();
      }
      case proto::Binding::kTuple:
        binding->kind = Binding::Kind::kTuple;
        return absl::OkStatus();
      case proto::Binding::kTupleGetItem:
        binding->kind = Binding::Kind::kTupleGetItem;
        binding->index = proto.tuple_get_item().index();
        return absl::OkStatus();
      case proto::Binding::kIf: {
        binding->kind = Binding::Kind::kIf;
        const bool was_body = in_body_;
        in_body_ = false;
        INLAY_ASSIGN_OR_RETURN(Block then_block, ReadBlock(proto.if_().then_block()));
        INLAY_ASSIGN_OR_RETURN(Block else_block, ReadBlock(proto.if_().else_block()));
        in_body_ = was_body;
        binding->blocks = {std::move(then_block), std::move(else_block)};
        return absl::OkStatus();
      }
      default:
        return absl::InvalidArgumentError(
            "has no expression; it must be one of call, call_function, call_packed, tuple, tuple_get_item, if_");
    }
  }

  std::string DescribeProto(const proto::Binding& proto, int position) {
    std::string text = absl::StrCat("binding ", position);
    if (proto.has_call()) absl::StrAppend(&text, " (", Shown(proto.call().op()), ")");
    if (!proto.location().empty()) absl::StrAppend(&text, " at '", Shown(proto.location()), "'");
    return text;
  }

  const proto::Function& proto_;
  const std::vector<ConstantPtr>& constants_;
  const SignatureLookup& lookup_;
  int64_t* num_tensors_;
  std::vector<bool> defined_;
  std::vector<VarPtr> visible_;
  bool in_body_ = true;  // not inside an if
};

absl::Status CheckBlocks(const Block& block, const std::function<absl::Status(const Binding&)>& check) {
  for (const Binding& binding : block.bindings) {
    INLAY_RETURN_IF_ERROR(check(binding));
    for (const Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(CheckBlocks(nested, check));
  }
  return absl::OkStatus();
}

absl::Status CheckMain(const Function& main) {
  for (size_t i = 0; i < main.body.results.size(); ++i) {
    if (!main.body.results[i].type().is_tensor()) {
      return absl::InvalidArgumentError(
          absl::StrCat("function 'main': result ", i, " is a tuple; the results of main must be tensors"));
    }
  }
  INLAY_RETURN_IF_ERROR(RequiredExtents(main).status());
  return UpdatedInputs(main).status();
}

// What the compiler itself says in attributes (core/README.md, core/ir/batch.h) is not a client's to say.
absl::Status CheckReserved(const IRModule& module) {
  auto check = [](const Attrs& attrs, std::initializer_list<absl::string_view> reserved, absl::string_view what) {
    for (absl::string_view name : reserved) {
      if (attrs.Has(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " has the attribute '", name, "', which is the compiler's own"));
      }
    }
    return absl::OkStatus();
  };
  for (const auto& [name, function] : module.functions) {
    const std::string where = absl::StrCat("function '", Shown(name), "'");
    INLAY_RETURN_IF_ERROR(check(function.attrs, {"num_lifted_params", "backend", "symbol", "constant_params"}, where));
    INLAY_RETURN_IF_ERROR(CheckBlocks(function.body, [&](const Binding& binding) {
      return check(binding.attrs, {kMicroBatches}, absl::StrCat(where, ": ", Describe(binding)));
    }));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorType> FromProto(const proto::TensorType& proto) {
  TensorType type;
  INLAY_ASSIGN_OR_RETURN(type.dtype, DTypeFromProto(proto.dtype()));
  if (proto.dims_size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of rank ", proto.dims_size(), "; the highest rank is ", kMaxRank));
  }
  for (const proto::Dim& dim : proto.dims()) {
    switch (dim.kind_case()) {
      case proto::Dim::kValue:
        if (dim.value() < 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("an extent of ", dim.value(), "; an extent that is not known has a symbol"));
        }
        type.dims.push_back(dim.value());
        break;
      case proto::Dim::kSymbol:
        if (dim.symbol().empty() || dim.symbol().size() > kMaxSymbol) {
          return absl::InvalidArgumentError(
              absl::StrCat("a symbol of ", dim.symbol().size(), " characters; it must have 1 to ", kMaxSymbol));
        }
        type.dims.push_back(CanonicalDim(dim.symbol()));
        break;
      default:
        return absl::InvalidArgumentError("a dim that is neither a value nor a symbol");
    }
  }
  INLAY_RETURN_IF_ERROR(CheckTensorType(type));
  return type;
}

absl::StatusOr<IRModule> FromProto(const proto::IRModule& proto) {
  if (proto.functions().count("main") == 0) {
    return absl::InvalidArgumentError("the module has no function 'main', which is its entry");
  }
  INLAY_ASSIGN_OR_RETURN(target::CompilationConfig config, target::CompilationConfig::FromProto(proto.config()));
  INLAY_ASSIGN_OR_RETURN(IRModule module, PartitionsFromProto(proto));
  INLAY_RETURN_IF_ERROR(CheckReserved(module));
  INLAY_RETURN_IF_ERROR(CheckMain(module.functions.at("main")));
  module.set_config(std::move(config));
  return module;
}

absl::StatusOr<IRModule> PartitionsFromProto(const proto::IRModule& proto) {
  IRModule module;
  INLAY_ASSIGN_OR_RETURN(module.attrs, AttrsFromProto(proto.attrs()));
  std::vector<ConstantPtr> constants;
  constants.reserve(proto.constants_size());
  for (int i = 0; i < proto.constants_size(); ++i) {
    absl::StatusOr<ConstantPtr> constant = ConstantFromProto(proto.constants(i));
    INLAY_RETURN_IF_ERROR(
        Annotate(constant.status(), absl::StrCat("constant ", i, " ('", Shown(proto.constants(i).name()), "')")));
    constants.push_back(*std::move(constant));
  }
  std::map<std::string, std::vector<std::string>> calls;
  for (const auto& [name, function] : proto.functions()) {
    INLAY_RETURN_IF_ERROR(
        Annotate(CollectCalls(function.body(), 0, &calls[name]), absl::StrCat("function '", Shown(name), "'")));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<std::string> order, CallOrder(calls));
  std::map<std::string, Signature> signatures;
  const SignatureLookup lookup = [&](const std::string& name) -> const Signature* {
    auto it = signatures.find(name);
    return it == signatures.end() ? nullptr : &it->second;
  };
  int64_t num_tensors = 0;
  for (const std::string& name : order) {
    absl::StatusOr<Function> function =
        FunctionReader(proto.functions().at(name), constants, lookup, &num_tensors).Run();
    INLAY_RETURN_IF_ERROR(Annotate(function.status(), absl::StrCat("function '", Shown(name), "'")));
    Signature signature = SignatureOf(*function);
    INLAY_RETURN_IF_ERROR(
        Annotate(CheckTupleLimits(signature.result), absl::StrCat("results of function '", Shown(name), "'")));
    signatures.emplace(name, std::move(signature));
    module.functions.emplace(name, *std::move(function));
  }
  return module;
}

}  // namespace inlay::ir
