// Random bytes and mutated modules through FromProto: an error or a module that verifies, never a crash. Seeded,
// bounded.
#include <random>

#include "core/ir/op_registry.h"
#include "core/ir/printer.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/ir/testing.h"
#include "core/ir/verifier.h"
#include "google/protobuf/message.h"

namespace inlay::ir {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::mt19937_64;

// What comes out must hold together: later stages CHECK on it.
void Try(const proto::IRModule& proto, int* accepted) {
  absl::StatusOr<IRModule> module = FromProto(proto);
  if (!module.ok()) {
    // UNIMPLEMENTED: what the config asks for is not there yet.
    ASSERT_TRUE(module.status().code() == absl::StatusCode::kInvalidArgument ||
                module.status().code() == absl::StatusCode::kUnimplemented)
        << module.status();
    ASSERT_FALSE(module.status().message().empty());
    return;
  }
  ++*accepted;
  absl::Status verified = Verify(*module);
  ASSERT_TRUE(verified.ok()) << verified << "\n" << Print(*module);
  absl::StatusOr<IRModule> again = FromProto(ToProto(*module));
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << Print(*module);
  ASSERT_EQ(StructuralHash(*again), StructuralHash(*module));
}

int64_t Number(Random& random) {
  static const int64_t kInteresting[] = {0,       1,         2,         -1,        -2,           3, 7, 64,
                                         1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX - 1};
  return kInteresting[random() % (sizeof(kInteresting) / sizeof(kInteresting[0]))];
}

// Changes one field somewhere in the message.
void Mutate(Message* message, Random& random) {
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
IRModule Seed() {
  using namespace testing;  // NOLINT
  using Ints = std::vector<int64_t>;
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({Dim::Symbol("batch"), 3, 8, 8}));
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
  return b.Module();
}

TEST(FuzzTest, MutatedModules) {
  const proto::IRModule seed = ToProto(Seed());
  ASSERT_TRUE(FromProto(seed).ok()) << FromProto(seed).status();
  Random random(20261121);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    proto::IRModule mutated = seed;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) Mutate(&mutated, random);
    Try(mutated, &accepted);
    if (HasFatalFailure()) FAIL() << "iteration " << i << "\n" << mutated.DebugString();
  }
  // Neither everything nor nothing gets through, so both sides were exercised.
  EXPECT_GT(accepted, 500);
  EXPECT_LT(accepted, 19000);
}

TEST(FuzzTest, MutatedBytes) {
  const std::string seed = ToProto(Seed()).SerializeAsString();
  Random random(3);
  int accepted = 0, parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = seed;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    proto::IRModule module;
    if (!module.ParseFromString(bytes)) continue;
    ++parsed;
    Try(module, &accepted);
    if (HasFatalFailure()) FAIL() << "iteration " << i;
  }
  EXPECT_GT(parsed, 1000);
}

TEST(FuzzTest, RandomBytes) {
  Random random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    proto::IRModule module;
    if (module.ParseFromString(bytes)) Try(module, &accepted);
  }
  EXPECT_EQ(accepted, 0);
}

// Any operator with any attributes and arguments.
TEST(FuzzTest, InferenceOfRandomCalls) {
  Random random(11);
  const std::vector<std::string> names = OpRegistry::Global().Names();
  int accepted = 0;
  for (int i = 0; i < 200000; ++i) {
    const OpSchema& schema = *OpRegistry::Global().Find(names[random() % names.size()]);
    std::vector<Operand> args;
    const int n = schema.min_args + static_cast<int>(random() % 2);
    const DType dtype = random() % 3 == 0 ? static_cast<DType>(1 + random() % 10) : DType::kF32;
    for (int a = 0; a < n; ++a) {
      std::vector<Dim> dims;
      for (uint64_t rank = random() % 6; rank > 0; --rank) {
        const int64_t extent = random() % 4 == 0 ? Number(random) : static_cast<int64_t>(1 + random() % 3);
        dims.push_back(random() % 8 == 0 ? Dim::Symbol("s") : Dim(extent < 0 ? 5 : extent));
      }
      TensorType type{random() % 6 == 0 ? DType::kI64 : dtype, dims};
      if (CheckTensorType(type).ok()) args.push_back(MakeVar("x", type));
    }
    Attrs attrs;
    for (const AttrSpec& spec : schema.attrs) {
      if (!spec.required && random() % 2 == 0) continue;
      switch (spec.kind) {
        case AttrKind::kInt:
          attrs.Set(spec.name, Number(random));
          break;
        case AttrKind::kFloat:
        case AttrKind::kNumber:
          attrs.Set(spec.name, static_cast<double>(Number(random)));
          break;
        case AttrKind::kString:
          attrs.Set(spec.name, spec.choices[random() % spec.choices.size()]);
          break;
        case AttrKind::kBool:
          attrs.Set(spec.name, random() % 2 == 0);
          break;
        case AttrKind::kDType:
          attrs.Set(spec.name, static_cast<DType>(1 + random() % 10));
          break;
        case AttrKind::kInts:
        case AttrKind::kFloats: {
          std::vector<int64_t> values(random() % 7);
          for (int64_t& v : values) v = random() % 2 == 0 ? Number(random) : static_cast<int64_t>(random() % 3);
          attrs.Set(spec.name, values);
          break;
        }
      }
    }
    absl::StatusOr<Type> type = OpRegistry::Global().Infer(schema.name, args, &attrs);
    if (!type.ok()) continue;
    ++accepted;
    // Canonical attributes are a fixed point.
    Attrs again = attrs;
    absl::StatusOr<Type> same = OpRegistry::Global().Infer(schema.name, args, &again);
    ASSERT_TRUE(same.ok()) << schema.name << ": " << same.status();
    ASSERT_EQ(*same, *type) << schema.name;
    ASSERT_TRUE(again == attrs) << schema.name;
  }
  EXPECT_GT(accepted, 10000);
}

}  // namespace
}  // namespace inlay::ir
