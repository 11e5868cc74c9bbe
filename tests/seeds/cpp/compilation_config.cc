// The second seed document, the CompilationConfig RFC, as one writes it in C++:
// tests/seeds/test_001_compilation_config.py's statements. What the compiler itself has of it in C++:
// //core/target:compilation_config_test, //core/ir:proto_conversion_test.
#include <cstdlib>
#include <map>
#include <set>

#include "support.h"

namespace seeds {
namespace {

using inlay::CompilationConfig;
using inlay::Executor;
using inlay::IRModule;
using inlay::Runtime;
using inlay::Target;
using testing::HasSubstr;

class Config : public Seeds {};

std::shared_ptr<inlay::Client> Connect() { return Get(inlay::Client::Connect()); }

// config = CompilationConfig(target_host=target, targets=[target], executor=Executor("aot", {...}), runtime=...)
TEST_F(Config, UserApi) {
  const Target target("c");
  CompilationConfig config;
  config.target_host = target;
  config.targets = {target};
  config.executor = Executor("aot", {{"interface-api", "c"}, {"unpacked-api", true}});
  config.runtime = Runtime("crt", {{"system-lib", true}});
  EXPECT_TRUE(config.Check().ok());
  EXPECT_EQ(config.executor.options.at("interface-api"), "c");
  EXPECT_EQ(Get(CompilationConfig::FromBytes(Get(config.ToBytes()))), config);
}

// void Build(IRModule mod, const CompilationConfig& config, const String mod_name)
TEST_F(Config, BuildTakesAConfigurationAndAName) {
  CompilationConfig config = inlay::config::Cpu("x86-64-v3");
  config.num_threads = 1;
  config.search = "none";
  ExpectRuns(Get(Get(inlay::Build(Model(), config)).Jit()));
  // The name is in what C sees of a model for a micro target.
  inlay::FunctionBuilder b;
  const IRModule small = Get(b.Finish({b.Op("relu", {b.Param("x", "f32", {1, 8})})}, {"y"}));
  inlay::BuildOptions options;
  options.mod_name = "my_model";
  const inlay::Executable ex = Get(inlay::Build(small, Get(inlay::config::Micro("nrf52840")), options));
  ASSERT_TRUE(ex.ExportLibrary(File("model.tar")).ok());
  EXPECT_THAT(Bytes(File("model.tar")), HasSubstr("my_model"));
  EXPECT_THAT(Text(ex.Jit()), HasSubstr("the executable is for runtime crt"));
}

// if isinstance(config, Target): config = CompilationConfig.from_target(config); a text stands for its Target.
TEST_F(Config, BuildTakesATarget) {
  const auto by_text = Get(inlay::Build(Model(), "llvm -mcpu=x86-64-v3"));
  const auto by_target = Get(inlay::Build(Model(), Target("llvm -mcpu=x86-64-v3")));
  const auto by_config = Get(inlay::Build(Model(), CompilationConfig::FromTarget("llvm -mcpu=x86-64-v3")));
  EXPECT_EQ(by_text.digest(), by_config.digest());
  EXPECT_EQ(by_target.digest(), by_config.digest());
  EXPECT_EQ(by_text.config().targets[0].attr("mcpu"), "x86-64-v3");
}

// CompilationConfig.from_target(config, target_host=target_host)
TEST_F(Config, FromTargetWithAHost) {
  const auto config = CompilationConfig::FromTarget("llvm -mcpu=x86-64-v3", Target("llvm -mcpu=x86-64-v2"));
  const CompilationConfig completed = Get(Connect()->CheckConfig(config));
  EXPECT_EQ(completed.target_host->attr("mcpu"), "x86-64-v2");
  EXPECT_EQ(completed.targets[0].attr("mcpu"), "x86-64-v3");
}

// Set up in one place: host, features and defaults are there once it has gone through.
TEST_F(Config, TheServerCompletesTheConfiguration) {
  const CompilationConfig completed = Get(Connect()->CheckConfig({}));
  EXPECT_EQ(completed.target_host, completed.targets[0]);
  EXPECT_EQ(completed.targets[0].attr("mtriple"), "x86_64-unknown-linux-gnu");
  EXPECT_THAT(completed.targets[0].attr("mattr"), HasSubstr("+avx2"));
  EXPECT_EQ(completed.executor, Executor("graph"));
  EXPECT_EQ(completed.runtime, Runtime("cpp"));
}

// executor=Executor("aot", {"interface-api": "c"}): C functions in the library, and the same header as Python writes.
TEST_F(Config, TheCInterfaceHasAHeader) {
  CompilationConfig config = inlay::config::Cpu();
  config.executor = Executor("aot", {{"interface-api", "c"}});
  ASSERT_TRUE(Get(inlay::Build(Model(), config)).ExportLibrary(File("model.so")).ok());
  EXPECT_EQ(Bytes(File("model.h")), Bytes(Data() / "model.h"));
  std::ofstream(File("main.c")) << "#include \"model.h\"\nint main(void) { return inlay_model_load(0); }\n";
  const std::string prefix = File(""), ffi = std::getenv("INLAY_TEST_TVM_FFI") + std::string("/lib");
  const std::string command = "cc -Wl,--no-as-needed " + prefix + "main.c " + prefix + "model.so -L" + ffi +
                              " -ltvm_ffi -Wl,-rpath," + ffi + ":" + prefix + " -o " + prefix + "main && " + prefix +
                              "main";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

// ir_mod = ir_mod.with_configuration(config); ir_mod->GetConfig()->GetExecutor(), never absent.
TEST_F(Config, WithConfiguration) {
  const IRModule mod = Model();
  EXPECT_FALSE(mod.has_config());
  EXPECT_EQ(mod.config(), CompilationConfig());
  EXPECT_EQ(mod.config().executor.kind, "graph");
  CompilationConfig config = inlay::config::Cpu("x86-64-v3");
  config.num_threads = 3;
  const IRModule configured = Get(mod.WithConfiguration(config));
  EXPECT_EQ(configured.config(), config);
  EXPECT_FALSE(mod.has_config());  // a module is a value
  EXPECT_EQ(Get(inlay::Build(configured)).config().num_threads, 3);
  // It is saved with the module.
  ASSERT_TRUE(configured.Save(File("m.inlay")).ok());
  EXPECT_EQ(Get(inlay::LoadModule(File("m.inlay"))).config(), config);
}

// ir_mod->GetConfig()->ShouldLinkParams()
TEST_F(Config, ShouldLinkParams) {
  EXPECT_TRUE(CompilationConfig().ShouldLinkParams());
  CompilationConfig config = inlay::config::Cpu();
  config.link_params = false;
  const inlay::Executable ex = Get(inlay::Build(Model(), config));
  EXPECT_FALSE(ex.config().ShouldLinkParams());
  ASSERT_TRUE(ex.ExportLibrary(File("a.so")).ok());
  EXPECT_TRUE(fs::exists(File("a.so.safetensors")));
  ExpectRuns(Get(inlay::LoadLibrary(File("a.so"))));
  ExpectRuns(Get(ex.Jit()));
  inlay::ExportOptions inside;
  inside.link_params = true;
  ASSERT_TRUE(ex.ExportLibrary(File("b.so"), inside).ok());
  EXPECT_FALSE(fs::exists(File("b.so.safetensors")));
  fs::copy(File("a.so"), File("c.so"));
  EXPECT_THAT(Text(inlay::LoadLibrary(File("c.so"))), HasSubstr("c.so.safetensors"));
}

// WithAttr<String>(ir_mod, "woof", "woof")
TEST_F(Config, AttributesRemainBesideIt) {
  const IRModule mod = Model();
  const IRModule barking = mod.WithAttr("woof", "woof");
  EXPECT_EQ(std::get<std::string>(barking.attrs().at("woof").value), "woof");
  EXPECT_EQ(mod.attrs().count("woof"), 0u);
  EXPECT_EQ(barking.config(), mod.config());
}

// CheckAndUpdateHostConsistency, and other combinations: refused before a weight is uploaded, both fields named.
TEST_F(Config, FieldsThatDisagreeAreNamedBeforeAnyWork) {
  std::map<std::string, CompilationConfig> cases;
  cases["config.target_host and config.targets[0]"] = CompilationConfig::FromTarget("llvm", Target("c"));
  cases["config.executor.kind and config.runtime.kind disagree"].runtime = "crt";
  cases["config.targets[0] and config.runtime.kind disagree"].targets = {"c"};
  cases["config.executor.unpacked_api and config.runtime.kind"].executor = Executor("aot", {{"unpacked-api", true}});
  cases["config.targets[1] and config.targets[2]"].targets = {"llvm", "native -winograd=0", "native -winograd=0"};
  cases["config.targets[0]: 'native' is no device"].targets = {"native"};
  cases["there is no pass 'no_such_pass'"].disabled_passes = {"no_such_pass"};
  int seed = 0;
  for (const auto& [text, config] : cases) {
    inlay::FunctionBuilder b;
    const auto x = b.Param("x", "f32", {4, 64});
    const std::vector<float> values(64 * 64, 0.125f + static_cast<float>(++seed));
    const auto w = b.Weight(Get(inlay::MakeTensor<float>({64, 64}, values)));
    bool uploaded = false;
    inlay::BuildOptions options;
    options.progress = [&](const inlay::Progress& progress) { uploaded |= progress.phase == "upload"; };
    const absl::Status status = inlay::Build(Get(b.Finish({b.Op("matmul", {x, w})}, {"y"})), config, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(inlay::KindOf(status), inlay::ErrorKind::kCompile) << text;
    EXPECT_THAT(Text(status), HasSubstr(text));
    EXPECT_THAT(inlay::ServerText(status), HasSubstr(text));
    EXPECT_FALSE(uploaded) << text;
  }
}

// Text, JSON, object; Target.current()
TEST_F(Config, TargetsHaveThreeFormsAndAScope) {
  const Target target("llvm -mcpu=x86-64-v3 -num-cores=2");
  EXPECT_EQ(Target(target.ToString()), target);
  EXPECT_EQ(Target(target.ToJson()), target);
  const inlay::TargetScope outer("llvm -mcpu=x86-64-v2"), inner(target);
  EXPECT_EQ(Get(inlay::Build(Model())).config().targets[0], target);
}

// Without any: this machine, for a server on it.
TEST_F(Config, TheDefaultIsThisMachine) {
  const auto host = Get(Connect()->GetServerInfo()).host;
  EXPECT_EQ(Get(inlay::Build(Model())).config().targets[0].attr("mcpu"), host.attr("mcpu"));
}

// Several targets of one kind: each is a variant with attributes of its own.
TEST_F(Config, VariantsAndPinnedCovers) {
  CompilationConfig config = inlay::config::Cpu("x86-64-v3");
  config.targets.push_back("native -winograd=0");
  config.backends = {"native"};
  const inlay::Executable ex = Get(inlay::Build(Model(), config));
  for (const auto& part : ex.report().partitions) {
    if (part.backend == "native") {
      EXPECT_EQ(part.codegen_target, "native -winograd=0");
    }
  }
  config.pinned = ex.cover();
  EXPECT_EQ(Get(inlay::Build(Model(), config)).report().plan_source, "pinned");
}

// The functions of python/tvm/target/target.py return CompilationConfigs.
TEST_F(Config, Creators) {
  EXPECT_EQ(inlay::config::Cpu("znver4").targets[0], Target("llvm -mcpu=znver4"));
  const CompilationConfig micro = Get(inlay::config::Micro("mps2_an385"));
  EXPECT_EQ(micro.targets[0], Target("c -model=mps2_an385 -mcpu=cortex-m3"));
  EXPECT_EQ(micro.executor.kind, "aot");
  EXPECT_EQ(micro.runtime, Runtime("crt", {{"system-lib", true}}));
  EXPECT_EQ(Get(inlay::config::Micro("unknown", {}, Executor("aot", {{"interface-api", "c"}}))).runtime,
            Runtime("crt", {{"system-lib", false}}));
  EXPECT_EQ(Get(inlay::config::Micro("nrf52840", {{"num-cores", "1"}})).targets[0].attr("num-cores"), "1");
  EXPECT_THAT(Text(inlay::config::Micro("toaster")),
              HasSubstr("micro model 'toaster' is not known; there are unknown, host, mps2_an385"));
  EXPECT_EQ(inlay::config::Cuda("sm_80").targets[0], Target("cuda -arch=sm_80"));
  const CompilationConfig cross = inlay::config::Cross("riscv64-linux-gnu", "sifive-u74");
  EXPECT_EQ(cross.targets[0].attr("mtriple"), "riscv64-linux-gnu");
  EXPECT_EQ(cross.runtime.kind, "crt");
}

TEST_F(Config, WhatIsNotThereSaysSo) {
  const absl::Status status = inlay::Build(Model(), inlay::config::Cuda()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(inlay::KindOf(status), inlay::ErrorKind::kUnsupported);
  EXPECT_THAT(Text(status), HasSubstr("kind 'cuda' is not there yet"));
}

// Optimisation level, disabled passes, instruments, the module after each pass; scopes nest.
TEST_F(Config, PassContext) {
  std::vector<std::string> order;
  std::set<std::string> dumped;
  inlay::PassContext outer, inner;
  outer.disabled_passes = {"sink_reshapes"};
  outer.opt_level = 0;
  inner.opt_level = 3;
  inner.instruments.push_back([&](const inlay::PassInfo& info) {
    EXPECT_EQ(info.index, static_cast<int>(order.size()));
    order.push_back(info.name);
    if (info.ir.find("conv") != std::string::npos) dumped.insert(info.name);
  });
  {
    const inlay::PassScope a(outer), b(inner);
    const inlay::Executable ex = Get(inlay::Build(Model(), "llvm -mcpu=x86-64-v3"));
    EXPECT_EQ(ex.config().disabled_passes, std::vector<std::string>{"sink_reshapes"});
    EXPECT_EQ(ex.config().opt_level, 3);
  }
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order[0], "infer_types");
  EXPECT_EQ(std::count(order.begin(), order.end(), "sink_reshapes"), 0);
  EXPECT_GT(dumped.size(), 0u);
  EXPECT_TRUE(Get(inlay::Build(Model(), "llvm -mcpu=x86-64-v3")).config().disabled_passes.empty());
}

}  // namespace
}  // namespace seeds
