// IRModule: a model before it is compiled, with its weights, attributes and configuration.
//
// It comes from a file that Python wrote (`module.save(path)` after `inlay.from_onnx` or `from_torch`), from
// FunctionBuilder (builder.h), or from the bytes of an inlay.proto.IRModule. A value: copies share what they hold; any
// thread.
#ifndef INLAY_IR_MODULE_H_
#define INLAY_IR_MODULE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inlay/config.h"
#include "inlay/shape.h"
#include "inlay/tensor.h"

namespace inlay {

// The element type that an operator's attribute names: {"dtype", inlay::DType{"f32"}} of a cast.
struct DType {
  std::string name;
  bool operator==(const DType& other) const { return name == other.name; }
};

// An attribute of a module or an operator.
class AttrValue {
 public:
  using Variant = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, Shape, DType>;
  AttrValue(bool v) : value(v) {}                                 // NOLINT
  AttrValue(int v) : value(int64_t{v}) {}                         // NOLINT
  AttrValue(int64_t v) : value(v) {}                              // NOLINT
  AttrValue(double v) : value(v) {}                               // NOLINT
  AttrValue(const char* v) : value(std::string(v)) {}             // NOLINT
  AttrValue(std::string v) : value(std::move(v)) {}               // NOLINT
  AttrValue(std::vector<int64_t> v) : value(std::move(v)) {}      // NOLINT
  AttrValue(std::vector<double> v) : value(std::move(v)) {}       // NOLINT
  AttrValue(std::vector<std::string> v) : value(std::move(v)) {}  // NOLINT
  AttrValue(Shape v) : value(std::move(v)) {}                     // NOLINT: extents of an operator
  AttrValue(DType v) : value(std::move(v)) {}                     // NOLINT
  bool operator==(const AttrValue& other) const { return value == other.value; }

  Variant value;
};

// The sizes that an open dimension may have, both ends included; absent: no bound.
struct Bounds {
  std::optional<int64_t> least, most;
  bool operator==(const Bounds& other) const { return least == other.least && most == other.most; }
};

class IRModule {
 public:
  // A serialised inlay.proto.IRModule; weights that it names by digest and that are not given must be on the server.
  static absl::StatusOr<IRModule> FromBytes(absl::string_view bytes, const std::vector<Tensor>& weights = {});
  std::string ToBytes() const;  // without the weights

  // The parameters and results of "main"; of results the names alone: their types are inferred where it is compiled
  // (Executable::signature).
  Signature signature() const;
  size_t weight_bytes() const;  // each distinct one counted once

  // The configuration that it carries; the default one where it carries none.
  CompilationConfig config() const;
  bool has_config() const;
  // A copy that carries this one; Build without one takes it. INVALID_ARGUMENT: CompilationConfig::Check.
  absl::StatusOr<IRModule> WithConfiguration(const CompilationConfig& config) const;

  // A copy whose "main" gives these outputs by writing to inputs of the same type, {"present.key", "past.key"}: a call
  // then writes to its caller's own tensors, dense ones, and returns them. INVALID_ARGUMENT: an unknown name, an input
  // named twice; the server refuses types that differ.
  absl::StatusOr<IRModule> WithUpdates(const std::map<std::string, std::string>& updates) const;

  // {symbol: its bounds} of main's inputs, as WithBounds says them, or what WithRequiredExtents says of one symbol
  // alone. Symbols without bounds are left out.
  std::map<std::string, Bounds> bounds() const;
  // A copy that refuses a run in which a symbol of main's inputs is less or more than this, {"seq", {8, 512}}: its
  // error (INVALID_ARGUMENT) names the symbol, its value and the input that has it. Replaces the bounds said before;
  // required extents of several symbols stay. INVALID_ARGUMENT: a symbol that no input has (says those there are), no
  // size is within its bounds.
  absl::StatusOr<IRModule> WithBounds(const std::map<std::string, Bounds>& bounds) const;

  // The expressions that must be 0 or more in a run of main, in the normal form of core/ir/dim_expr.h: "512-seq" is
  // "-seq+512".
  std::vector<std::string> required_extents() const;
  // A copy that refuses a run in which one of these is below 0: expressions over the symbols of main's inputs, such as
  // "seq-8", "h-w", "8*(seq/8)-seq" (seq is a multiple of 8). Replaces all that was said before, by WithBounds too.
  // INVALID_ARGUMENT: a symbol that no input has, no expression, a number below 0.
  absl::StatusOr<IRModule> WithRequiredExtents(const std::vector<std::string>& expressions) const;

  // Ad-hoc attributes beside it: a copy with it set.
  IRModule WithAttr(const std::string& name, const AttrValue& value) const;
  std::map<std::string, AttrValue> attrs() const;

  // Writes `path` (the IRModule, without weights) and `path`.safetensors (the weights, where there are any), which
  // Python's inlay.load_module and LoadModule read.
  absl::Status Save(const std::string& path) const;

  struct Impl;
  explicit IRModule(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// What IRModule::Save, or Python's module.save, wrote. NOT_FOUND, INVALID_ARGUMENT (damaged, naming the file). Weights
// stay in the file, mapped: don't change it while the module is used.
absl::StatusOr<IRModule> LoadModule(const std::string& path);

}  // namespace inlay

#endif  // INLAY_IR_MODULE_H_
