// Graph: a partition function as tensors and the nodes between them, with tuples and aliases resolved. What fusion and
// emission work on; no MLIR. Built from a verified ir::Function, which must outlive it.
#ifndef INLAY_CORE_BACKENDS_NATIVE_GRAPH_H_
#define INLAY_CORE_BACKENDS_NATIVE_GRAPH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/native/extent.h"
#include "core/ir/ir_module.h"

namespace inlay::native {

struct Node;

struct Tensor {
  int id = 0;
  ir::TensorType type;
  ir::DType dtype = ir::DType::kF32;
  Shape dims;
  std::vector<int64_t> shape;  // the same as numbers: only where is_static()
  Node* producer = nullptr;
  const ir::Constant* literal = nullptr;
  int param = -1;            // index of the function's parameter
  std::vector<Node*> users;  // each once for each use
  bool is_result = false;

  // Decided by fusion:
  bool inlined = false;              // has no memory: computed where it is used
  const Tensor* alias_of = nullptr;  // a reshape of a tensor that has memory

  bool is_static() const { return IsStatic(dims); }
  int64_t NumElements() const;  // only where is_static()
  int64_t NumBytes() const;     // only where is_static()
  Extent Elements() const { return Product(dims); }
  Extent Bytes() const { return Elements() * Extent(ir::ByteSize(dtype)); }
  bool IsEmpty() const { return Elements() == Extent(0); }  // known to be
  int rank() const { return static_cast<int>(dims.size()); }
  // What holds its data.
  const Tensor* Base() const;
};

struct Node {
  int id = 0;
  std::string op;
  const ir::Attrs* attrs = nullptr;
  std::vector<Tensor*> inputs;
  std::vector<Tensor*> outputs;
  const ir::Binding* binding = nullptr;
  // Of a composite (composites.h): the nodes that it stands for, by their roles.
  std::map<std::string, const Node*> parts;

  const Tensor& in(int i) const { return *inputs[i]; }
  const Tensor& out(int i = 0) const { return *outputs[i]; }
};

struct Graph {
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<std::unique_ptr<Node>> nodes;   // in execution order
  std::vector<std::unique_ptr<Node>> folded;  // what composites stand for
  std::vector<Tensor*> params;
  std::vector<Tensor*> results;  // may repeat, may be a parameter or a literal
  std::vector<bool> param_is_constant;
  std::vector<std::string> symbols;  // ir::OpenSymbols of the function

  // UNIMPLEMENTED or INVALID_ARGUMENT, naming the node, for what no partition may hold (nested blocks, calls, weights).
  static absl::StatusOr<Graph> Build(const ir::Function& function);
};

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape);
int64_t Product(const std::vector<int64_t>& shape, int begin, int end);
int64_t Product(const std::vector<int64_t>& shape);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_GRAPH_H_
