// Addresses, in this process, of what compiled code may call (core/artifact/static_library.h: IsAllowedExternal).
#ifndef INLAY_CORE_JIT_EXTERNAL_SYMBOLS_H_
#define INLAY_CORE_JIT_EXTERNAL_SYMBOLS_H_

#include <string>

namespace inlay::jit {

// nullptr: not one of them, and no backend's :runtime registered it. Any thread.
void* FindExternalSymbol(const std::string& name);

}  // namespace inlay::jit

#endif  // INLAY_CORE_JIT_EXTERNAL_SYMBOLS_H_
