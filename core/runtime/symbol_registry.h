// What a backend's :runtime offers to code that is loaded by the JIT: its shim functions, by name and address.
//
// A backend's compiled partitions may call functions named inlay_<component>_*, which the backend's :runtime target
// defines with C linkage and its manifests declare as runtime component <component>. An exported library links them
// from lib<component>_runtime.a; the JIT takes them from here:
//
//   INLAY_REGISTER_RUNTIME_SYMBOLS(onednn, {{"inlay_onednn_conv_init", (void*)&inlay_onednn_conv_init}, ...});
//
// at file scope in a target with alwayslink = 1 (kept out of the archive, or harmless there). Registration happens
// before main; afterwards the registry is only read.
#ifndef INLAY_CORE_RUNTIME_SYMBOL_REGISTRY_H_
#define INLAY_CORE_RUNTIME_SYMBOL_REGISTRY_H_

#include <initializer_list>
#include <string>
#include <utility>

namespace inlay::runtime {

// nullptr: not registered.
void* FindRuntimeSymbol(const std::string& name);

struct RuntimeSymbolRegistration {
  RuntimeSymbolRegistration(std::initializer_list<std::pair<const char*, void*>> symbols);
};

#define INLAY_REGISTER_RUNTIME_SYMBOLS(component, ...) \
  static const ::inlay::runtime::RuntimeSymbolRegistration inlay_runtime_symbols_##component __VA_ARGS__

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_SYMBOL_REGISTRY_H_
