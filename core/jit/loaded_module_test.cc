#include "core/jit/loaded_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "core/artifact/planner.h"
#include "core/artifact/testing/test_library.h"
#include "core/runtime/symbol_registry.h"

extern "C" float inlay_testrt_triple(float x) { return 3 * x; }
INLAY_REGISTER_RUNTIME_SYMBOLS(testrt, {{"inlay_testrt_triple", reinterpret_cast<void*>(&inlay_testrt_triple)}});

namespace inlay::jit {
namespace {

using ::testing::HasSubstr;
using namespace artifact::testing;  // NOLINT

absl::StatusOr<std::unique_ptr<LoadedModule>> Load(TestModel& model, int threads = 1) {
  auto built = artifact::BuildPlan(model.builder.module(), model.manifests());
  if (!built.ok()) return built.status();
  std::vector<proto::ParamRef> params;
  for (const auto& p : built->params) {
    params.emplace_back();
    params.back().set_digest(std::string(p->digest.bytes()));
  }
  auto get = [&](const Digest& digest) -> absl::StatusOr<ParamBytes> {
    auto bytes = std::make_shared<std::string>(model.weight_bytes());
    if (digest != Digest::Of(*bytes)) return absl::NotFoundError("no such blob");
    return ParamBytes{*bytes, bytes};
  };
  return LoadedModule::Load(built->plan.ToJson(), model.library_pointers(), params, get, {threads});
}

struct Io {
  std::vector<float> x = std::vector<float>(kSize), y = x, x_again = x;
  absl::Status Run(const LoadedModule& module) {
    const void* in[] = {x.data()};
    void* out[] = {y.data(), x_again.data()};
    return module.Run(in, out);
  }
};

TEST(LoadedModule, RunsRealObjects) {
  TestModel model;
  for (int threads : {1, 2}) {
    auto module = Load(model, threads);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ((*module)->inputs()[0].name, "x");
    EXPECT_EQ((*module)->outputs()[1].name, "x_again");
    EXPECT_GE((*module)->memory_bytes(), 3 * 4000);
    Io io;
    for (int i = 0; i < kSize; ++i) io.x[i] = static_cast<float>(i);
    ASSERT_TRUE(io.Run(**module).ok());
    EXPECT_EQ(io.y, model.Expected(io.x));
    EXPECT_EQ(io.x_again, io.x);
  }
}

TEST(LoadedModule, ErrorsNameThePartition) {
  TestModel model(/*with_fail=*/true);
  auto module = Load(model);
  ASSERT_TRUE(module.ok()) << module.status();
  Io io;
  EXPECT_TRUE(io.Run(**module).ok());
  io.x[1] = 1000;
  const absl::Status s = io.Run(**module);
  EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(s.message(), "partition 'checker' (t_fail_run): the second element is too big (code 3)");
  io.x[1] = 1;
  EXPECT_TRUE(io.Run(**module).ok());
  EXPECT_EQ((*module)->Run({}, {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(LoadedModule, ThreadsAtOnce) {
  TestModel model;
  auto module = Load(model, 2);
  ASSERT_TRUE(module.ok());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Io io;
      io.x.assign(kSize, static_cast<float>(t));
      const std::vector<float> expected = model.Expected(io.x);
      for (int i = 0; i < 100; ++i) wrong += !io.Run(**module).ok() || io.y != expected;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LoadedModule, LoadedAndUnloadedByThreadsAtOnce) {
  TestModel model;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        auto module = Load(model);
        Io io;
        wrong += !module.ok() || !io.Run(**module).ok() || io.y != model.Expected(io.x);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LoadedModule, BackendRuntimesComeFromTheRegistry) {
  TestModel model;
  const std::string source = R"(
    float inlay_testrt_triple(float);
    int32_t t_scale_init(const InlayCallContext* c, void* const* a, void** s) { return 0; }
    void t_scale_destroy(void* s) {}
    int32_t t_scale_run(const InlayCallContext* c, void* const* a) {
      for (int i = 0; i < 1000; ++i) ((float*)a[2])[i] = inlay_testrt_triple(((float*)a[0])[i]);
      return 0;
    })";
  model.libraries[1] = MakeLibrary("#include \"core/runtime/kernel_abi.h\"\n" + source, {ScaleSignature()});
  EXPECT_THAT(std::string(Load(model).status().message()), HasSubstr("undefined symbol inlay_testrt_triple"));
  model.libraries[1].mutable_manifest()->add_runtime_components("testrt");
  auto module = Load(model);
  ASSERT_TRUE(module.ok()) << module.status();
  Io io;
  io.x.assign(kSize, 1);
  ASSERT_TRUE(io.Run(**module).ok());
  EXPECT_EQ(io.y[1], 3 * (1 + 2 * model.w[1]));
  // Declared, but not in this process.
  model.libraries[1] = MakeLibrary("#include \"core/runtime/kernel_abi.h\"\nvoid inlay_testrt_nothing(void);" +
                                       std::string("void g(void) { inlay_testrt_nothing(); }") + ScaleSource(),
                                   {ScaleSignature()});
  model.libraries[1].mutable_manifest()->add_runtime_components("testrt");
  EXPECT_THAT(std::string(Load(model).status().message()), HasSubstr("this daemon has no inlay_testrt_nothing"));
}

TEST(LoadedModule, RefusesWhatDoesNotFit) {
  {
    TestModel model;
    model.libraries[0].mutable_manifest()->set_target_features("+sse2,+xop,+amx-fp16");
    EXPECT_THAT(std::string(Load(model).status().message()), HasSubstr("function t_add of test needs"));
  }
  {
    TestModel model;
    auto* required = model.libraries[0].mutable_manifest()->add_required_libraries();
    required->set_soname("libno_such.so.9");
    required->set_package("no-such==9 (PyPI)");
    const std::string message(Load(model).status().message());
    EXPECT_THAT(message, HasSubstr("function t_add of test needs libno_such.so.9 (for test), which can't be loaded"));
    EXPECT_THAT(message, HasSubstr("it comes with no-such==9 (PyPI)"));
  }
  {
    TestModel model;
    model.libraries[0].mutable_objects(0)->mutable_data()->resize(500);
    EXPECT_EQ(Load(model).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  {
    TestModel model;
    model.w.push_back(1);  // another blob than the module names
    EXPECT_EQ(Load(model).status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(Load(model).status().message()), HasSubstr("param 'layer.weight'"));
  }
  EXPECT_EQ(LoadedModule::Load("{}", {}, {}, nullptr, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t n = 0;
  for (std::string line; std::getline(maps, line);) ++n;
  return n;
}

TEST(LoadedModule, LoadAndUnloadLeaksNothing) {
  TestModel model;
  auto round = [&] {
    auto module = Load(model);
    ASSERT_TRUE(module.ok());
    Io io;
    ASSERT_TRUE(io.Run(**module).ok());
  };
  for (int i = 0; i < 30; ++i) round();
  const int64_t before = ResidentBytes(), mappings = Mappings();
  for (int i = 0; i < 200; ++i) round();
  EXPECT_LT(ResidentBytes() - before, 4 << 20);
  EXPECT_LT(Mappings() - mappings, 20);
}

}  // namespace
}  // namespace inlay::jit
