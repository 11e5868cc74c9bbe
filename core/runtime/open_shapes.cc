#include "core/runtime/open_shapes.h"

#include <algorithm>
#include <utility>

#include "core/base/extents.h"

namespace inlay::runtime {
namespace {

using Kind = ShapeRegister::Kind;

constexpr int64_t kMaxArgument = int64_t{1} << 48;  // what CeilPoolExtent takes

Status Bad(const std::string& what) { return InvalidArgument("open shapes: " + what); }

// False: overflow.
bool Evaluate(const ExtentSum& sum, const std::vector<int64_t>& registers, int64_t* value) {
  *value = 0;
  for (const ExtentTerm& term : sum) {
    int64_t product = term.coefficient;
    for (int32_t r : term.registers) {
      if (__builtin_mul_overflow(product, registers[r], &product)) return false;
    }
    if (__builtin_add_overflow(*value, product, value)) return false;
  }
  return true;
}

// Whether it uses only the first `count` registers.
bool CheckSum(const ExtentSum& sum, size_t count) {
  for (const ExtentTerm& term : sum) {
    for (int32_t r : term.registers) {
      if (r < 0 || static_cast<size_t>(r) >= count) return false;
    }
  }
  return true;
}

bool InRange(int64_t value, int64_t least) { return value >= least && value <= kMaxArgument; }

bool CheckArgs(const ShapeRegister& r, const std::vector<NamedTensor>& inputs) {
  const std::vector<int64_t>& a = r.args;
  switch (r.kind) {
    case Kind::kInput:
      return a.size() == 3 && a[0] >= 0 && a[0] < static_cast<int64_t>(inputs.size()) && a[1] >= 0 &&
             a[1] < static_cast<int64_t>(inputs[a[0]].type.shape.size()) && inputs[a[0]].type.shape[a[1]] < 0 &&
             InRange(a[2], 1);
    case Kind::kFloorDiv:
      return a.size() == 1 && a[0] > 0;
    case Kind::kSlice:
      return a.size() == 3 && a[2] != 0;
    case Kind::kCeilPool:
      return a.size() == 4 && InRange(a[0], 1) && InRange(a[1], 1) && InRange(a[2], 0) && InRange(a[3], 0);
  }
  return false;
}

// -1: there is none.
int64_t Derive(const ShapeRegister& r, int64_t of) {
  if (r.kind == Kind::kFloorDiv) return FloorDivExtent(of, r.args[0]);
  if (of < 0 || of > kMaxArgument) return -1;
  if (r.kind == Kind::kCeilPool) return CeilPoolExtent(of, r.args[0], r.args[1], r.args[2], r.args[3]);
  int64_t begin = r.args[0], end = r.args[1];
  return SliceExtent(of, &begin, &end, r.args[2]);
}

bool IsOpen(const ExtentSum& sum) {
  return std::any_of(sum.begin(), sum.end(), [](const ExtentTerm& term) { return !term.registers.empty(); });
}

// Of two from one compiler, which orders terms and factors by their names. What can't be negated has no negation.
bool AreNegations(const ExtentSum& a, const ExtentSum& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ExtentTerm& x, const ExtentTerm& y) {
    return x.registers == y.registers && x.coefficient != INT64_MIN && -x.coefficient == y.coefficient;
  });
}

// left - right or right - left, both without minus signs; the same of a sum and its negation: the first open term is on
// the left. The client shows them so, too (client/python/inlay/ir/dims.py, sides).
struct Sides {
  ExtentSum left, right;
};
Sides SidesOf(const ExtentSum& sum) {  // all of which can be negated
  const auto first =
      std::find_if(sum.begin(), sum.end(), [](const ExtentTerm& term) { return !term.registers.empty(); });
  const bool turned = first != sum.end() && first->coefficient < 0;
  Sides sides;
  for (ExtentTerm term : sum) {
    ExtentSum& side = (term.coefficient < 0) == turned ? sides.left : sides.right;
    if (term.coefficient < 0) term.coefficient = -term.coefficient;
    if (term.coefficient != 0) side.push_back(std::move(term));
  }
  return sides;
}

std::string Input(const NamedTensor& tensor) { return "input '" + tensor.name + "'"; }

std::string Dimension(const NamedTensor& tensor, size_t axis, int64_t extent) {
  return Input(tensor) + ": dimension " + std::to_string(axis) + " is " + std::to_string(extent);
}

}  // namespace

Status OpenShapes::Check(const std::vector<NamedTensor>& inputs) const {
  for (size_t i = 0; i < registers.size(); ++i) {
    const ShapeRegister& r = registers[i];
    if (r.kind > Kind::kCeilPool || !CheckArgs(r, inputs)) return Bad("register '" + r.name + "' has no such source");
    if (!CheckSum(r.sum, i)) return Bad("register '" + r.name + "' is made from one that comes later");
  }
  for (const OpenExtent& extent : extents) {
    if (!CheckSum(extent.sum, registers.size())) return Bad("extent '" + extent.name + "' uses a missing register");
  }
  return Status();
}

bool OpenShapes::Knows(const TensorType& type) const {
  for (int64_t extent : type.shape) {
    if (extent < 0 && (extent < -static_cast<int64_t>(extents.size()))) return false;
  }
  return true;
}

// Of a sum without minus signs, as core/ir/dim_expr.h prints it: "2*batch+seq+1".
std::string OpenShapes::Text(const ExtentSum& sum) const {
  std::string open, number;
  for (const ExtentTerm& term : sum) {
    std::string& text = term.registers.empty() ? number : open;
    std::string factors = term.registers.empty() || term.coefficient != 1 ? std::to_string(term.coefficient) : "";
    for (int32_t r : term.registers) factors += (factors.empty() ? "" : "*") + registers[r].name;
    text += (text.empty() ? "" : "+") + factors;
  }
  if (open.empty()) return number.empty() ? "0" : number;
  return open + (number.empty() ? "" : "+") + number;
}

// "h = 3 from input 'x', w = 5 from input 'x'": all that it is made from.
std::string OpenShapes::Sources(const std::vector<NamedTensor>& inputs, const ExtentSum& sum,
                                const ShapeValues& values) const {
  std::vector<bool> used(registers.size(), false);
  auto use = [&](const ExtentSum& of) {
    for (const ExtentTerm& term : of) {
      for (int32_t r : term.registers) used[r] = true;
    }
  };
  use(sum);
  for (size_t i = registers.size(); i-- > 0;) {
    if (used[i] && registers[i].kind != Kind::kInput) use(registers[i].sum);
  }
  std::string sources;
  for (size_t i = 0; i < registers.size(); ++i) {
    const ShapeRegister& r = registers[i];
    if (!used[i] || r.kind != Kind::kInput) continue;
    sources += (sources.empty() ? "" : ", ") + r.name + " = " + std::to_string(values.registers[i]) + " from " +
               Input(inputs[r.args[0]]);
  }
  return sources;
}

// "10 (batch = 5 from input 'ids')"; "5 from input 'ids'" for a plain name.
std::string OpenShapes::Explain(const std::vector<NamedTensor>& inputs, const ExtentSum& sum,
                                const ShapeValues& values) const {
  int64_t value = 0;
  Evaluate(sum, values.registers, &value);
  if (sum.size() == 1 && sum[0].coefficient == 1 && sum[0].registers.size() == 1) {
    const ShapeRegister& r = registers[sum[0].registers[0]];
    if (r.kind == Kind::kInput) return std::to_string(value) + " from " + Input(inputs[r.args[0]]);
  }
  const std::string sources = Sources(inputs, sum, values);
  return std::to_string(value) + (sources.empty() ? "" : " (" + sources + ")");
}

// Of one that is to be 0. "'seq' to be 8; it is 9 from input 'ids'": seq-8; "'h' and 'w' to be equal; they are 3 and 5
// (h = 3 from input 'x', w = 5 from input 'x')": h-w or w-h. "": a side overflows.
std::string OpenShapes::NeedEqual(const std::vector<NamedTensor>& inputs, const ExtentSum& sum,
                                  const ShapeValues& values) const {
  const Sides sides = SidesOf(sum);
  int64_t left, right;
  if (!Evaluate(sides.left, values.registers, &left) || !Evaluate(sides.right, values.registers, &right)) return "";
  if (!IsOpen(sides.right)) {
    return "'" + Text(sides.left) + "' to be " + Text(sides.right) + "; it is " + Explain(inputs, sides.left, values);
  }
  return "'" + Text(sides.left) + "' and '" + Text(sides.right) + "' to be equal; they are " + std::to_string(left) +
         " and " + std::to_string(right) + " (" + Sources(inputs, sum, values) + ")";
}

// Of an extent that is below 0. "'seq' to be 8 or more; it is 3 from input 'ids'" where one name alone is in it, once:
// seq-8; else "'h-w' to be 0 or more; it is -2 (h = 3 from input 'x', w = 5 from input 'x')". Where its negation is an
// extent as well, both must be 0.
std::string OpenShapes::Need(const std::vector<NamedTensor>& inputs, const OpenExtent& extent,
                             const ShapeValues& values) const {
  for (const OpenExtent& other : extents) {
    if (!AreNegations(extent.sum, other.sum)) continue;
    if (std::string equal = NeedEqual(inputs, extent.sum, values); !equal.empty()) return equal;
  }
  int64_t number = 0;
  const ExtentTerm* open = nullptr;
  bool bounds = true;
  for (const ExtentTerm& term : extent.sum) {
    if (term.registers.empty()) {
      bounds = bounds && !__builtin_add_overflow(number, term.coefficient, &number);
    } else {
      bounds = bounds && open == nullptr && term.registers.size() == 1;
      open = &term;
    }
  }
  // Those that can't be negated are left out.
  bounds = bounds && open != nullptr && open->coefficient != 0 && std::min(open->coefficient, number) != INT64_MIN;
  std::string name = extent.name, bound = "0 or more";
  ExtentSum shown = extent.sum;
  if (bounds) {
    const int64_t c = open->coefficient;
    name = registers[open->registers[0]].name;
    bound = c > 0 ? std::to_string(-FloorDivExtent(number, c)) + " or more"
                  : std::to_string(FloorDivExtent(number, -c)) + " or less";
    shown = {{1, open->registers}};
  }
  return "'" + name + "' to be " + bound + "; it is " + Explain(inputs, shown, values);
}

Status OpenShapes::MatchInput(const std::vector<NamedTensor>& inputs, size_t i, const TensorType& given,
                              const ShapeValues& values) const {
  const TensorType& want = inputs[i].type;
  for (size_t axis = 0; axis < want.shape.size(); ++axis) {
    if (want.shape[axis] >= 0) continue;  // seen already
    const OpenExtent& extent = extents[-1 - want.shape[axis]];
    int64_t value;
    if (!Evaluate(extent.sum, values.registers, &value)) return InvalidArgument("'" + extent.name + "' overflows");
    if (value == given.shape[axis]) continue;
    return InvalidArgument(Dimension(inputs[i], axis, given.shape[axis]) + ", but '" + extent.name + "' is " +
                           Explain(inputs, extent.sum, values));
  }
  return Status();
}

Status OpenShapes::Match(const std::vector<NamedTensor>& inputs, const std::vector<TensorType>& given,
                         ShapeValues* values) const {
  if (given.size() != inputs.size()) {
    return InvalidArgument("expected " + std::to_string(inputs.size()) + " inputs, got " +
                           std::to_string(given.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& want = inputs[i].type;
    bool fits = want.dtype == given[i].dtype && want.shape.size() == given[i].shape.size();
    for (size_t axis = 0; fits && axis < want.shape.size(); ++axis) {
      fits = given[i].shape[axis] >= 0 && (want.shape[axis] < 0 || want.shape[axis] == given[i].shape[axis]);
    }
    if (!fits) {
      return InvalidArgument(Input(inputs[i]) + ": expected " + ToString(want) + ", got " + given[i].ToString());
    }
  }
  values->registers.resize(registers.size());
  values->extents.resize(extents.size());
  for (size_t i = 0; i < registers.size(); ++i) {
    const ShapeRegister& r = registers[i];
    int64_t sum, value;
    if (!Evaluate(r.sum, values->registers, &sum)) return InvalidArgument("'" + r.name + "' overflows");
    if (r.kind != Kind::kInput) {
      value = Derive(r, sum);
      if (value < 0 && r.kind != Kind::kFloorDiv) {
        return InvalidArgument("'" + r.name + "' is no extent where its argument is " +
                               Explain(inputs, r.sum, *values));
      }
    } else {
      const int64_t extent = given[r.args[0]].shape[r.args[1]];
      if (__builtin_sub_overflow(extent, sum, &value) || value < 0 || value % r.args[2] != 0) {
        const OpenExtent& want = extents[-1 - inputs[r.args[0]].type.shape[r.args[1]]];
        return InvalidArgument(Dimension(inputs[r.args[0]], r.args[1], extent) + "; it must be " + want.name);
      }
      value /= r.args[2];
    }
    values->registers[i] = value;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (Status s = MatchInput(inputs, i, given[i], *values); !s.ok()) return s;
  }
  for (size_t k = 0; k < extents.size(); ++k) {
    if (!Evaluate(extents[k].sum, values->registers, &values->extents[k])) {
      return InvalidArgument("the extent '" + extents[k].name + "' overflows");
    }
    if (values->extents[k] < 0) {
      return InvalidArgument("the model needs " + Need(inputs, extents[k], *values));
    }
  }
  return Status();
}

TensorType OpenShapes::Resolve(const TensorType& type, const ShapeValues& values) const {
  TensorType resolved = type;
  for (int64_t& extent : resolved.shape) {
    if (extent < 0) extent = values.extents[-1 - extent];
  }
  return resolved;
}

std::string OpenShapes::ToString(const TensorType& type) const {
  std::string text = std::string(Name(type.dtype)) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i) {
    const int64_t extent = type.shape[i];
    text += (i == 0 ? "" : ", ") + (extent < 0 ? extents[-1 - extent].name : std::to_string(extent));
  }
  return text + "]";
}

Status CallTypes::Bind(const OpenShapes& shapes, const std::vector<NamedTensor>& inputs,
                       const std::vector<NamedTensor>& outputs, const std::vector<TensorType>& given) {
  inputs_ = &inputs;
  outputs_ = &outputs;
  if (shapes.empty()) return Status();
  if (Status s = shapes.Match(*inputs_, given, &values_); !s.ok()) return s;
  own_inputs_ = *inputs_;
  own_outputs_ = *outputs_;
  for (auto* tensors : {&own_inputs_, &own_outputs_}) {
    for (NamedTensor& tensor : *tensors) {
      tensor.type = shapes.Resolve(tensor.type, values_);
      if (tensor.type.NumBytes() < 0) {
        return InvalidArgument("'" + tensor.name + "' would be " + tensor.type.ToString() + ", which is too large");
      }
    }
  }
  inputs_ = &own_inputs_;
  outputs_ = &own_outputs_;
  open_ = true;
  return Status();
}

}  // namespace inlay::runtime
