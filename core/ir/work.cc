#include "core/ir/work.h"

#include <algorithm>

#include "core/ir/dim_expr.h"
#include "core/ir/op_registry.h"

namespace inlay::ir {
namespace {

Dim OrNothing(const absl::StatusOr<Dim>& dim) { return dim.ok() ? *dim : Dim(0); }
Dim Sum(const Dim& a, const Dim& b) { return OrNothing(AddDims(a, b)); }
Dim Product(const Dim& a, const Dim& b) { return OrNothing(MulDims(a, b)); }

// Of a Dim that is a count.
int64_t OrZero(const Dim& dim) { return dim.is_static() ? dim.value() : 0; }

Dim Extent(const Operand& operand, int axis) {
  const TensorType& type = operand.tensor_type();
  if (axis < 0) axis += type.rank();
  return axis < 0 || axis >= type.rank() ? Dim(1) : type.dims[axis];
}

Dim Product(const TensorType& type, int first_axis) {
  Dim product = 1;
  for (int axis = first_axis; axis < type.rank(); ++axis) product = Product(product, type.dims[axis]);
  return product;
}

Dim Elements(const Type& type) {
  if (type.is_tensor()) return Product(type.tensor(), 0);
  Dim sum = 0;
  for (const Type& field : type.tuple().fields) sum = Sum(sum, Elements(field));
  return sum;
}

Dim Bytes(const Type& type) {
  if (type.is_tensor()) return Product(Product(type.tensor(), 0), ByteSize(type.tensor().dtype));
  Dim sum = 0;
  for (const Type& field : type.tuple().fields) sum = Sum(sum, Bytes(field));
  return sum;
}

// Takes some elements of its first argument, so that not all of it need be read.
bool IsLookup(const std::string& op) {
  return op == "gather" || op == "gather_elements" || op == "gather_nd" || op == "slice" || op == "split";
}

// How many pixels one place of a grid reads.
int64_t PixelsOfPlace(const Binding& call) {
  return call.attrs.StringOr("mode", "linear") == "nearest" ? 1 : int64_t{1} << (call.args[0].tensor_type().rank() - 2);
}

// What a call reads of an argument: less than all where data says which elements.
Dim ReadBytes(const Binding& call, size_t arg) {
  const Dim all = Bytes(call.args[arg].type());
  if (arg == 0 && IsLookup(call.callee)) return Bytes(call.var->type);
  if (arg == 0 && call.callee == "grid_sample") {  // no more pixels than all, nor than places ask for
    const Dim read = Product(Bytes(call.var->type), PixelsOfPlace(call));
    if (read.is_static() && all.is_static()) return std::min(read.value(), all.value());
  }
  if (arg == 1 && call.callee == "gather_matmul") {  // no more matrices than there are rows
    const Dim rows = Extent(call.args[0], 0), matrices = Extent(call.args[1], 0);
    if (rows.is_static() && rows.value() < matrices.value()) return all.value() / matrices.value() * rows.value();
  }
  return all;
}

// What the partition reads of a parameter.
Dim ReadBytes(const Function& partition, const Var* param) {
  const Dim all = Bytes(param->type);
  Dim read = 0;
  for (const Binding& binding : partition.body.bindings) {
    for (size_t i = 0; i < binding.args.size(); ++i) {
      if (binding.args[i].var.get() != param) continue;
      if (binding.kind != Binding::Kind::kCall) return all;
      const Dim here = ReadBytes(binding, i);
      if (here == all) return all;
      read = Sum(read, here);
    }
  }
  for (const Operand& result : partition.body.results) {
    if (result.var.get() == param) return all;
  }
  return all.is_static() && read.is_static() ? Dim(std::min(all.value(), read.value())) : read;
}

Dim Flops(const Binding& binding) {
  if (binding.kind != Binding::Kind::kCall || binding.args.empty()) return 0;
  const std::string& op = binding.callee;
  const Dim out = Elements(binding.var->type);
  if (op == "conv" || op == "conv_integer") {
    return Product(Product(2, out), Product(binding.args[1].tensor_type(), 1));
  }
  if (op == "conv_transpose") {
    return Product(Product(2, Elements(binding.args[0].type())), Product(binding.args[1].tensor_type(), 1));
  }
  if (op == "grid_sample") return Product(2 * PixelsOfPlace(binding), out);
  if (op == "lstm" || op == "gru" || op == "rnn") {
    const Dim steps = Product(Extent(binding.args[0], 0), Extent(binding.args[0], 1));
    return Product(Product(2, steps), Sum(Elements(binding.args[1].type()), Elements(binding.args[2].type())));
  }
  if (op == "max_pool" || op == "avg_pool") {
    Dim taps = 1;
    for (int64_t extent : binding.attrs.IntsOr("kernel", {})) taps = Product(taps, extent);
    return Product(out, taps);
  }
  switch (PatternOf(binding)) {
    case OpPattern::kContraction: {
      const int rank = binding.args[0].tensor_type().rank();
      const bool transposed = rank > 1 && binding.attrs.BoolOr("transpose_a", false);
      return Product(Product(2, out), Extent(binding.args[0], transposed ? -2 : -1));
    }
    case OpPattern::kElementwise:
    case OpPattern::kBroadcast:
      return out;
    case OpPattern::kReduction:
      return Elements(binding.args[0].type());
    default:
      return 0;
  }
}

}  // namespace

double CountElements(const Type& type) {
  if (type.is_tensor()) return static_cast<double>(OrZero(Elements(type)));
  double sum = 0;
  for (const Type& field : type.tuple().fields) sum += CountElements(field);
  return sum;
}

int64_t CountBytes(const Type& type) {
  if (type.is_tensor()) return OrZero(Bytes(type));
  int64_t sum = 0;
  for (const Type& field : type.tuple().fields) sum += CountBytes(field);
  return sum;
}

double CountFlops(const Binding& binding) { return static_cast<double>(OrZero(Flops(binding))); }

Work CountWork(const Function& partition, const std::vector<int64_t>& constant_params) {
  Work work;
  for (const Binding& binding : partition.body.bindings) work.flops = Sum(work.flops, Flops(binding));
  for (size_t i = 0; i < partition.params.size(); ++i) {
    const Dim bytes = ReadBytes(partition, partition.params[i].get());
    work.bytes = Sum(work.bytes, bytes);
    if (std::count(constant_params.begin(), constant_params.end(), static_cast<int64_t>(i)) > 0) {
      work.constant_bytes = Sum(work.constant_bytes, bytes);
    }
  }
  for (const Operand& result : partition.body.results) work.bytes = Sum(work.bytes, Bytes(result.type()));
  return work;
}

}  // namespace inlay::ir
