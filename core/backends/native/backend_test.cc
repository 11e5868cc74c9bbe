// What the daemon's half of the native backend accepts.
#include "core/backend/backend.h"

#include <gtest/gtest.h>

#include "core/backends/native/cost.h"
#include "core/backends/native/native_backend.h"
#include "core/ir/ir_module.h"

namespace inlay::native {
namespace {

absl::Status Check(const std::string& codegen_target) {
  return CheckNativeTarget(*target::Target::Parse("llvm -mcpu=x86-64-v3")->Completed(),
                           *target::Target::Parse(codegen_target));
}

TEST(NativeBackendTest, CodegenTarget) {
  EXPECT_TRUE(Check("native").ok());
  EXPECT_TRUE(Check("native -winograd=0").ok());
  EXPECT_TRUE(Check("native -winograd=1").ok());
  absl::Status status = Check("native -winograd=fast");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the codegen target native: winograd=fast must be 0 or 1");
  status = Check("native -tiles=4");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the codegen target native has no attribute 'tiles'; it has winograd");
}

double Micros(ir::Function function, const std::string& target) {
  function.attrs.Set(backend::kConstantParams, std::vector<int64_t>{1});
  return EstimateMicros(function, *target::Target::Parse(target)->Completed());
}

TEST(NativeBackendTest, ATableIsNotReadToTheEnd) {
  ir::Function function;
  ir::Builder b(&function);
  auto which = b.Param("which", ir::MakeTensorType(ir::DType::kI64, {4}));
  auto table = b.Param("table", ir::MakeTensorType(ir::DType::kF32, {1 << 20, 64}));
  auto y = b.Call("gather", {table, which}, {{"axis", int64_t{0}}});
  ASSERT_TRUE(y.ok()) << y.status();
  b.Return({*y});
  EXPECT_LT(Micros(function, "llvm -mcpu=x86-64-v3"), 2);
}

TEST(NativeBackendTest, WindowsShareTaps) {
  auto micros = [](int64_t side) {
    ir::Function function;
    ir::Builder b(&function);
    auto x = b.Param("x", ir::MakeTensorType(ir::DType::kF32, {1, 512, 20, 20}));
    const std::vector<int64_t> ones = {1, 1}, pads(4, side / 2);
    auto y =
        b.Call("max_pool", {x},
               {{"kernel", std::vector<int64_t>{side, side}}, {"strides", ones}, {"dilations", ones}, {"pads", pads}});
    EXPECT_TRUE(y.ok()) << y.status();
    b.Return({*y});
    return Micros(function, "llvm -mcpu=x86-64-v3");
  };
  EXPECT_LT(micros(9), 3 * micros(3)) << "not nine times";
}

TEST(NativeBackendTest, BytesAreMultipliedFasterWhereTheProcessorCan) {
  ir::Function function;
  ir::Builder b(&function);
  auto x = b.Param("x", ir::MakeTensorType(ir::DType::kU8, {128, 768}));
  auto w = b.Param("w", ir::MakeTensorType(ir::DType::kI8, {768, 768}));
  auto y = b.Call("matmul_integer", {x, w});
  ASSERT_TRUE(y.ok()) << y.status();
  b.Return({*y});
  const double plain = Micros(function, "llvm -mcpu=skylake-avx512");
  const double dots = Micros(function, "llvm -mcpu=cascadelake");
  EXPECT_LT(dots, plain / 2);
  EXPECT_LT(Micros(function, "llvm -mcpu=sapphirerapids"), dots);
}

}  // namespace
}  // namespace inlay::native
