#include "core/runtime/symbol_registry.h"

#include <map>

namespace inlay::runtime {
namespace {
std::map<std::string, void*>& Symbols() {
  static auto* symbols = new std::map<std::string, void*>;  // never destroyed: used by registrations in any order
  return *symbols;
}
}  // namespace

void* FindRuntimeSymbol(const std::string& name) {
  const auto it = Symbols().find(name);
  return it == Symbols().end() ? nullptr : it->second;
}

RuntimeSymbolRegistration::RuntimeSymbolRegistration(std::initializer_list<std::pair<const char*, void*>> symbols) {
  for (const auto& [name, address] : symbols) Symbols()[name] = address;
}

}  // namespace inlay::runtime
