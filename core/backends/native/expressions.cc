// FunctionEmitter's view of expressions: what an element is computed from, how its dimensions merge.
#include <algorithm>
#include <set>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {

constexpr int kTableCost = 2;

std::vector<const Tensor*> FunctionEmitter::Expression(const Tensor& root, const Tensor* stop, bool* pointwise,
                                                       int* cost) const {
  std::vector<const Tensor*> tensors;
  std::set<const Tensor*> seen;
  bool all = true;
  int sum = 0;
  std::function<void(const Tensor&, bool)> visit = [&](const Tensor& t, bool expand) {
    if (!seen.insert(&t).second) return;
    tensors.push_back(&t);
    if (&t == stop || !expand) return;
    if (const ByteTable* table = FindByteTable(t)) {
      sum += kTableCost;
      return visit(*table->source, table->source->inlined);
    }
    const Lowering* lowering = FindLowering(t.producer->op);
    all &= lowering->pointwise;
    sum += lowering->cost;
    for (const Tensor* in : t.producer->inputs) visit(*in, in->inlined);
  };
  visit(root, root.inlined || (root.producer != nullptr && current_ != nullptr && current_->root == &root));
  if (pointwise != nullptr) *pointwise = all;
  if (cost != nullptr) *cost = sum;
  return tensors;
}

const Tensor& FunctionEmitter::StoredTensor(const Node& node) const {
  return current_->has_tail ? *current_->root : *node.outputs[0];
}

namespace {

// The shape padded in front to the rank of `root`.
Shape Padded(const Tensor& t, int rank) {
  Shape shape(rank - t.rank(), Extent(1));
  shape.insert(shape.end(), t.dims.begin(), t.dims.end());
  return shape;
}

// Whether each tensor is either full or 1 in all of root's dimensions [begin, end).
bool GroupMerges(const std::vector<const Tensor*>& tensors, const Tensor& root, int begin, int end) {
  for (const Tensor* t : tensors) {
    if (t->rank() > root.rank()) return false;
    Shape shape = Padded(*t, root.rank());
    bool full = true, one = true;
    for (int i = begin; i < end; ++i) {
      full &= shape[i] == root.dims[i];
      one &= shape[i] == Extent(1);
    }
    if (!full && !one) return false;
  }
  return true;
}

}  // namespace

std::vector<int> FunctionEmitter::MergeableGroups(const Tensor& root, const std::vector<bool>& boundary_before) {
  bool pointwise = true;
  const Tensor* stop = current_ != nullptr && current_->has_tail ? current_->node->outputs[0] : nullptr;
  std::vector<const Tensor*> tensors = Expression(root, stop, &pointwise);
  std::vector<int> groups;
  for (int begin = 0; begin < root.rank();) {
    int end = begin + 1;
    while (pointwise && end < root.rank() && (boundary_before.empty() || !boundary_before[end]) &&
           GroupMerges(tensors, root, begin, end + 1)) {
      ++end;
    }
    groups.push_back(end - begin);
    begin = end;
  }
  return groups;
}

bool FunctionEmitter::MergeDimsOf(const Tensor& root, const std::vector<int>& groups, ShapeMap* shapes) {
  bool pointwise = true;
  const Tensor* stop = current_ != nullptr && current_->has_tail ? current_->node->outputs[0] : nullptr;
  std::vector<const Tensor*> tensors = Expression(root, stop, &pointwise);
  bool trivial = std::all_of(groups.begin(), groups.end(), [](int g) { return g == 1; });
  auto merge = [&](const Tensor& t) {
    if (trivial) return t.dims;
    Shape shape = Padded(t, root.rank()), merged;
    int begin = 0;
    for (int size : groups) {
      merged.push_back(Product(shape, begin, begin + size));
      begin += size;
    }
    return merged;
  };
  // One tensor may be read by what comes before a reduction and by what comes after it: it has one shape in a kernel.
  for (const Tensor* t : tensors) {
    if (auto found = shapes->find(t); found != shapes->end() && found->second != merge(*t)) return false;
  }
  if (!trivial && !pointwise) return false;
  int begin = 0;
  for (int size : groups) {
    if (!trivial && !GroupMerges(tensors, root, begin, begin + size)) return false;
    begin += size;
  }
  for (const Tensor* t : tensors) (*shapes)[t] = merge(*t);
  return true;
}

bool FunctionEmitter::MergeDims(const Node& node, const std::vector<int>& groups, ShapeMap* shapes) {
  const Tensor& stored = StoredTensor(node);
  if (current_->has_tail) return MergeDimsOf(stored, groups, shapes);
  Shape merged;
  int begin = 0;
  for (int size : groups) {
    merged.push_back(Product(stored.dims, begin, begin + size));
    begin += size;
  }
  (*shapes)[&stored] = merged;
  return true;
}

int FunctionEmitter::FollowingDims(const Tensor& root, int d) {
  const Node* node = root.producer;
  if (node == nullptr || node->op != "transpose" || node->in(0).inlined) return 1;
  if (root.dims[d] == Extent(1)) return 1;  // whose index is left out of addresses
  const std::vector<int64_t> perm = node->attrs->Ints("perm");
  int count = 1;
  while (count <= d && perm[d - count] + 1 == perm[d - count + 1] && root.dims[d - count].is_static()) ++count;
  return root.dims[d].is_static() ? count : 1;
}

bool FunctionEmitter::FindOperands(const Tensor& root, Operands* operands, const Tensor* whole, const Tensor* piece) {
  if (!FindLowering(root.producer->op)->pointwise) return false;
  for (const Tensor* t : root.producer->inputs) {
    if (t == whole) {
      operands->transposed.push_back(piece);
    } else if (!t->inlined) {
      operands->others.push_back(t);
    } else if (t->dims != root.dims) {
      return false;
    } else if (t->producer->op == "transpose") {
      operands->transposed.push_back(t);
    } else if (!FindOperands(*t, operands, whole, piece)) {
      return false;
    }
  }
  return true;
}

const Tensor* FunctionEmitter::Concatenation(const Tensor& root) {
  const Tensor* whole = nullptr;
  bool all = true;
  std::function<void(const Tensor&, bool)> visit = [&](const Tensor& t, bool aligned) {
    aligned &= FindLowering(t.producer->op)->pointwise;
    for (const Tensor* in : t.producer->inputs) {
      if (!in->inlined) continue;
      const Node& node = *in->producer;
      if (node.op != "concat") {
        visit(*in, aligned && in->dims == root.dims);
        continue;
      }
      all &= aligned && in->dims == root.dims && node.attrs->Int("axis") == in->rank() - 1 &&
             (whole == nullptr || whole == in);
      whole = in;
      for (const Tensor* piece : node.inputs) {
        if (piece->inlined) visit(*piece, false);
      }
    }
  };
  visit(root, true);
  return all ? whole : nullptr;
}

int FunctionEmitter::FollowingDims(const Tensor& root, const Operands& operands, int d) {
  int count = root.dims[d] == Extent(1) ? 1 : d + 1;
  for (const Tensor* t : operands.transposed) count = std::min(count, FollowingDims(*t, d));
  while (count > 1 && !GroupMerges(operands.others, root, d + 1 - count, d + 1)) --count;
  return count;
}

int64_t FunctionEmitter::LanesForBytes(int64_t widest, const Extent& extent) const {
  int64_t lanes = std::max<int64_t>(cpu_.core.vector_bytes / widest, 1);
  while (extent.is_static() && lanes > extent.value() && lanes > 1) lanes /= 2;
  return lanes;
}

int64_t FunctionEmitter::LanesFor(const std::vector<const Tensor*>& tensors, const Extent& extent) const {
  int64_t widest = 1;
  for (const Tensor* t : tensors) {
    widest =
        std::max(widest, ir::IsFloat(t->dtype) ? std::max<int64_t>(4, ir::ByteSize(t->dtype)) : ir::ByteSize(t->dtype));
  }
  return LanesForBytes(widest, extent);
}

}  // namespace inlay::native
