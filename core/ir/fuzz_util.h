// Fuzzing of modules: a module with a bit of everything, and changes of a field somewhere in it. Seeded by the caller.
#ifndef INLAY_CORE_IR_FUZZ_UTIL_H_
#define INLAY_CORE_IR_FUZZ_UTIL_H_

#include <random>

#include "core/ir/dim_expr.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/testing.h"
#include "google/protobuf/message.h"

namespace inlay::ir::testing {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::mt19937_64;

inline int64_t Number(Random& random) {
  static const int64_t kInteresting[] = {0,       1,         2,         -1,        -2,           3, 7, 64,
                                         1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX - 1};
  return kInteresting[random() % (sizeof(kInteresting) / sizeof(kInteresting[0]))];
}

// Changes one field somewhere in the message.
inline void Mutate(Message* message, Random& random) {
  const auto* descriptor = message->GetDescriptor();
  const Reflection* reflection = message->GetReflection();
  if (descriptor->field_count() == 0) return;
  // Mostly down along what is there, so that deep fields get their share.
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(*message, &set);
  const FieldDescriptor* field = !set.empty() && random() % 8 != 0
                                     ? set[random() % set.size()]
                                     : descriptor->field(static_cast<int>(random() % descriptor->field_count()));
  if (field->is_repeated()) {
    const int n = reflection->FieldSize(*message, field);
    const uint64_t choice = random() % 8;
    if (n > 0 && choice == 0) return reflection->RemoveLast(message, field);
    if (n > 1 && choice == 1) {
      return reflection->SwapElements(message, field, static_cast<int>(random() % n), static_cast<int>(random() % n));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->is_map() && n == 0) return;
      Message* element = n == 0 || choice == 2
                             ? reflection->AddMessage(message, field)
                             : reflection->MutableRepeatedMessage(message, field, static_cast<int>(random() % n));
      return Mutate(element, random);
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      if (n == 0 || choice == 2) return reflection->AddInt64(message, field, Number(random));
      return reflection->SetRepeatedInt64(message, field, static_cast<int>(random() % n), Number(random));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      std::string value = n == 0 ? "" : reflection->GetRepeatedString(*message, field, static_cast<int>(random() % n));
      value.insert(random() % (value.size() + 1), 1, "ab*+(/ \n0-"[random() % 10]);
      return reflection->AddString(message, field, value);
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      return reflection->AddInt32(message, field, static_cast<int32_t>(Number(random)));
    }
    return;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (random() % 16 == 0) return reflection->ClearField(message, field);
      return Mutate(reflection->MutableMessage(message, field), random);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, Number(random));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<int32_t>(Number(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field, static_cast<double>(Number(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, random() % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(random() % 12));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string value = reflection->GetString(*message, field);
      if (random() % 2 == 0) {
        value.push_back("ab*+(/ \n"[random() % 8]);
      } else if (!value.empty()) {
        value.pop_back();
      }
      return reflection->SetString(message, field, value);
    }
    default:
      return;
  }
}

// A bit of everything.
inline IRModule Seed(Dim batch) {
  using Ints = std::vector<int64_t>;
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({batch, 3, 8, 8}));
  VarPtr c = b.Call("conv", {x, Weight({4, 3, 3, 3}), Weight({4}, "b")}, {{"pads", Ints{1, 1, 1, 1}}});
  VarPtr p = b.Call("max_pool", {c}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"ceil_mode", true}});
  VarPtr r = b.Call("reshape", {p}, {{"shape", Ints{-1, 64}}});
  VarPtr t = b.Call("transpose", {r}, {{"perm", Ints{1, 0}}});
  VarPtr m = b.Call("matmul", {r, t});
  VarPtr s =
      b.Call("slice", {p},
             {{"begins", Ints{0, 1, 3, 0}}, {"ends", Ints{INT64_MAX, -1, INT64_MIN, 4}}, {"steps", Ints{1, 1, -1, 2}}});
  VarPtr parts = b.Call("split", {r}, {{"axis", int64_t{1}}, {"sizes", Ints{16, 48}}});
  VarPtr g = b.Call("gather", {b.GetItem(parts, 1), IntLiteral({2}, {0, -1})}, {{"axis", int64_t{1}}});
  VarPtr pad = b.Call("pad", {g}, {{"pads", Ints{0, 1, 0, 1}}, {"mode", std::string("reflect")}});
  VarPtr k = b.Call("topk", {pad}, {{"k", int64_t{2}}});
  VarPtr z = b.Call("concat", {b.GetItem(k, 0), g}, {{"axis", int64_t{-1}}});
  VarPtr out = b.Call("layer_norm", {z, FloatLiteral({4}, {1, 1, 1, 1}), FloatLiteral({1}, {0})});
  VarPtr cond = b.Param("cond", TensorType{DType::kBool, {}});
  Binding branch;
  branch.kind = Binding::Kind::kIf;
  branch.args = {cond};
  branch.blocks.resize(2);
  branch.blocks[0].results = {out};
  branch.blocks[1].results = {out};
  branch.var = MakeVar("branch", out->type);
  b.function.body.bindings.push_back(branch);
  b.Return({branch.var, m, s});
  b.function.attrs.Set("required_extents", std::vector<std::string>{AddDims(batch, -1)->ToString(), "8*(3/2)"});
  return b.Module();
}

}  // namespace inlay::ir::testing

#endif  // INLAY_CORE_IR_FUZZ_UTIL_H_
