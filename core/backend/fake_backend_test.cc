#include "core/backend/fake_backend.h"

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace inlay::backend {
namespace {

ir::IRModule OneReshape() {
  ir::IRModule module;
  ir::Function& function = module.functions["inlay_f"];
  ir::Builder builder(&function);
  auto x = builder.Param("x", ir::MakeTensorType(ir::DType::kF32, {2, 3}));
  auto y = builder.Call("reshape", {x}, {{"shape", std::vector<int64_t>{6}}});
  builder.Return({*y});
  function.attrs.Set(kConstantParams, std::vector<int64_t>{});
  return module;
}

absl::StatusOr<proto::StaticLibrary> Compile(const std::string& codegen_target) {
  ir::IRModule module = OneReshape();
  CodegenRequest request{module, *target::Target::Parse("llvm")->Completed(), *target::Target::Parse(codegen_target),
                         ::testing::TempDir()};
  return CodegenRegistry::Global().Find("fake")->Codegen(request);
}

TEST(FakeBackend, IsRegisteredAndHidden) {
  const Backend* fake = BackendRegistry::Global().Find("fake");
  ASSERT_NE(fake, nullptr);
  EXPECT_TRUE(fake->is_hidden({}));
  EXPECT_EQ(BackendRegistry::Global().Find("nothing"), nullptr);
}

TEST(FakeBackend, CompilesACopy) {
  auto library = Compile("fake");
  ASSERT_TRUE(library.ok()) << library.status();
  ASSERT_EQ(library->manifest().functions_size(), 1);
  EXPECT_EQ(library->manifest().functions(0).symbol(), "inlay_f");
  EXPECT_NE(library->objects(0).data().find("inlay_f_run"), std::string::npos);
}

TEST(FakeBackend, FailsOnRequest) {
  auto library = Compile("fake -behaviour=fail");
  EXPECT_EQ(library.status().code(), absl::StatusCode::kInternal);
}

TEST(FakeBackend, MisbehavesOnce) {
  const std::string path = ::testing::TempDir() + "/once";
  std::remove(path.c_str());
  EXPECT_FALSE(Compile("fake -behaviour=fail -once=" + path).ok());
  EXPECT_TRUE(Compile("fake -behaviour=fail -once=" + path).ok());
}

TEST(FakeBackendDeathTest, Crashes) { EXPECT_DEATH((void)Compile("fake -behaviour=crash"), ""); }

TEST(FakeBackend, PadsTheObject) { EXPECT_GT(Compile("fake -size=100000")->objects(0).data().size(), 100000u); }

}  // namespace
}  // namespace inlay::backend
