#include "core/artifact/call_graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "core/artifact/micro_batch_run.h"
#include "core/base/status_macros.h"
#include "core/ir/batch.h"

namespace inlay::artifact {
namespace {

int NumLeaves(const ir::Type& type) {
  if (type.is_tensor()) return 1;
  int n = 0;
  for (const ir::Type& field : type.tuple().fields) n += NumLeaves(field);
  return n;
}

// UNIMPLEMENTED names the first symbolic dimension in a type, and what to do about it. `where`: whose type it is.
absl::Status CheckStatic(const ir::Type& type, absl::string_view where) {
  std::vector<ir::TensorType> leaves;
  AppendLeaves(type, &leaves);
  for (const ir::TensorType& leaf : leaves) {
    if (leaf.is_static()) continue;
    const std::string symbol = leaf.FirstSymbol();
    return absl::UnimplementedError(absl::StrCat("symbolic dimension '", symbol, "' in the type ", leaf.ToString(),
                                                 " of ", where, ": give it a value (shape ", symbol,
                                                 "=N), or use executor vm"));
  }
  return absl::OkStatus();
}

class GraphBuilder {
 public:
  GraphBuilder(const ir::IRModule& module, const FunctionTable& functions, bool open_inputs)
      : module_(module), functions_(functions), open_inputs_(open_inputs) {}

  absl::StatusOr<CallGraph> Build() {
    const auto main = module_.functions.find("main");
    if (main == module_.functions.end()) return absl::InvalidArgumentError("the module has no function main");
    std::vector<int> lifted;
    const auto transform = module_.functions.find("transform_params");
    if (transform != module_.functions.end()) {
      if (!transform->second.params.empty()) {
        return absl::InvalidArgumentError("transform_params must have no parameters");
      }
      INLAY_RETURN_IF_ERROR(Annotate(AddBlock(transform->second.body, Value::Kind::kLoad), "transform_params"));
      INLAY_ASSIGN_OR_RETURN(lifted, Results(transform->second, nullptr));
    }
    INLAY_RETURN_IF_ERROR(AddParameters(main->second, lifted));
    INLAY_RETURN_IF_ERROR(AddBlock(main->second.body, Value::Kind::kRun));
    INLAY_ASSIGN_OR_RETURN(graph_.results, Results(main->second, &graph_.result_types));
    return std::move(graph_);
  }

 private:
  absl::Status AddParameters(const ir::Function& main, const std::vector<int>& lifted) {
    const int64_t num_lifted = main.attrs.IntOr("num_lifted_params", 0);
    if (num_lifted != static_cast<int64_t>(lifted.size()) || num_lifted > static_cast<int64_t>(main.params.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("main takes ", num_lifted, " lifted parameters, transform_params ", "makes ", lifted.size()));
    }
    const size_t num_inputs = main.params.size() - num_lifted;
    for (size_t i = 0; i < main.params.size(); ++i) {
      const ir::VarPtr& var = main.params[i];
      if (!var->type.is_tensor()) {
        return absl::InvalidArgumentError(absl::StrCat("parameter '", var->name, "' of main is not a tensor"));
      }
      if (i >= num_inputs) {
        values_of_[var.get()] = {lifted[i - num_inputs]};
        continue;
      }
      if (!open_inputs_) INLAY_RETURN_IF_ERROR(CheckStatic(var->type, absl::StrCat("input '", var->name, "'")));
      const ir::TensorType& type = var->type.tensor();
      values_of_[var.get()] = {NewValue(Value::Kind::kInput, type.is_static() ? type.NumBytes() : -1,
                                        static_cast<int>(graph_.inputs.size()))};
      graph_.inputs.push_back(var);
    }
    return absl::OkStatus();
  }

  absl::Status AddBlock(const ir::Block& block, Value::Kind kind) {
    for (size_t b = 0; b < block.bindings.size(); ++b) {
      const ir::Binding& binding = block.bindings[b];
      INLAY_RETURN_IF_ERROR(CheckStatic(binding.var->type, ir::Describe(binding)));
      if (kind == Value::Kind::kRun && NumParts(binding) > 1) {
        INLAY_ASSIGN_OR_RETURN(b, AddMicroBatches(block, b));
        continue;
      }
      switch (binding.kind) {
        case ir::Binding::Kind::kCallFunction:
          INLAY_RETURN_IF_ERROR(AddCall(binding, kind, {}));
          break;
        case ir::Binding::Kind::kTuple: {
          std::vector<int> values;
          for (const ir::Operand& arg : binding.args) {
            INLAY_ASSIGN_OR_RETURN(std::vector<int> items, ValuesOf(arg, ir::Describe(binding)));
            values.insert(values.end(), items.begin(), items.end());
          }
          values_of_[binding.var.get()] = std::move(values);
          break;
        }
        case ir::Binding::Kind::kTupleGetItem:
          INLAY_RETURN_IF_ERROR(AddGetItem(binding));
          break;
        case ir::Binding::Kind::kIf:
        case ir::Binding::Kind::kCallPacked:
          return absl::UnimplementedError(absl::StrCat("executors graph and aot have no ",
                                                       binding.kind == ir::Binding::Kind::kIf ? "If" : "call_packed",
                                                       " (use executor vm): ", ir::Describe(binding)));
        case ir::Binding::Kind::kCall:
          return absl::InvalidArgumentError(
              absl::StrCat("not in a partition, so nothing implements it: ", ir::Describe(binding)));
      }
    }
    return absl::OkStatus();
  }

  // Which of how many micro-batches a call is for; of one that is not the first, the first's index in the list.
  struct Part {
    int index = 0, count = 1;
    int first_call = -1;
  };

  static int NumParts(const ir::Binding& binding) { return static_cast<int>(ir::MicroBatchesOf(binding).value()); }

  // The calls from `begin` on that have as many micro-batches, part by part: what nobody else uses is made anew in
  // each, everything else is whole. The last binding of them.
  absl::StatusOr<size_t> AddMicroBatches(const ir::Block& block, size_t begin) {
    const int count = NumParts(block.bindings[begin]);
    const size_t end = EndOfMicroBatches(block, begin);
    INLAY_RETURN_IF_ERROR(AddWholes(block, begin, end));
    std::vector<int> first_calls(end - begin, -1);
    for (int part = 0; part < count; ++part) {
      for (size_t b = begin; b < end; ++b) {
        const ir::Binding& binding = block.bindings[b];
        if (binding.kind == ir::Binding::Kind::kTupleGetItem) {
          INLAY_RETURN_IF_ERROR(AddGetItem(binding));
          continue;
        }
        if (binding.kind != ir::Binding::Kind::kCallFunction) {
          return absl::InvalidArgumentError(absl::StrCat("micro-batches of no partition: ", ir::Describe(binding)));
        }
        if (part == 0) first_calls[b - begin] = static_cast<int>(graph_.run_calls.size());
        INLAY_RETURN_IF_ERROR(
            AddCall(binding, Value::Kind::kRun, {part, count, part == 0 ? -1 : first_calls[b - begin]}));
      }
    }
    return end - 1;
  }

  // Values for what bindings [begin, end) make and others use.
  absl::Status AddWholes(const ir::Block& block, size_t begin, size_t end) {
    std::unordered_set<const ir::Var*> used;
    for (size_t b = end; b < block.bindings.size(); ++b) {
      for (const ir::Operand& arg : block.bindings[b].args) used.insert(arg.var.get());
    }
    for (const ir::Operand& result : block.results) used.insert(result.var.get());
    for (size_t b = begin; b < end; ++b) {
      const ir::Binding& binding = block.bindings[b];
      if (binding.kind == ir::Binding::Kind::kTupleGetItem) {
        std::vector<int>& items = wholes_.at(binding.args[0].var.get());
        if (!binding.var->type.is_tensor() || binding.index < 0 || binding.index >= static_cast<int>(items.size())) {
          return absl::InvalidArgumentError(absl::StrCat("no such item: ", ir::Describe(binding)));
        }
        if (used.count(binding.var.get()) > 0 && items[binding.index] < 0) {
          items[binding.index] = NewValue(Value::Kind::kRun, binding.var->type.tensor().NumBytes(), 0);
        }
        continue;
      }
      std::vector<ir::TensorType> types;
      AppendLeaves(binding.var->type, &types);
      std::vector<int>& wholes = wholes_[binding.var.get()];
      for (const ir::TensorType& type : types) {
        wholes.push_back(used.count(binding.var.get()) > 0 ? NewValue(Value::Kind::kRun, type.NumBytes(), 0) : -1);
      }
    }
    return absl::OkStatus();
  }

  static bool IsPart(const ir::Type& part, const ir::Type& whole, int count) {
    if (count == 1) return part == whole;
    if (!part.is_tensor() || !whole.is_tensor() || part.tensor().rank() == 0) return false;
    ir::TensorType type = part.tensor();
    if (type.dims[0].is_static()) type.dims[0] = ir::Dim(type.dims[0].value() * count);
    return ir::Type(type) == whole;
  }

  // Bytes [part * bytes, (part + 1) * bytes) of a value.
  int PartOf(int value, int64_t bytes, int part) {
    const auto [found, added] = parts_.emplace(std::make_pair(value, part * bytes), -1);
    if (added) {
      found->second = NewValue(graph_.values[value].kind, bytes, graph_.values[value].index);
      graph_.values.back().whole = value;
      graph_.values.back().offset = part * bytes;
    }
    return found->second;
  }

  absl::Status AddCall(const ir::Binding& binding, Value::Kind kind, Part part) {
    const auto callee = module_.functions.find(binding.callee);
    if (callee == module_.functions.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no function ", binding.callee, ": ", ir::Describe(binding)));
    }
    const ir::Function& body = callee->second;
    const std::string symbol = body.attrs.StringOr("symbol", binding.callee);
    GraphCall call;
    INLAY_ASSIGN_OR_RETURN(call.function, functions_.Find(symbol, body));
    call.body = &body;
    call.name = binding.location;
    call.part = part.index;
    call.num_parts = part.count;
    call.first_part = part.first_call;
    if (binding.args.size() != body.params.size()) {
      return absl::InvalidArgumentError(absl::StrCat("wrong number of arguments: ", ir::Describe(binding)));
    }
    for (size_t i = 0; i < binding.args.size(); ++i) {
      const ir::Type& type = body.params[i]->type;
      const bool whole = binding.args[i].type() == type;
      if (!whole && !IsPart(type, binding.args[i].type(), part.count)) {
        return absl::InvalidArgumentError(
            absl::StrCat("argument ", i, " has another type than ", binding.callee, " takes: ", ir::Describe(binding)));
      }
      INLAY_ASSIGN_OR_RETURN(std::vector<int> values, ValuesOf(binding.args[i], ir::Describe(binding)));
      const int value = values[0];  // FunctionTable::Find has seen that it is a tensor
      const bool there = whole || graph_.values[value].bytes == type.tensor().NumBytes();  // made by this part
      call.inputs.push_back(there ? value : PartOf(value, type.tensor().NumBytes(), part.index));
    }
    return AddResults(binding, kind, part, std::move(call));
  }

  absl::Status AddResults(const ir::Binding& binding, Value::Kind kind, Part part, GraphCall call) {
    std::vector<ir::TensorType> types;
    AppendLeaves(binding.var->type, &types);
    if (static_cast<int>(types.size()) != call.function->outputs_size()) {
      return absl::InvalidArgumentError(absl::StrCat("wrong number of results: ", ir::Describe(binding)));
    }
    std::vector<GraphCall>& calls = kind == Value::Kind::kLoad ? graph_.load_calls : graph_.run_calls;
    std::vector<int>& values = values_of_[binding.var.get()];
    values.clear();
    bool empty = true;
    for (size_t i = 0; i < types.size(); ++i) {
      if (part.count > 1 && !IsPart(call.body->body.results[i].type(), types[i], part.count)) {
        return absl::InvalidArgumentError(absl::StrCat("result ", i, " is not ", part.count, " times what ",
                                                       binding.callee, " makes: ", ir::Describe(binding)));
      }
      const int64_t bytes = types[i].NumBytes() / part.count;
      const int whole = part.count > 1 ? wholes_.at(binding.var.get())[i] : -1;
      call.outputs.push_back(whole >= 0 ? PartOf(whole, bytes, part.index)
                                        : NewValue(kind, bytes, static_cast<int>(calls.size())));
      values.push_back(whole >= 0 ? whole : call.outputs.back());
      empty = empty && bytes == 0;
    }
    if (empty) {
      // Nothing to compute; a value without bytes needs no maker, and is there from the start.
      for (int value : call.outputs) graph_.values[value].index = -1;
    } else {
      calls.push_back(std::move(call));
    }
    return absl::OkStatus();
  }

  absl::Status AddGetItem(const ir::Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(std::vector<int> values, ValuesOf(binding.args[0], ir::Describe(binding)));
    const ir::Type tuple = binding.args[0].type();
    if (!tuple.is_tuple() || binding.index < 0 || binding.index >= static_cast<int>(tuple.tuple().fields.size())) {
      return absl::InvalidArgumentError(absl::StrCat("no such item: ", ir::Describe(binding)));
    }
    int begin = 0;
    for (int i = 0; i < binding.index; ++i) begin += NumLeaves(tuple.tuple().fields[i]);
    const int count = NumLeaves(tuple.tuple().fields[binding.index]);
    values_of_[binding.var.get()] = {values.begin() + begin, values.begin() + begin + count};
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int>> Results(const ir::Function& function, std::vector<ir::TensorType>* types) {
    std::vector<int> results;
    for (const ir::Operand& operand : function.body.results) {
      INLAY_ASSIGN_OR_RETURN(std::vector<int> values, ValuesOf(operand, "a result"));
      results.insert(results.end(), values.begin(), values.end());
      if (types != nullptr) AppendLeaves(operand.type(), types);
    }
    return results;
  }

  absl::StatusOr<std::vector<int>> ValuesOf(const ir::Operand& operand, absl::string_view where) {
    if (operand.is_var()) {
      const auto it = values_of_.find(operand.var.get());
      if (it == values_of_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", operand.var->name, "' is used before it is defined: ", where));
      }
      return it->second;
    }
    const ir::Constant* constant = operand.constant.get();
    const auto it = value_of_constant_.find(constant);
    if (it != value_of_constant_.end()) return std::vector<int>{it->second};
    int value;
    INLAY_RETURN_IF_ERROR(CheckStatic(constant->type, "a constant"));
    if (constant->is_weight) {
      value = NewValue(Value::Kind::kParam, constant->type.NumBytes(), static_cast<int>(graph_.params.size()));
      graph_.params.push_back(operand.constant);
    } else {
      if (static_cast<int64_t>(constant->data.size()) != constant->type.NumBytes()) {
        return absl::InvalidArgumentError(absl::StrCat("a literal has a wrong size: ", where));
      }
      value = NewValue(Value::Kind::kLiteral, constant->type.NumBytes(), static_cast<int>(graph_.literals.size()));
      graph_.literals.push_back(operand.constant);
    }
    value_of_constant_[constant] = value;
    return std::vector<int>{value};
  }

  int NewValue(Value::Kind kind, int64_t bytes, int index) {
    graph_.values.push_back({kind, bytes, index});
    return static_cast<int>(graph_.values.size()) - 1;
  }

  const ir::IRModule& module_;
  const FunctionTable& functions_;
  const bool open_inputs_;
  CallGraph graph_;
  std::unordered_map<const ir::Var*, std::vector<int>> values_of_;
  std::unordered_map<const ir::Constant*, int> value_of_constant_;
  std::unordered_map<const ir::Var*, std::vector<int>> wholes_;  // of calls for micro-batches; -1: of one part only
  std::map<std::pair<int, int64_t>, int> parts_;                 // value, offset -> its part
};

}  // namespace

void AppendLeaves(const ir::Type& type, std::vector<ir::TensorType>* leaves) {
  if (type.is_tensor()) {
    leaves->push_back(type.tensor());
    return;
  }
  for (const ir::Type& field : type.tuple().fields) AppendLeaves(field, leaves);
}

absl::StatusOr<CallGraph> BuildCallGraph(const ir::IRModule& partitioned, const FunctionTable& functions,
                                         bool open_inputs) {
  return GraphBuilder(partitioned, functions, open_inputs).Build();
}

}  // namespace inlay::artifact
