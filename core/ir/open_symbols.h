// The dimensions that a function leaves open: what its code must be told at run time.
#ifndef INLAY_CORE_IR_OPEN_SYMBOLS_H_
#define INLAY_CORE_IR_OPEN_SYMBOLS_H_

#include <string>
#include <vector>

#include "core/ir/ir_module.h"

namespace inlay::ir {

// The names (SymbolNames) in the types of a function's params, bindings and results, sorted, each once; an opaque part
// ("((h+1)/2)") is a name of its own. Every extent in the function is a polynomial over them. Blocks of an If count.
std::vector<std::string> OpenSymbols(const Function& function);

// The first open dimension in a type, as it is written; "": there is none.
std::string FirstOpen(const Type& type);
// Of what a binding takes and makes.
std::string FirstOpen(const Binding& binding);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_OPEN_SYMBOLS_H_
