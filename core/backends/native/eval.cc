#include "core/backends/native/eval.h"

#include <algorithm>

#include "core/backends/native/lowering.h"
#include "core/ir/literal.h"

namespace inlay::native {

using mlir::Value;

Index Eval::Add(const Index& x, const Index& y) {
  if (x.lanes.empty() && y.lanes.empty()) return Index(o.KernelBuilder::Add(x.base, y.base), x.stride + y.stride);
  Index result;
  for (int64_t i = 0; i < lanes_; ++i) result.lanes.push_back(o.KernelBuilder::Add(Lane(x, i), Lane(y, i)));
  return result;
}

Index Eval::Mul(const Index& x, const Extent& y) {
  if (x.lanes.empty() && (y.is_static() || x.stride == 0)) {
    return Index(o.KernelBuilder::Mul(x.base, y), x.stride * y.value());
  }
  return Map(x, [&](Value v) { return o.KernelBuilder::Mul(v, y); });
}

Index Eval::Map(const Index& x, const std::function<Value(Value)>& f) {
  if (x.uniform()) return f(x.base);
  Index result;
  for (int64_t i = 0; i < lanes_; ++i) result.lanes.push_back(f(Lane(x, i)));
  return result;
}

Index Eval::Clamp(const Index& x, int64_t low, int64_t high) {
  return Map(x, [&](Value v) { return o.Min(o.Max(v, o.Int(low)), o.Int(high)); });
}

Value Eval::Lane(const Index& x, int64_t lane) {
  if (!x.lanes.empty()) return x.lanes[lane];
  return x.stride == 0 ? x.base : o.KernelBuilder::Add(x.base, x.stride * lane);
}

Value Eval::AsVector(const Index& x) {
  if (lanes_ == 1) return x.lanes.empty() ? x.base : x.lanes[0];
  if (!x.lanes.empty()) return o.FromLanes(x.lanes);
  Value base = o.Broadcast(x.base, lanes_);
  return x.stride == 0 ? base : o.AddI(base, o.Iota(lanes_, x.stride));
}

Indices Eval::BroadcastTo(const Tensor& tensor, const Indices& indices) {
  const Shape& shape = k.Shape(tensor);
  Indices result;
  size_t skip = indices.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    result.push_back(shape[i] == 1 ? Constant(0) : indices[skip + i]);
  }
  return result;
}

Index Eval::IndexFrom(const Tensor& tensor, const Indices& indices, const Extent& extent) {
  bool uniform = true;
  for (const Index& i : indices) uniform &= i.uniform();
  Value element;
  if (uniform && lanes_ > 1) {
    Eval scalar = Child(1);
    element = scalar.At(tensor, indices);
  } else {
    element = At(tensor, indices);
  }
  auto clamp = [&](Value v) {
    v = o.ExtendI(v, o.b.getI64Type(), ir::IsSigned(tensor.dtype));
    Value wrapped = o.Select(o.Less(v, o.Int(0)), o.KernelBuilder::Add(v, extent), v);
    return o.Min(o.Max(wrapped, o.Int(0)), o.Int(Extent::Max(extent - 1, 0)));
  };
  if (uniform || lanes_ == 1) return clamp(element);
  Index result;
  for (int64_t i = 0; i < lanes_; ++i) result.lanes.push_back(clamp(o.Extract(element, i)));
  k.irregular += 1;
  return result;
}

Value Eval::PerLane(const Indices& indices, const std::function<Value(Eval&, const Indices&)>& f) {
  if (lanes_ == 1) return f(*this, indices);
  bool uniform = std::all_of(indices.begin(), indices.end(), [](const Index& i) { return i.uniform(); });
  if (uniform) {
    Eval scalar = Child(1);
    return o.Broadcast(f(scalar, indices), lanes_);
  }
  k.irregular += 1;
  std::vector<Value> results;
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    Eval scalar = Child(1);
    Indices at;
    for (const Index& i : indices) at.push_back(Lane(i, lane));
    results.push_back(f(scalar, at));
  }
  return o.FromLanes(results);
}

Eval::Key Eval::KeyOf(const Tensor& tensor, const Indices& indices) {
  Key key = {tensor.id, lanes_};
  auto add = [&](Value v) {
    int64_t constant;
    if (IsConstant(v, &constant)) {
      key.push_back(0);
      key.push_back(constant);
    } else {
      key.push_back(1);
      key.push_back(reinterpret_cast<int64_t>(v.getAsOpaquePointer()));
    }
  };
  for (const Index& i : indices) {
    key.push_back(static_cast<int64_t>(i.lanes.size()));
    key.push_back(i.stride);
    if (i.lanes.empty()) {
      add(i.base);
    } else {
      for (Value v : i.lanes) add(v);
    }
  }
  return key;
}

Value Eval::Find(const Key& key, const Tensor& tensor) {
  for (Eval* e = this; e != nullptr; e = e->parent_) {
    if (auto found = e->provided_.find(&tensor); found != e->provided_.end()) return found->second;
    if (auto found = e->values_.find(key); found != e->values_.end()) return found->second;
  }
  return nullptr;
}

bool Eval::IsProvided(const Tensor& tensor) const {
  for (const Eval* e = this; e != nullptr; e = e->parent_) {
    if (e->provided_.count(&tensor) > 0) return true;
  }
  return false;
}

Value Eval::At(const Tensor& tensor, const Indices& indices) {
  Key key = KeyOf(tensor, indices);
  if (Value known = Find(key, tensor)) return known;
  Value value;
  if (tensor.inlined) {
    const Node& node = *tensor.producer;
    int output = 0;
    while (node.outputs[output] != &tensor) ++output;
    value = FindLowering(node.op)->element(*this, node, output, indices);
  } else {
    value = Load(tensor, indices);
  }
  values_[key] = value;
  return value;
}

void Eval::Prefetch(const Node& node, const Indices& indices) {
  prefetches_ = true;
  FindLowering(node.op)->element(*this, node, 0, indices);
  prefetches_ = false;
}

Index Eval::Offset(const Shape& shape, const Indices& indices) {
  const Shape strides = RowMajorStrides(shape);
  Index offset = Constant(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (shape[i] != 1) offset = Add(offset, Mul(indices[i], strides[i]));
  }
  return offset;
}

Value Eval::Load(const Tensor& tensor, const Indices& indices) {
  if (tensor.literal != nullptr && tensor.Elements() == Extent(1)) {
    mlir::Type type = o.ComputeType(tensor.dtype, lanes_);
    const std::string& data = tensor.literal->data;
    if (ir::IsFloat(tensor.dtype)) return o.ConstF(type, ir::ElementAsDouble(tensor.dtype, data, 0));
    return o.ConstI(type, ir::ElementAsInt(tensor.dtype, data, 0));
  }
  const Index offset = Offset(k.Shape(tensor), indices);
  Value base = k.Pointer(tensor);
  if (prefetches_) {
    // By the last lane: where rows begin within a line, the vector before has asked for the first one.
    const Value last = o.KernelBuilder::Add(offset.base, lanes_ - 1);
    if (offset.lanes.empty() && offset.stride == 1) o.Prefetch(o.At(base, last, o.StoredType(tensor.dtype)));
    mlir::Type type = o.ComputeType(tensor.dtype, lanes_);
    return ir::IsFloat(tensor.dtype) ? o.ConstF(type, 0) : o.ConstI(type, 0);
  }
  if (offset.uniform()) return o.Broadcast(o.LoadElements(tensor.dtype, base, offset.base, 1), lanes_);
  if (offset.lanes.empty() && offset.stride == 1) return o.LoadElements(tensor.dtype, base, offset.base, lanes_);
  if (offset.lanes.empty() && offset.stride == -1) {
    Value first = o.KernelBuilder::Add(offset.base, 1 - lanes_);
    return o.ReverseLanes(o.LoadElements(tensor.dtype, base, first, lanes_));
  }
  if (offset.lanes.empty() && offset.stride == 2 && tensor.dtype != ir::DType::kBool) {
    // Two vectors that end exactly at the last element wanted, and every other lane of each.
    Value low = o.LoadElements(tensor.dtype, base, offset.base, lanes_);
    Value high = o.LoadElements(tensor.dtype, base, o.KernelBuilder::Add(offset.base, lanes_ - 1), lanes_);
    std::vector<int64_t> mask;
    for (int64_t i = 0; i < lanes_; ++i) mask.push_back(2 * i < lanes_ ? 2 * i : 2 * i + 1);
    return o.Shuffle(low, high, mask);
  }
  k.irregular += 1;
  std::vector<Value> values;
  for (int64_t i = 0; i < lanes_; ++i) values.push_back(o.LoadElements(tensor.dtype, base, Lane(offset, i), 1));
  return o.FromLanes(values);
}

const Shape& Kernel::Shape(const Tensor& tensor) const {
  auto found = shapes.find(&tensor);
  return found == shapes.end() ? tensor.dims : found->second;
}

void Kernel::StoreElement(const Tensor& tensor, const Indices& indices, Value value) {
  int64_t lanes = Ops::Lanes(value);
  const auto elsewhere = stored_at_.find(&tensor);
  const bool placed = elsewhere != stored_at_.end();
  native::Shape strides = placed ? ShapeOf(elsewhere->second.second) : RowMajorStrides(Shape(tensor));
  Eval e(*this, lanes);
  Index offset = e.Constant(0);
  for (size_t i = 0; i < indices.size(); ++i) offset = e.Add(offset, e.Mul(indices[i], strides[i]));
  Value base = placed ? elsewhere->second.first : Pointer(tensor);
  if (lanes == 1) {
    o.StoreElements(tensor.dtype, value, base, e.Lane(offset, 0));
  } else if (offset.lanes.empty() && offset.stride == 1) {
    o.StoreElements(tensor.dtype, value, base, offset.base);
  } else {
    irregular += 1;
    for (int64_t i = 0; i < lanes; ++i) {
      o.StoreElements(tensor.dtype, o.Extract(value, i), base, e.Lane(offset, i));
    }
  }
}

void Kernel::StoreResult(const Tensor& tensor, const Indices& indices, Value value) {
  if (&tensor != tail_anchor) return StoreElement(tensor, indices, value);
  Eval e(*this, Ops::Lanes(value));
  e.Provide(tensor, value);
  const Node& node = *tail_root->producer;
  StoreElement(*tail_root, indices, FindLowering(node.op)->element(e, node, 0, indices));
}

static int64_t BytesRead(const Node& node, const Tensor& anchor, int64_t elements) {
  int64_t bytes = 0;
  for (const Tensor* input : node.inputs) {
    if (input == &anchor) continue;
    if (input->inlined) {
      bytes += BytesRead(*input->producer, anchor, elements);
    } else if (input->Elements() == Extent(elements)) {
      bytes += elements * ir::ByteSize(input->dtype);
    }
  }
  return bytes;
}

int64_t Kernel::ResultBytes(const Tensor& tensor) const {
  if (!tensor.is_static()) return 0;
  const int64_t elements = tensor.NumElements();
  if (&tensor != tail_anchor) return elements * ir::ByteSize(tensor.dtype);
  return elements * ir::ByteSize(tail_root->dtype) + BytesRead(*tail_root->producer, tensor, elements);
}

void Kernel::PrefetchResult(const Tensor& tensor, const Indices& indices, int64_t lanes) {
  Eval e(*this, lanes);
  const Tensor& stored = &tensor == tail_anchor ? *tail_root : tensor;
  const int irregular_before = irregular;
  if (&stored != &tensor) {
    const mlir::Type type = o.ComputeType(tensor.dtype, lanes);
    e.Provide(tensor, ir::IsFloat(tensor.dtype) ? o.ConstF(type, 0) : o.ConstI(type, 0));
    e.Prefetch(*stored.producer, indices);
  }
  irregular = irregular_before;
  const Index offset = e.Offset(Shape(stored), indices);
  const Value last = o.KernelBuilder::Add(offset.base, lanes - 1);
  o.Prefetch(o.At(Pointer(stored), last, o.StoredType(stored.dtype)), /*write=*/true);
}

}  // namespace inlay::native
