// IRModule, Function, Binding, Var, Constant: the IR in memory.
//
// Relax-like dataflow in A-normal form. A Function is a Block of Bindings; each Binding gives one Var the value of one
// expression whose arguments are Operands (a Var or a Constant). Order of bindings is a valid execution order.
//
// Ownership: Vars and Constants are immutable and shared (identity of a Var is its pointer). Functions and modules are
// values: copying one copies its list of bindings, not what they point to. A pass takes a Function and returns a new
// one, with fresh Vars where a type changes. No object here is mutated once shared, so readers need no lock.
#ifndef INLAY_CORE_IR_IR_MODULE_H_
#define INLAY_CORE_IR_IR_MODULE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "core/ir/attrs.h"
#include "core/ir/type.h"
#include "core/target/compilation_config.h"

namespace inlay::ir {

struct Var {
  std::string name;  // for people; never in a key
  Type type;         // always known after the verifier
};
using VarPtr = std::shared_ptr<const Var>;
VarPtr MakeVar(std::string name, Type type);

// A weight (named by the digest of its data, which no pass looks at) or a literal (data inside, part of the structure).
struct Constant {
  TensorType type;
  std::string name;  // for people; never in a key
  bool is_weight = false;
  Digest digest;     // of a weight
  std::string data;  // of a literal
};
using ConstantPtr = std::shared_ptr<const Constant>;
ConstantPtr MakeWeight(TensorType type, Digest digest, std::string name = "");
ConstantPtr MakeLiteral(TensorType type, std::string data, std::string name = "");
ConstantPtr MakeScalar(DType dtype, double value);  // rank 0

struct Operand {
  VarPtr var;
  ConstantPtr constant;

  Operand(VarPtr v) : var(std::move(v)) {}            // NOLINT
  Operand(ConstantPtr c) : constant(std::move(c)) {}  // NOLINT
  bool is_var() const { return var != nullptr; }
  bool is_weight() const { return constant != nullptr && constant->is_weight; }
  bool is_literal() const { return constant != nullptr && !constant->is_weight; }
  Type type() const { return is_var() ? var->type : Type(constant->type); }
  const TensorType& tensor_type() const { return is_var() ? var->type.tensor() : constant->type; }
  bool operator==(const Operand& other) const { return var == other.var && constant == other.constant; }
};

struct Binding;
struct Block {
  std::vector<Binding> bindings;
  std::vector<Operand> results;  // a function with several results returns a tuple of them
};

struct Binding {
  enum class Kind { kCall, kCallFunction, kCallPacked, kTuple, kTupleGetItem, kIf };

  Kind kind = Kind::kCall;
  VarPtr var;          // what it defines
  std::string callee;  // kCall: op; kCallFunction: function of the module; kCallPacked: external name
  std::vector<Operand> args;
  Attrs attrs;
  int index = 0;              // kTupleGetItem
  std::vector<Block> blocks;  // kIf: then, else (they may use Vars of the blocks around them)
  std::string location;       // the model's node, for messages

  bool IsCall(absl::string_view op) const { return kind == Kind::kCall && callee == op; }
};

// "%3 = conv(...) at 'conv1 (Conv)'": how a message names a binding.
std::string Describe(const Binding& binding);

struct Function {
  std::vector<VarPtr> params;
  Block body;
  Attrs attrs;
  std::vector<std::string> result_names;
};

class IRModule {
 public:
  std::map<std::string, Function> functions;  // "main" is the entry
  Attrs attrs;

  // Never absent inside the compiler: what came without one was given the default on entry.
  const target::CompilationConfig& config() const { return *config_; }
  void set_config(target::CompilationConfig config) {
    config_ = std::make_shared<const target::CompilationConfig>(std::move(config));
  }
  IRModule();
  IRModule WithAttr(std::string name, AttrValue value) const;

 private:
  std::shared_ptr<const target::CompilationConfig> config_;
};

// Appends bindings with inferred types: what passes and tests build functions with.
class Builder {
 public:
  explicit Builder(Function* function) : function_(function) {}
  VarPtr Param(std::string name, TensorType type);
  // Infers the type of the result by the op registry; INVALID_ARGUMENT says what does not fit.
  absl::StatusOr<VarPtr> Call(absl::string_view op, std::vector<Operand> args, Attrs attrs = {},
                              std::string location = "");
  absl::StatusOr<VarPtr> GetItem(VarPtr tuple, int index);
  void Return(std::vector<Operand> results);

 private:
  Function* function_;
};

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_IR_MODULE_H_
