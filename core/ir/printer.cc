#include "core/ir/printer.h"

#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/ir/literal.h"

namespace inlay::ir {
namespace {

constexpr int64_t kMaxShownElements = 8;

std::string Element(const Constant& literal, int64_t i) {
  const DType dtype = literal.type.dtype;
  if (dtype == DType::kBool) return ElementAsInt(dtype, literal.data, i) ? "true" : "false";
  if (IsFloat(dtype)) {
    const double value = ElementAsDouble(dtype, literal.data, i);
    // f32's shortest form, not the double nearest to it.
    if (dtype == DType::kF64 || value != value) return DoubleToString(value);
    std::string text = absl::StrCat(static_cast<float>(value));
    return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
  }
  return absl::StrCat(ElementAsInt(dtype, literal.data, i));
}

std::string PrintLiteral(const Constant& literal) {
  if (literal.type.rank() == 0) return absl::StrCat(Name(literal.type.dtype), "(", Element(literal, 0), ")");
  std::string text = absl::StrCat(literal.type.ToString(), "{");
  const int64_t n = literal.type.NumElements();
  if (n > 1 && SplatDouble(Operand(std::make_shared<const Constant>(literal)))) {
    return absl::StrCat(text, Element(literal, 0), "...}");
  }
  for (int64_t i = 0; i < std::min(n, kMaxShownElements); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", Element(literal, i));
  }
  return absl::StrCat(text, n > kMaxShownElements ? ", ...}" : "}");
}

class Printer {
 public:
  void PrintFunction(const std::string& name, const Function& function) {
    vars_.clear();
    names_.clear();
    next_ = 0;
    absl::StrAppend(&body_, "fn @", name, "(");
    for (size_t i = 0; i < function.params.size(); ++i) {
      const VarPtr& param = function.params[i];
      vars_[param.get()] = UniqueName(param->name);
      absl::StrAppend(&body_, i == 0 ? "" : ", ", vars_[param.get()], ": ", param->type.ToString());
    }
    absl::StrAppend(&body_, ")");
    if (!function.attrs.values().empty()) absl::StrAppend(&body_, " {", PrintAttrs(function.attrs), "}");
    absl::StrAppend(&body_, " {\n");
    PrintBlock(function.body, 2, "return ");
    absl::StrAppend(&body_, "}\n");
  }

  std::string Finish() { return weights_.empty() ? body_ : absl::StrCat(weights_, "\n", body_); }
  std::string body_;

 private:
  // Parameters that have the same name, or one that is a number, get a suffix.
  std::string UniqueName(const std::string& name) {
    std::string clean = absl::CEscape(name);
    if (clean.empty() || absl::ascii_isdigit(clean[0])) clean = absl::StrCat("p", clean);
    std::string unique = clean;
    for (int i = 1; !names_.insert(unique).second; ++i) unique = absl::StrCat(clean, ".", i);
    return absl::StrCat("%", unique);
  }

  std::string PrintAttrs(const Attrs& attrs) {
    return absl::StrJoin(attrs.values(), ", ", [](std::string* s, const auto& attr) {
      absl::StrAppend(s, attr.first, "=", ToString(attr.second));
    });
  }

  std::string PrintOperand(const Operand& operand) {
    if (operand.is_var()) {
      auto it = vars_.find(operand.var.get());
      return it == vars_.end() ? absl::StrCat("%?", operand.var->name) : it->second;
    }
    if (operand.is_literal()) return PrintLiteral(*operand.constant);
    auto [it, fresh] = weight_ids_.emplace(operand.constant.get(), weight_ids_.size());
    if (fresh) {
      absl::StrAppend(&weights_, "@w", it->second, ": ", operand.constant->type.ToString());
      if (!operand.constant->name.empty()) {
        absl::StrAppend(&weights_, " \"", absl::CEscape(operand.constant->name), "\"");
      }
      absl::StrAppend(&weights_, "\n");
    }
    return absl::StrCat("@w", it->second);
  }

  std::string PrintOperands(const std::vector<Operand>& operands) {
    return absl::StrJoin(operands, ", ",
                         [this](std::string* s, const Operand& o) { absl::StrAppend(s, PrintOperand(o)); });
  }

  void PrintBlock(const Block& block, int indent, absl::string_view result_word) {
    const std::string space(indent, ' ');
    for (const Binding& binding : block.bindings) {
      std::string head = Head(binding);
      vars_[binding.var.get()] = absl::StrCat("%", next_++);
      absl::StrAppend(&body_, space, vars_[binding.var.get()], ": ", binding.var->type.ToString(), " = ", head);
      if (!binding.location.empty()) absl::StrAppend(&body_, "  // ", absl::CEscape(binding.location));
      absl::StrAppend(&body_, "\n");
      for (size_t i = 0; i < binding.blocks.size(); ++i) {
        absl::StrAppend(&body_, space, i == 0 ? "then {\n" : "} else {\n");
        PrintBlock(binding.blocks[i], indent + 2, "yield ");
        if (i + 1 == binding.blocks.size()) absl::StrAppend(&body_, space, "}\n");
      }
    }
    absl::StrAppend(&body_, space, result_word, PrintOperands(block.results), "\n");
  }

  std::string Head(const Binding& binding) {
    std::string args = PrintOperands(binding.args);
    if (!binding.attrs.values().empty()) {
      absl::StrAppend(&args, args.empty() ? "" : ", ", PrintAttrs(binding.attrs));
    }
    switch (binding.kind) {
      case Binding::Kind::kCall:
        return absl::StrCat(binding.callee, "(", args, ")");
      case Binding::Kind::kCallFunction:
        return absl::StrCat("@", binding.callee, "(", args, ")");
      case Binding::Kind::kCallPacked:
        return absl::StrCat("call_packed \"", absl::CEscape(binding.callee), "\"(", args, ")");
      case Binding::Kind::kTuple:
        return absl::StrCat("(", args, ")");
      case Binding::Kind::kTupleGetItem:
        return absl::StrCat(args, ".", binding.index);
      case Binding::Kind::kIf:
        return absl::StrCat("if ", args);
    }
    return "?";
  }

  std::string weights_;
  absl::flat_hash_map<const Var*, std::string> vars_;
  absl::flat_hash_map<const Constant*, size_t> weight_ids_;
  std::set<std::string> names_;
  int next_ = 0;
};

}  // namespace

std::string Print(const IRModule& module) {
  Printer printer;
  bool first = true;
  for (const auto& [name, function] : module.functions) {
    if (!first) printer.body_ += "\n";
    first = false;
    printer.PrintFunction(name, function);
  }
  return printer.Finish();
}

std::string Print(const Function& function, const std::string& name) {
  Printer printer;
  printer.PrintFunction(name, function);
  return printer.Finish();
}

}  // namespace inlay::ir
