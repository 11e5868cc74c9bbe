// Random bytes and mutated modules through FromProto: an error or a module that verifies, never a crash. Seeded,
// bounded.
#include "core/ir/fuzz_util.h"
#include "core/ir/op_registry.h"
#include "core/ir/printer.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/ir/testing.h"
#include "core/ir/verifier.h"

namespace inlay::ir {
namespace {

using testing::Mutate;
using testing::Number;
using testing::Random;
using testing::Seed;

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

TEST(FuzzTest, MutatedModules) {
  const proto::IRModule seed = ToProto(Seed(Dim::Symbol("batch")));
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
  const std::string seed = ToProto(Seed(Dim::Symbol("batch"))).SerializeAsString();
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
