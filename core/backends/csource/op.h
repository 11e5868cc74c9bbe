// The table of operators: what this backend knows about each. One file a group in ops/.
//
// An operator has an `element` function (the value of one element from elements of its arguments: it can be computed
// where it is used, and has no memory then), or a `kernel` (loops of its own, which write through
// KernelEmitter::Store).
#ifndef INLAY_CORE_BACKENDS_CSOURCE_OP_H_
#define INLAY_CORE_BACKENDS_CSOURCE_OP_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "core/backends/csource/expr.h"
#include "core/backends/csource/graph.h"

namespace inlay::csource {

class KernelEmitter;

// How an operator reads an argument.
enum class Use {
  kOnce,    // each element once (or the operator is an element function)
  kMany,    // each element several times: worth memory unless cheap
  kMemory,  // through a pointer
};

struct Op {
  // UNIMPLEMENTED with the reason; empty: everything that the schema allows. Shapes are static and hold elements.
  std::function<absl::Status(const ir::Binding&)> check;
  // Output `output`'s element at `at`, in the type it is computed in.
  std::function<Expr(KernelEmitter&, const Node&, int output, const Index& at)> element;
  std::function<void(KernelEmitter&, const Node&)> kernel;
  std::function<Use(const Node&, int arg)> use;  // empty: kOnce
  int cost = 1;                                  // of an element, in additions; up to kCheap it is computed again
  bool pointwise = false;                        // element [i] is of elements [i], broadcast
};

using OpTable = std::map<std::string, Op>;
const OpTable& Ops();

// nullptr: not one of this backend's.
const Op* FindOp(const std::string& name);

// Whether this call can be in a partition. UNIMPLEMENTED: the reason.
absl::Status CheckCall(const ir::Binding& call);

// Each in its file under ops/.
void AddElementwise(OpTable* ops);
void AddMovement(OpTable* ops);
void AddReductions(OpTable* ops);
void AddNormalisation(OpTable* ops);
void AddPooling(OpTable* ops);
void AddSampling(OpTable* ops);
void AddContractions(OpTable* ops);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_OP_H_
