#include "core/ir/structural_hash.h"

#include <cstring>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace inlay::ir {
namespace {

// Every item is self-delimiting (numbers are LEB128, strings have their length before them), so that different
// structures never give the same bytes.
class Encoder {
 public:
  // By name: the hash of a function of the module, or nullptr where calls are encoded by name.
  using CalleeHashes = std::map<std::string, Digest>;
  explicit Encoder(const CalleeHashes* callees) : callees_(callees) {}

  std::string params, weights, attrs, body, results;

  void Encode(const Function& function) {
    Number(&params, function.params.size());
    for (const VarPtr& param : function.params) {
      Define(param.get());
      Encode(&params, param->type);
    }
    Encode(&attrs, function.attrs);
    EncodeBindings(&body, function.body);
    Encode(&results, function.body.results);
    std::string count;
    Number(&count, num_weights_);
    weights.insert(0, count);
  }

 private:
  static void Number(std::string* out, uint64_t value) {
    while (value >= 0x80) {
      out->push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out->push_back(static_cast<char>(value));
  }
  static void Signed(std::string* out, int64_t value) {  // zigzag
    Number(out, (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  static void Text(std::string* out, absl::string_view text) {
    Number(out, text.size());
    out->append(text.data(), text.size());
  }

  static void Encode(std::string* out, const TensorType& type) {
    out->push_back(static_cast<char>(type.dtype));
    Number(out, type.dims.size());
    for (const Dim& dim : type.dims) {
      out->push_back(dim.is_static() ? 'n' : 's');
      if (dim.is_static()) {
        Signed(out, dim.value());
      } else {
        Text(out, dim.symbol());
      }
    }
  }

  static void Encode(std::string* out, const Type& type) {
    if (type.is_tensor()) {
      out->push_back('t');
      return Encode(out, type.tensor());
    }
    out->push_back('(');
    Number(out, type.tuple().fields.size());
    for (const Type& field : type.tuple().fields) Encode(out, field);
  }

  static void Encode(std::string* out, double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int i = 0; i < 8; ++i) out->push_back(static_cast<char>(bits >> (8 * i)));
  }

  struct AttrVisitor {
    std::string* out;
    void operator()(int64_t v) const { Signed(out, v); }
    void operator()(double v) const { Encode(out, v); }
    void operator()(const std::string& v) const { Text(out, v); }
    void operator()(bool v) const { out->push_back(v ? 1 : 0); }
    void operator()(DType v) const { out->push_back(static_cast<char>(v)); }
    void operator()(const std::vector<int64_t>& v) const {
      Number(out, v.size());
      for (int64_t e : v) Signed(out, e);
    }
    void operator()(const std::vector<double>& v) const {
      Number(out, v.size());
      for (double e : v) Encode(out, e);
    }
    void operator()(const std::vector<std::string>& v) const {
      Number(out, v.size());
      for (const std::string& e : v) Text(out, e);
    }
    void operator()(const Literal& v) const {
      Encode(out, v.type);
      Text(out, v.data);
    }
  };

  static void Encode(std::string* out, const Attrs& attrs) {
    Number(out, attrs.values().size());
    for (const auto& [name, value] : attrs.values()) {
      Text(out, name);
      out->push_back(static_cast<char>(value.index()));
      std::visit(AttrVisitor{out}, value);
    }
  }

  uint64_t Define(const Var* var) { return vars_.emplace(var, vars_.size()).first->second; }

  void Encode(std::string* out, const std::vector<Operand>& operands) {
    Number(out, operands.size());
    for (const Operand& operand : operands) {
      if (operand.is_var()) {
        out->push_back('v');
        Number(out, Define(operand.var.get()));  // a free Var gets the next number
      } else if (operand.is_weight()) {
        auto [it, fresh] = weight_ids_.emplace(operand.constant.get(), num_weights_);
        if (fresh) {
          ++num_weights_;
          Encode(&weights, operand.constant->type);
        }
        out->push_back('w');
        Number(out, it->second);
      } else {
        out->push_back('l');
        Encode(out, operand.constant->type);
        Text(out, operand.constant->data);
      }
    }
  }

  void EncodeBindings(std::string* out, const Block& block) {
    Number(out, block.bindings.size());
    for (const Binding& binding : block.bindings) {
      out->push_back(static_cast<char>(binding.kind));
      const bool by_hash = binding.kind == Binding::Kind::kCallFunction && callees_ != nullptr;
      auto callee = by_hash ? callees_->find(binding.callee) : Encoder::CalleeHashes::const_iterator();
      Text(out, by_hash && callee != callees_->end() ? callee->second.bytes() : absl::string_view(binding.callee));
      Encode(out, binding.args);
      Encode(out, binding.attrs);
      Signed(out, binding.index);
      Number(out, binding.blocks.size());
      for (const Block& nested : binding.blocks) {
        EncodeBindings(out, nested);
        Encode(out, nested.results);
      }
      Encode(out, binding.var->type);
      Define(binding.var.get());
    }
  }

  const CalleeHashes* callees_;
  absl::flat_hash_map<const Var*, uint64_t> vars_;
  absl::flat_hash_map<const Constant*, uint64_t> weight_ids_;
  uint64_t num_weights_ = 0;
};

std::string Assemble(const Encoder& e) {
  std::string bytes = absl::StrCat("inlay structure ", kStructuralVersion, "\n");
  for (const std::string* part : {&e.params, &e.weights, &e.attrs, &e.body, &e.results}) {
    absl::StrAppend(&bytes, part->size(), ":", *part);
  }
  return bytes;
}

void CollectCallees(const Block& block, std::vector<std::string>* callees) {
  for (const Binding& binding : block.bindings) {
    if (binding.kind == Binding::Kind::kCallFunction) callees->push_back(binding.callee);
    for (const Block& nested : binding.blocks) CollectCallees(nested, callees);
  }
}

void HashCalleesFirst(const IRModule& module, const std::string& name, Encoder::CalleeHashes* hashes,
                      std::map<std::string, bool>* called) {
  auto it = module.functions.find(name);
  if (it == module.functions.end() || hashes->count(name) > 0) return;
  std::vector<std::string> callees;
  CollectCallees(it->second.body, &callees);
  for (const std::string& callee : callees) {
    (*called)[callee] = true;
    HashCalleesFirst(module, callee, hashes, called);
  }
  Encoder encoder(hashes);
  encoder.Encode(it->second);
  hashes->emplace(name, Digest::Of(Assemble(encoder)));
}

class Renamer {
 public:
  Function Run(const Function& function) {
    Function out;
    out.attrs = function.attrs;
    for (const VarPtr& param : function.params) {
      out.params.push_back(Fresh(param, absl::StrCat("p", out.params.size())));
    }
    out.body = Rename(function.body);
    return out;
  }

 private:
  VarPtr Fresh(const VarPtr& var, std::string name) { return vars_[var.get()] = MakeVar(std::move(name), var->type); }

  Operand Rename(const Operand& operand) {
    if (operand.is_var()) {
      auto it = vars_.find(operand.var.get());
      return it == vars_.end() ? operand : Operand(it->second);
    }
    ConstantPtr& renamed = constants_[operand.constant.get()];
    if (renamed == nullptr) {
      auto copy = std::make_shared<Constant>(*operand.constant);
      copy->name = copy->is_weight ? absl::StrCat("w", num_weights_++) : "";
      renamed = std::move(copy);
    }
    return renamed;
  }

  Block Rename(const Block& block) {
    Block out;
    out.bindings.reserve(block.bindings.size());
    for (const Binding& binding : block.bindings) {
      Binding copy;
      copy.kind = binding.kind;
      copy.callee = binding.callee;
      for (const Operand& arg : binding.args) copy.args.push_back(Rename(arg));
      copy.attrs = binding.attrs;
      copy.index = binding.index;
      for (const Block& nested : binding.blocks) copy.blocks.push_back(Rename(nested));
      copy.var = Fresh(binding.var, absl::StrCat("v", num_vars_++));
      out.bindings.push_back(std::move(copy));
    }
    for (const Operand& result : block.results) out.results.push_back(Rename(result));
    return out;
  }

  absl::flat_hash_map<const Var*, VarPtr> vars_;
  absl::flat_hash_map<const Constant*, ConstantPtr> constants_;
  int num_vars_ = 0, num_weights_ = 0;
};

}  // namespace

std::string StructuralBytes(const Function& function) {
  Encoder encoder(nullptr);
  encoder.Encode(function);
  return Assemble(encoder);
}

Digest StructuralHash(const Function& function) { return Digest::Of(StructuralBytes(function)); }

Digest StructuralHash(const IRModule& module) {
  Encoder::CalleeHashes hashes;
  std::map<std::string, bool> called;
  for (const auto& [name, function] : module.functions) HashCalleesFirst(module, name, &hashes, &called);
  Function attrs_only;
  attrs_only.attrs = module.attrs;
  Hasher hasher;
  hasher.UpdateField("inlay module").UpdateField(StructuralHash(attrs_only).bytes());
  for (const auto& [name, digest] : hashes) {
    if (called.count(name) == 0) hasher.UpdateField(name).UpdateField(digest.bytes());
  }
  return hasher.Finish();
}

std::vector<std::pair<std::string, Digest>> StructuralComponents(const Function& function) {
  Encoder e(nullptr);
  e.Encode(function);
  return {{"params", Digest::Of(e.params)},
          {"weights", Digest::Of(e.weights)},
          {"attrs", Digest::Of(e.attrs)},
          {"body", Digest::Of(e.body)},
          {"results", Digest::Of(e.results)}};
}

Function Canonicalize(const Function& function) { return Renamer().Run(function); }

}  // namespace inlay::ir
