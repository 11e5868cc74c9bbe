#include "core/ir/open_symbols.h"

#include <set>

#include "core/ir/dim_expr.h"

namespace inlay::ir {
namespace {

void Collect(const Type& type, std::set<std::string>* names) {
  if (!type.is_tensor()) {
    for (const Type& field : type.tuple().fields) Collect(field, names);
    return;
  }
  for (const Dim& dim : type.tensor().dims) {
    for (std::string& name : SymbolNames(dim)) names->insert(std::move(name));
  }
}

void Collect(const Block& block, std::set<std::string>* names) {
  for (const Binding& binding : block.bindings) {
    Collect(binding.var->type, names);
    for (const Block& inner : binding.blocks) Collect(inner, names);
  }
  for (const Operand& result : block.results) Collect(result.type(), names);
}

}  // namespace

std::vector<std::string> OpenSymbols(const Function& function) {
  std::set<std::string> names;
  for (const VarPtr& param : function.params) Collect(param->type, &names);
  Collect(function.body, &names);
  return {names.begin(), names.end()};
}

std::string FirstOpen(const Type& type) {
  if (type.is_tensor()) return type.tensor().FirstSymbol();
  for (const Type& field : type.tuple().fields) {
    if (std::string symbol = FirstOpen(field); !symbol.empty()) return symbol;
  }
  return "";
}

std::string FirstOpen(const Binding& binding) {
  if (std::string symbol = FirstOpen(binding.var->type); !symbol.empty()) return symbol;
  for (const Operand& arg : binding.args) {
    if (std::string symbol = FirstOpen(arg.type()); !symbol.empty()) return symbol;
  }
  return "";
}

}  // namespace inlay::ir
