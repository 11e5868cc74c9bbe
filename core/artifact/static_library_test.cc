#include "core/artifact/static_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/artifact/testing/test_library.h"

namespace inlay::artifact {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: inlay::artifact::testing

std::string Check(const proto::StaticLibrary& library) {
  const absl::Status s = CheckStaticLibrary(library);
  EXPECT_TRUE(s.ok() || s.code() == absl::StatusCode::kFailedPrecondition) << s;
  return std::string(s.message());
}

TEST(StaticLibrary, GoodOnesPass) {
  EXPECT_EQ(Check(MakeLibrary(AddSource(), {AddSignature()})), "");
  EXPECT_EQ(Check(MakeLibrary(ScaleSource(), {ScaleSignature()})), "");
  EXPECT_EQ(Check(MakeLibrary(AddSource() + ScaleSource(), {AddSignature(), ScaleSignature()}, {"-g"})), "");
}

TEST(StaticLibrary, ManifestMustBeComplete) {
  const proto::StaticLibrary good = MakeLibrary(AddSource(), {AddSignature()});
  auto with = [&](auto change) {
    proto::StaticLibrary library = good;
    change(*library.mutable_manifest());
    return Check(library);
  };
  EXPECT_THAT(with([](auto& m) { m.set_kernel_abi_version(99); }), HasSubstr("kernel ABI 99"));
  EXPECT_THAT(with([](auto& m) { m.set_format_version(0); }), HasSubstr("format 0"));
  EXPECT_THAT(with([](auto& m) { m.clear_target_triple(); }), HasSubstr("lacks backend, version or target"));
  EXPECT_THAT(with([](auto& m) { m.clear_functions(); }), HasSubstr("lists no function"));
  EXPECT_THAT(with([](auto& m) { *m.add_functions() = m.functions(0); }), HasSubstr("t_add is implemented twice"));
  EXPECT_THAT(with([](auto& m) { m.mutable_functions(0)->clear_outputs(); }), HasSubstr("function t_add"));
  EXPECT_THAT(with([](auto& m) { m.add_runtime_components("../evil"); }), HasSubstr("'../evil' is no name"));
  EXPECT_THAT(with([](auto& m) { m.add_required_libraries()->set_soname("a b"); }), HasSubstr("'a b' is no name"));
  EXPECT_EQ(Check(proto::StaticLibrary()).empty(), false);
}

TEST(StaticLibrary, SymbolsMustFitTheManifest) {
  EXPECT_THAT(Check(MakeLibrary(AddSource("other"), {AddSignature()})),
              HasSubstr("no object defines t_add_run, which the manifest lists"));
  EXPECT_THAT(Check(MakeLibrary(AddSource() + AddSource("t_more"), {AddSignature()})),
              HasSubstr("the manifest does not list function t_more"));
  Signature stateful = AddSignature().State();
  EXPECT_THAT(Check(MakeLibrary(AddSource(), {stateful})), HasSubstr("no object defines t_add_destroy"));
}

TEST(StaticLibrary, DoubleDefinitions) {
  proto::StaticLibrary twice = MakeLibrary(AddSource(), {AddSignature()});
  *twice.add_objects() = twice.objects(0);
  EXPECT_THAT(Check(twice), HasSubstr("symbol t_add_run is defined twice"));
  const proto::StaticLibrary a = MakeLibrary(AddSource("f") + "int helper(void) { return 1; }", {AddSignature("f")});
  const proto::StaticLibrary b = MakeLibrary(AddSource("g") + "int helper(void) { return 2; }", {AddSignature("g")});
  EXPECT_THAT(std::string(CheckStaticLibraries({&a, &b}).message()), HasSubstr("symbol helper is defined twice"));
  EXPECT_THAT(std::string(CheckStaticLibraries({&a, &a}).message()), HasSubstr("defined twice"));
}

TEST(StaticLibrary, RefusesWhatCannotBeLoaded) {
  auto with = [](const std::string& code, std::vector<std::string> flags = {}) {
    return Check(MakeLibrary(AddSource() + code, {AddSignature()}, std::move(flags)));
  };
  EXPECT_THAT(with("__thread int counter; int* where(void) { return &counter; }"), HasSubstr("thread-local storage"));
  EXPECT_THAT(with("extern __thread int errno_like; int* where(void) { return &errno_like; }"),
              HasSubstr("thread-local storage"));
  EXPECT_THAT(with("__attribute__((constructor)) void start(void) {}"), HasSubstr("static constructors"));
  EXPECT_THAT(
      with("static int table[4]; int* where(int i) { return &table[i]; }", {"-fno-pic", "-fno-pie", "-mcmodel=small"}),
      HasSubstr("not position independent"));
  EXPECT_THAT(with("static int one(void) { return 1; } static void* pick(void) { return one; }"
                   "int which(void) __attribute__((ifunc(\"pick\")));"),
              HasSubstr("indirect function which"));
}

TEST(StaticLibrary, UndefinedSymbols) {
  auto with = [](const std::string& code) { return MakeLibrary(AddSource() + code, {AddSignature()}); };
  EXPECT_THAT(Check(with("void system(const char*); void f(void) { system(\"\"); }")),
              HasSubstr("undefined symbol system"));
  EXPECT_EQ(Check(with("float tanhf(float); float f(float x) { return tanhf(x); }")), "");
  proto::StaticLibrary shim = with("void inlay_blas_gemm(void); void f(void) { inlay_blas_gemm(); }");
  EXPECT_THAT(Check(shim), HasSubstr("undefined symbol inlay_blas_gemm"));
  shim.mutable_manifest()->add_runtime_components("blas");
  EXPECT_EQ(Check(shim), "");
}

TEST(StaticLibrary, OtherArchitecture) {
  proto::StaticLibrary library = MakeLibrary(AddSource(), {AddSignature()});
  library.mutable_manifest()->set_target_triple("aarch64-unknown-linux-gnu");
  EXPECT_THAT(Check(library), HasSubstr("another architecture (ELF machine 62) than aarch64"));
  library.mutable_manifest()->set_target_triple("z80");
  EXPECT_THAT(Check(library), HasSubstr("unknown architecture 'z80'"));
  library = MakeLibrary(AddSource(), {AddSignature()});
  library.mutable_objects(0)->set_data(CompileC(AddSource(), {"-r", "-nostdlib"}).substr(0, 3));
  EXPECT_THAT(Check(library), HasSubstr("not an ELF file"));
}

TEST(StaticLibrary, TruncatedObjectsAreErrors) {
  proto::StaticLibrary library = MakeLibrary(AddSource() + ScaleSource(), {AddSignature(), ScaleSignature()});
  const std::string whole = library.objects(0).data();
  for (size_t n = 0; n < whole.size(); n += n < 256 ? 1 : 37) {
    library.mutable_objects(0)->set_data(whole.substr(0, n));
    EXPECT_NE(Check(library), "") << n << " bytes of " << whole.size();
  }
}

TEST(StaticLibrary, DamagedObjectsNeverCrash) {
  proto::StaticLibrary library = MakeLibrary(AddSource() + ScaleSource(), {AddSignature(), ScaleSignature()});
  const std::string whole = library.objects(0).data();
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string data = whole;
    for (int i = 0; i < 4; ++i) data[random() % data.size()] = static_cast<char>(random());
    // The headers are where it hurts.
    if (round % 2 == 0) data[random() % 64] = static_cast<char>(random());
    if (round % 3 == 0) data[data.size() - 1 - random() % 1000] = static_cast<char>(random());
    library.mutable_objects(0)->set_data(data);
    refused += !Check(library).empty();
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace inlay::artifact
