// What a function or module *is*, without what it is called: the identity under which compiled code is cached.
//
// Insensitive to the names of Vars, constants, parameters and results, to locations, and to the digests of weights.
// Sensitive to everything else: types, operators, attributes, wiring, order of bindings, literals, results.
// Weights are identified by the order of their first use: two uses of one Constant object are one weight; two objects
// are two weights even where their digests are equal, since equal values are a coincidence (seeded gammas) that new
// weights need not share.
//
// The hash is the SHA-256 of a deterministic encoding (StructuralBytes), by which equality can be checked exactly.
// Changing the encoding changes every cache key: bump kStructuralVersion with it.
#ifndef INLAY_CORE_IR_STRUCTURAL_HASH_H_
#define INLAY_CORE_IR_STRUCTURAL_HASH_H_

#include <string>
#include <utility>
#include <vector>

#include "core/base/digest.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

inline constexpr int kStructuralVersion = 1;

// Calls of other functions are encoded by name.
std::string StructuralBytes(const Function& function);
Digest StructuralHash(const Function& function);

// Calls are encoded by the callee's hash, so that the names of called functions do not matter; those of functions that
// nobody calls (main, transform_params) do. The module's config is not part of it. Needs an acyclic call graph.
Digest StructuralHash(const IRModule& module);

// The hashes of what the function consists of, in a fixed order: "params", "weights" (their types), "attrs", "body",
// "results". Of two functions that differ, those that differ say in what.
std::vector<std::pair<std::string, Digest>> StructuralComponents(const Function& function);

// The same function with everything renamed by position (p0, v0, w0), without locations and result names: equal
// structures become equal but for the digests of weights.
Function Canonicalize(const Function& function);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_STRUCTURAL_HASH_H_
