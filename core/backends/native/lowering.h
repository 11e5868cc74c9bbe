// What the native backend knows of each operator: how one element of its result is computed, or the kernels that write
// it.
//
// To add an operator: an entry in the file of its group under lowerings/ (and, for a new group, its name in
// lowering.cc). An operator needs `element`, `kernel` or both:
//  - element: the value at given indices. May be folded into whatever consumes it; costs nothing in memory.
//  - kernel: writes the results' buffers. Preferred over a loop on `element` where the result has memory.
// The table is built on first use and only read afterwards.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERING_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERING_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backends/native/graph.h"

namespace mlir {
class Value;
}

namespace inlay::native {

class Eval;
class FunctionEmitter;
struct Index;

enum class ArgUse {
  kOnce,    // each element is read about once: what computes it may be folded in
  kMany,    // each is read several times: folded in only if it costs next to nothing
  kMemory,  // read through a pointer
};

struct Lowering {
  // The element of result `output` at `indices` (in the order of its dimensions).
  std::function<mlir::Value(Eval&, const Node&, int output, const std::vector<Index>& indices)> element;
  std::function<absl::Status(FunctionEmitter&, const Node&)> kernel;
  // Which nodes the kernel is for; a loop on `element` computes others. Empty: all.
  std::function<bool(const Node&)> kernel_if;
  // The element depends on the arguments' elements at the same indices (broadcast) and on nothing else.
  bool pointwise = false;
  // Roughly the cycles of a vector of elements.
  int cost = 1;
  // Of a kernel: it stores results[0] element by element through Kernel::StoreResult, so that pointwise consumers of
  // the same shape can be folded into it.
  bool epilogue = false;
  ArgUse arg_use = ArgUse::kOnce;
  std::function<ArgUse(const Node&, int arg)> arg_use_of;  // where arguments differ

  bool HasKernel(const Node& node) const { return kernel && (!kernel_if || kernel_if(node)); }
  ArgUse UseOf(const Node& node, int arg) const { return arg_use_of ? arg_use_of(node, arg) : arg_use; }
};

using LoweringTable = std::map<std::string, Lowering, std::less<>>;
const LoweringTable& Lowerings();
const Lowering* FindLowering(absl::string_view op);  // nullptr: no such op

// The groups, one file each.
void RegisterElementwise(LoweringTable* table);
void RegisterCasts(LoweringTable* table);
void RegisterDataMovement(LoweringTable* table);
void RegisterDepthToSpace(LoweringTable* table);
void RegisterDepthwiseTokens(LoweringTable* table);
void RegisterIndexing(LoweringTable* table);
void RegisterReductions(LoweringTable* table);
void RegisterScans(LoweringTable* table);
void RegisterSoftmax(LoweringTable* table);
void RegisterNormalisation(LoweringTable* table);
void RegisterContractions(LoweringTable* table);
void RegisterAttention(LoweringTable* table);
void RegisterPooling(LoweringTable* table);
void RegisterResize(LoweringTable* table);
void RegisterGridSample(LoweringTable* table);
void RegisterRecurrent(LoweringTable* table);
void RegisterTopK(LoweringTable* table);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERING_H_
