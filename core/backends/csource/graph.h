// Graph: a partition as tensors and the nodes between them, tuples resolved; what planning and emission work on. Built
// from a verified ir::Function, which must outlive it.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_GRAPH_H_
#define INLAY_CORE_BACKENDS_CSOURCE_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::csource {

struct Node;
struct UserKernel;
using Shape = std::vector<int64_t>;

struct Tensor {
  int id = 0;
  ir::DType dtype = ir::DType::kF32;
  Shape shape;
  Node* producer = nullptr;  // nullptr: a parameter or a literal
  const ir::Constant* literal = nullptr;
  int param = -1;
  std::vector<Node*> users;  // once for each use
  bool is_result = false;

  // Decided by PlanKernels:
  bool inlined = false;              // has no memory: computed where it is used
  const Tensor* alias_of = nullptr;  // a reshape: another name of that one's memory

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t size() const;
  int64_t bytes() const { return size() * ir::ByteSize(dtype); }
  const Tensor* Base() const { return alias_of == nullptr ? this : alias_of->Base(); }
};

struct Node {
  int id = 0;
  std::string op;
  const ir::Binding* binding = nullptr;
  std::vector<Tensor*> inputs, outputs;
  const UserKernel* user_kernel = nullptr;  // of the configuration: it implements this node

  const Tensor& in(int i) const { return *inputs[i]; }
  const Tensor& out(int i = 0) const { return *outputs[i]; }
  const ir::Attrs& attrs() const { return binding->attrs; }
};

struct Graph {
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<std::unique_ptr<Node>> nodes;  // in execution order
  std::vector<Tensor*> params;
  std::vector<Tensor*> results;  // may repeat, may be a parameter or a literal

  // UNIMPLEMENTED or INVALID_ARGUMENT, naming the place, for what no partition may hold.
  static absl::StatusOr<Graph> Build(const ir::Function& function);
};

Shape StridesOf(const Shape& shape);
int64_t Product(const Shape& shape, int begin, int end);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_GRAPH_H_
