// OpenShapes: the extents that a plan leaves open, and how a run finds them from its inputs (executor vm; BYTECODE.md,
// "Open shapes"). A model's names ("seq") stand for one number in all of its functions, and all of them follow from the
// inputs' extents; so a run knows every size before it begins.
//
// Shape registers hold the names' values. An extent is a polynomial over them; a type refers to extents[k] by -1-k in
// its shape. No Abseil: part of every exported library.
#ifndef INLAY_CORE_RUNTIME_OPEN_SHAPES_H_
#define INLAY_CORE_RUNTIME_OPEN_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/status.h"
#include "core/runtime/tensor_type.h"

namespace inlay::runtime {

// coefficient * the product of the registers.
struct ExtentTerm {
  int64_t coefficient = 1;
  std::vector<int32_t> registers;
};
using ExtentSum = std::vector<ExtentTerm>;

struct ShapeRegister {
  enum class Kind : uint8_t {
    kInput,     // args: input, axis, c: the axis has c * this + sum elements
    kFloorDiv,  // args: divisor; of `sum`. This and the next two: core/base/extents.h
    kSlice,     // args: begin, end, step
    kCeilPool,  // args: window, stride, pad at the begin, at the end
  };
  Kind kind = Kind::kInput;
  std::string name;  // "seq", "((h+1)/2)"
  std::vector<int64_t> args;
  ExtentSum sum;  // over registers before this one
};

struct OpenExtent {
  std::string name;  // "2*batch"
  ExtentSum sum;
};

// Of one run.
struct ShapeValues {
  std::vector<int64_t> registers, extents;
};

struct OpenShapes {
  std::vector<ShapeRegister> registers;
  std::vector<OpenExtent> extents;

  bool empty() const { return extents.empty(); }

  // Everything that Match relies on.
  Status Check(const std::vector<NamedTensor>& inputs) const;
  // Whether a type's shape refers to nothing that is missing.
  bool Knows(const TensorType& type) const;

  // Binds every name from what the inputs are given as, and checks all of it against `inputs`: dtypes, ranks, static
  // extents, each open one. INVALID_ARGUMENT names the input and the dimension, and where the other value comes from.
  Status Match(const std::vector<NamedTensor>& inputs, const std::vector<TensorType>& given, ShapeValues* values) const;

  TensorType Resolve(const TensorType& type, const ShapeValues& values) const;
  std::string ToString(const TensorType& type) const;  // "f32[batch, 768]"

 private:
  Status MatchInput(const std::vector<NamedTensor>& inputs, size_t i, const TensorType& given,
                    const ShapeValues& values) const;
  std::string Text(const ExtentSum& sum) const;
  std::string Sources(const std::vector<NamedTensor>& inputs, const ExtentSum& sum, const ShapeValues& values) const;
  std::string Explain(const std::vector<NamedTensor>& inputs, const ExtentSum& sum, const ShapeValues& values) const;
  std::string Need(const std::vector<NamedTensor>& inputs, const OpenExtent& extent, const ShapeValues& values) const;
  std::string NeedEqual(const std::vector<NamedTensor>& inputs, const ExtentSum& sum, const ShapeValues& values) const;
};

// What one run's inputs and outputs are: the plan's own where all is static.
class CallTypes {
 public:
  CallTypes() = default;
  CallTypes(const CallTypes&) = delete;
  CallTypes& operator=(const CallTypes&) = delete;
  // `given`: the inputs' types; looked at only where something is open. The other references must outlive this.
  Status Bind(const OpenShapes& shapes, const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs,
              const std::vector<TensorType>& given);

  const std::vector<NamedTensor>& inputs() const { return *inputs_; }
  const std::vector<NamedTensor>& outputs() const { return *outputs_; }
  const ShapeValues* shapes() const { return open_ ? &values_ : nullptr; }  // for Executor::Run

 private:
  const std::vector<NamedTensor>* inputs_ = nullptr;
  const std::vector<NamedTensor>* outputs_ = nullptr;
  bool open_ = false;
  ShapeValues values_;
  std::vector<NamedTensor> own_inputs_, own_outputs_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_OPEN_SHAPES_H_
