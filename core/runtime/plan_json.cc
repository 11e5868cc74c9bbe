// The JSON form of an ExecutionPlan. nlohmann's exceptions stay in this file.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/runtime/plan.h"

namespace inlay::runtime {
namespace {

using Json = nlohmann::json;

constexpr const char* kKinds[] = {"input", "output", "param", "literal", "constant", "load", "arena"};
constexpr const char* kSteps[] = {"run", "init", "destroy", "copy"};

bool HasIndex(BufferKind kind) { return kind <= BufferKind::kLiteral; }

template <typename Enum, size_t N>
Enum ParseEnum(const char* const (&names)[N], const Json& json) {
  const std::string& text = json.get_ref<const std::string&>();
  for (size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  throw std::runtime_error("unknown word '" + text + "'");
}

std::string ToHex(const std::string& bytes) {
  std::string hex;
  for (unsigned char c : bytes) {
    hex += "0123456789abcdef"[c >> 4];
    hex += "0123456789abcdef"[c & 15];
  }
  return hex;
}

std::string FromHex(const std::string& hex) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw std::runtime_error("a literal is not hexadecimal");
  };
  if (hex.size() % 2 != 0) throw std::runtime_error("a literal is not hexadecimal");
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

Json TensorJson(const NamedTensor& t) {
  return {{"name", t.name}, {"dtype", Name(t.type.dtype)}, {"shape", t.type.shape}};
}

NamedTensor TensorFromJson(const Json& json) {
  NamedTensor t;
  t.name = json.at("name").get<std::string>();
  const std::string dtype = json.at("dtype").get<std::string>();
  if (!ParseDType(dtype, &t.type.dtype)) throw std::runtime_error("unknown dtype '" + dtype + "'");
  t.type.shape = json.at("shape").get<std::vector<int64_t>>();
  return t;
}

Json AmountJson(const Amount& amount) { return amount.extent.empty() ? Json(amount.value) : Json(amount.extent); }

Amount AmountFromJson(const Json& json) {
  if (json.is_string()) return {0, json.get<std::string>()};
  return {json.get<int64_t>()};
}

Json StepJson(const Step& step) {
  Json json = {{"do", kSteps[static_cast<int>(step.kind)]}, {"args", step.args}};
  if (step.function >= 0) json["function"] = step.function;
  if (step.state >= 0) json["state"] = step.state;
  if (step.workspace_offset >= 0) json["workspace"] = step.workspace_offset;
  if (!step.name.empty()) json["name"] = step.name;
  if (step.num_parts > 1) json["part"] = {step.part, step.num_parts};
  if (step.turns.value != 1) json["turns"] = AmountJson(step.turns);
  return json;
}

Step StepFromJson(const Json& json) {
  Step step;
  step.kind = ParseEnum<StepKind>(kSteps, json.at("do"));
  step.args = json.at("args").get<std::vector<int32_t>>();
  step.function = json.value("function", -1);
  step.state = json.value("state", -1);
  step.workspace_offset = json.value("workspace", int64_t{-1});
  step.name = json.value("name", "");
  if (const auto part = json.find("part"); part != json.end()) {
    step.part = part->at(0).get<int32_t>();
    step.num_parts = part->at(1).get<int32_t>();
  }
  if (const auto turns = json.find("turns"); turns != json.end()) step.turns = AmountFromJson(*turns);
  return step;
}

Json FunctionJson(const PlanFunction& f) {
  const FunctionInfo& info = f.info;
  Json json = {{"symbol", f.symbol},
               {"inputs", f.num_inputs},
               {"outputs", f.num_outputs},
               {"state", f.has_state},
               {"workspace", f.workspace_bytes},
               {"info",
                {{"backend", info.backend},
                 {"ops", info.ops},
                 {"types", info.types},
                 {"flops", AmountJson(info.flops)},
                 {"bytes", AmountJson(info.bytes)},
                 {"constant_bytes", AmountJson(info.constant_bytes)}}}};
  if (!f.symbols.empty()) json["symbols"] = f.symbols;
  if (f.workspace_extent >= 0) json["workspace_extent"] = f.workspace_extent;
  return json;
}

PlanFunction FunctionFromJson(const Json& json) {
  PlanFunction f;
  f.symbol = json.at("symbol").get<std::string>();
  f.num_inputs = json.at("inputs").get<int32_t>();
  f.num_outputs = json.at("outputs").get<int32_t>();
  f.has_state = json.at("state").get<bool>();
  f.workspace_bytes = json.at("workspace").get<int64_t>();
  f.symbols = json.value("symbols", std::vector<int32_t>());
  f.workspace_extent = json.value("workspace_extent", -1);
  const auto info = json.find("info");
  if (info == json.end()) return f;
  f.info.backend = info->at("backend").get<std::string>();
  f.info.ops = info->at("ops").get<std::vector<std::string>>();
  f.info.types = info->at("types").get<std::vector<std::string>>();
  f.info.flops = AmountFromJson(info->at("flops"));
  f.info.bytes = AmountFromJson(info->at("bytes"));
  f.info.constant_bytes = AmountFromJson(info->at("constant_bytes"));
  return f;
}

constexpr const char* kShapes[] = {"input", "floor_div", "slice", "ceil_pool"};

// [[coefficient, registers...], ...]
Json SumJson(const ExtentSum& sum) {
  Json json = Json::array();
  for (const ExtentTerm& term : sum) {
    Json words = Json::array({term.coefficient});
    for (int32_t r : term.registers) words.push_back(r);
    json.push_back(std::move(words));
  }
  return json;
}

ExtentSum SumFromJson(const Json& json) {
  ExtentSum sum;
  for (const Json& words : json) {
    ExtentTerm term;
    term.coefficient = words.at(0).get<int64_t>();
    for (size_t i = 1; i < words.size(); ++i) term.registers.push_back(words.at(i).get<int32_t>());
    sum.push_back(std::move(term));
  }
  return sum;
}

Json ShapesJson(const OpenShapes& shapes) {
  Json registers = Json::array(), extents = Json::array();
  for (const ShapeRegister& r : shapes.registers) {
    registers.push_back({r.name, kShapes[static_cast<int>(r.kind)], r.args, SumJson(r.sum)});
  }
  for (const OpenExtent& extent : shapes.extents) extents.push_back({extent.name, SumJson(extent.sum)});
  return {{"registers", registers}, {"extents", extents}};
}

OpenShapes ShapesFromJson(const Json& json) {
  OpenShapes shapes;
  for (const Json& r : json.at("registers")) {
    shapes.registers.push_back({ParseEnum<ShapeRegister::Kind>(kShapes, r.at(1)), r.at(0).get<std::string>(),
                                r.at(2).get<std::vector<int64_t>>(), SumFromJson(r.at(3))});
  }
  for (const Json& e : json.at("extents")) {
    shapes.extents.push_back({e.at(0).get<std::string>(), SumFromJson(e.at(1))});
  }
  return shapes;
}

constexpr const char* kRegisters[] = {"param", "result", "frame", "buffer", "slot"};

Json VmFunctionJson(const VmFunction& f) {
  Json registers = Json::array();
  for (const VmRegister& r : f.registers) {
    registers.push_back({kRegisters[static_cast<int>(r.kind)], r.at, Name(r.type.dtype), r.type.shape});
  }
  Json json = {{"name", f.name},         {"params", f.num_params}, {"results", f.num_results},
               {"registers", registers}, {"frame", f.frame_bytes}, {"code", f.code}};
  if (f.num_slots > 0) json["slots"] = f.num_slots;
  return json;
}

VmFunction VmFunctionFromJson(const Json& json) {
  VmFunction f;
  f.name = json.at("name").get<std::string>();
  f.num_params = json.at("params").get<int32_t>();
  f.num_results = json.at("results").get<int32_t>();
  f.frame_bytes = json.at("frame").get<int64_t>();
  f.num_slots = json.value("slots", 0);
  f.code = json.at("code").get<std::vector<int64_t>>();
  for (const Json& r : json.at("registers")) {
    VmRegister reg;
    reg.kind = ParseEnum<RegisterKind>(kRegisters, r.at(0));
    reg.at = r.at(1).get<int64_t>();
    const std::string dtype = r.at(2).get<std::string>();
    if (!ParseDType(dtype, &reg.type.dtype)) throw std::runtime_error("unknown dtype '" + dtype + "'");
    reg.type.shape = r.at(3).get<std::vector<int64_t>>();
    f.registers.push_back(std::move(reg));
  }
  return f;
}

Json BytecodeJson(const Bytecode& bytecode) {
  Json functions = Json::array();
  for (const VmFunction& f : bytecode.functions) functions.push_back(VmFunctionJson(f));
  return {{"version", kBytecodeVersion}, {"functions", functions}, {"packed", bytecode.packed}};
}

Bytecode BytecodeFromJson(const Json& json) {
  if (json.at("version").get<int64_t>() != kBytecodeVersion) {
    throw std::runtime_error("bytecode of version " + json.at("version").dump() + ", this runtime runs " +
                             std::to_string(kBytecodeVersion));
  }
  Bytecode bytecode;
  for (const Json& f : json.at("functions")) bytecode.functions.push_back(VmFunctionFromJson(f));
  bytecode.packed = json.at("packed").get<std::vector<std::string>>();
  if (bytecode.functions.empty()) throw std::runtime_error("bytecode without functions");
  return bytecode;
}

// nlohmann converts numbers of any kind to any other without a word; a plan holds integers only.
void RequireIntegers(const Json& json) {
  if (json.is_number_float()) throw std::runtime_error("a number is not an integer");
  if (json.is_structured()) {
    for (const Json& child : json) RequireIntegers(child);
  }
}

ExecutionPlan Parse(const Json& json) {
  RequireIntegers(json);
  if (json.at("version").get<int64_t>() != kPlanVersion) {
    throw std::runtime_error("version " + json.at("version").dump() + ", this runtime reads " +
                             std::to_string(kPlanVersion));
  }
  ExecutionPlan plan;
  for (const Json& t : json.at("inputs")) plan.inputs.push_back(TensorFromJson(t));
  for (const Json& t : json.at("outputs")) {
    plan.outputs.push_back(TensorFromJson(t));
    plan.updates.push_back(t.value("updates", -1));
  }
  const auto none = std::count(plan.updates.begin(), plan.updates.end(), -1);
  if (none == static_cast<std::ptrdiff_t>(plan.updates.size())) plan.updates.clear();
  for (const Json& t : json.at("params")) {
    plan.params.push_back(TensorFromJson(t));
    plan.param_load_only.push_back(t.value("load_only", false));
  }
  for (const Json& t : json.at("literals")) plan.literals.push_back(FromHex(t.get_ref<const std::string&>()));
  for (const Json& f : json.at("functions")) plan.functions.push_back(FunctionFromJson(f));
  for (const Json& b : json.at("buffers")) {
    Buffer buffer;
    buffer.kind = ParseEnum<BufferKind>(kKinds, b.at(0));
    (HasIndex(buffer.kind) ? buffer.index : buffer.offset) = b.at(1).get<int64_t>();
    buffer.bytes = b.at(2).get<int64_t>();
    if (b.size() > 3) buffer.offset = b.at(3).get<int64_t>();
    plan.buffers.push_back(buffer);
  }
  for (const Json& s : json.at("load")) plan.load_steps.push_back(StepFromJson(s));
  for (const Json& s : json.at("run")) plan.run_steps.push_back(StepFromJson(s));
  plan.num_states = json.at("states").get<int32_t>();
  plan.constant_bytes = json.at("constant_bytes").get<int64_t>();
  plan.load_bytes = json.at("load_bytes").get<int64_t>();
  plan.arena_bytes = json.at("arena_bytes").get<int64_t>();
  plan.num_threads = json.at("num_threads").get<int32_t>();
  plan.openmp = json.value("openmp", false);
  plan.entry = json.value("entry", -1);
  if (json.contains("shapes")) plan.shapes = ShapesFromJson(json.at("shapes"));
  if (json.contains("bytecode")) plan.bytecode = BytecodeFromJson(json.at("bytecode"));
  return plan;
}

}  // namespace

std::string ExecutionPlan::ToJson() const {
  Json json = {{"version", kPlanVersion},
               {"inputs", Json::array()},
               {"outputs", Json::array()},
               {"params", Json::array()},
               {"literals", Json::array()},
               {"functions", Json::array()},
               {"buffers", Json::array()},
               {"load", Json::array()},
               {"run", Json::array()},
               {"states", num_states},
               {"constant_bytes", constant_bytes},
               {"load_bytes", load_bytes},
               {"arena_bytes", arena_bytes},
               {"num_threads", num_threads}};
  for (const NamedTensor& t : inputs) json["inputs"].push_back(TensorJson(t));
  for (size_t i = 0; i < outputs.size(); ++i) {
    json["outputs"].push_back(TensorJson(outputs[i]));
    if (UpdatedBy(i) >= 0) json["outputs"].back()["updates"] = UpdatedBy(i);
  }
  for (size_t i = 0; i < params.size(); ++i) {
    json["params"].push_back(TensorJson(params[i]));
    if (param_load_only[i]) json["params"].back()["load_only"] = true;
  }
  for (const std::string& l : literals) json["literals"].push_back(ToHex(l));
  for (const PlanFunction& f : functions) json["functions"].push_back(FunctionJson(f));
  for (const Buffer& b : buffers) {
    Json buffer = Json::array({kKinds[static_cast<int>(b.kind)], HasIndex(b.kind) ? b.index : b.offset, b.bytes});
    if (HasIndex(b.kind) && b.offset != 0) buffer.push_back(b.offset);
    json["buffers"].push_back(std::move(buffer));
  }
  for (const Step& s : load_steps) json["load"].push_back(StepJson(s));
  for (const Step& s : run_steps) json["run"].push_back(StepJson(s));
  if (openmp) json["openmp"] = true;
  if (entry >= 0) json["entry"] = entry;
  if (!shapes.empty()) json["shapes"] = ShapesJson(shapes);
  if (!bytecode.empty()) json["bytecode"] = BytecodeJson(bytecode);
  // A name from a model may hold any bytes; what is not UTF-8 becomes U+FFFD.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<ExecutionPlan> ExecutionPlan::FromJson(const std::string& text) {
  try {
    ExecutionPlan plan = Parse(Json::parse(text));
    if (Status s = plan.Check(); !s.ok()) return s;
    return plan;
  } catch (const std::exception& e) {
    return InvalidArgument(std::string("execution plan: ") + e.what());
  }
}

}  // namespace inlay::runtime
