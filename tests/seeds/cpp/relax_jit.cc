// The first seed document, "Relax JIT Build UX", as one writes it in C++: tests/seeds/test_000_relax_jit.py's
// statements.
#include <cstdlib>

#include "support.h"

namespace seeds {
namespace {

using inlay::Fcompile;
using inlay::Function;
using inlay::FunctionModule;
using inlay::Module;
using inlay::SourceModule;
using testing::ContainsRegex;
using testing::HasSubstr;

class RelaxJit : public Seeds {};

constexpr char kTwice[] = R"(
#include <tvm/ffi/c_api.h>
int __tvm_ffi_twice(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  result->type_index = kTVMFFIInt;
  result->v_int64 = num_args == 1 ? 2 * args[0].v_int64 : -1;
  return 0;
}
)";
constexpr char kGreet[] = R"(
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
static tvm::ffi::String Greet(tvm::ffi::String name) { return tvm::ffi::String("hello ") + name; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(greet, Greet);
)";

Module Doubling(const std::string& name = "mine") {
  return FunctionModule({{"double", Function::FromTyped([](int64_t x) { return 2 * x; })}}, name);
}

// ex = build(mod, target); vm = VirtualMachine(ex.jit(), device)
TEST_F(RelaxJit, BuildAndDirectlyRun) {
  const inlay::Executable ex = Get(inlay::Build(Model(), "llvm -mcpu=native"));
  const auto vm = Get(inlay::VirtualMachine::Create(Get(ex.Jit()), "cpu"));
  ExpectRuns(vm.module());
  EXPECT_GT(ex.report().partitions.size(), 0u);
  EXPECT_GT(ex.report().server_ms, 0);
  EXPECT_THAT(ex.report().json, HasSubstr("\"partitions\""));
}

// vm = VirtualMachine(ex, device), "implicitly call ex.jit()"
TEST_F(RelaxJit, TheVirtualMachineCallsJitItself) {
  const auto vm = Get(inlay::VirtualMachine::Create(Build(), "cpu"));
  const auto inputs = Inputs(Get(vm.module().signature()));
  ExpectClose({vm["main"](inputs[0]).cast<inlay::Tensor>()});
}

// ex.export_library("exported.so"); loaded_mod = load_library("exported.so")
TEST_F(RelaxJit, ExportAndLoad) {
  ASSERT_TRUE(Build().ExportLibrary(File("exported.so")).ok());
  const Module loaded = Get(inlay::LoadLibrary(File("exported.so")));
  ExpectRuns(Get(inlay::VirtualMachine::Create(loaded, "cpu")).module());
  // By name too; and in a process without this client, tvm-ffi alone.
  const inlay::Signature signature = Get(loaded.signature());
  const auto named = Get(loaded.Run({{signature.inputs[0].name, Inputs(signature)[0]}}));
  ExpectClose({named.at(signature.outputs[0].name)});
  const auto plain = tvm::ffi::Module::LoadFromFile(File("exported.so"));
  ExpectClose({(*plain->GetFunction("main"))(Inputs(signature)[0]).cast<inlay::Tensor>()});
}

// Exported again to the same place, the new one is loaded.
TEST_F(RelaxJit, AReplacedLibraryIsLoadedAnew) {
  ASSERT_TRUE(Build().ExportLibrary(File("a.so")).ok());
  const Module first = Get(inlay::LoadLibrary(File("a.so")));
  inlay::ExportOptions options;
  options.addons = {Get(SourceModule(kTwice))};
  ASSERT_TRUE(Build().ExportLibrary(File("a.so"), options).ok());
  const Module second = Get(inlay::LoadLibrary(File("a.so")));
  EXPECT_EQ(second["twice"](4).cast<int>(), 8);
  EXPECT_EQ(first.GetFunction("twice").status().code(), absl::StatusCode::kNotFound);
  ExpectRuns(first);
  ExpectRuns(second);
}

// In the daemon: "local and remote".
TEST_F(RelaxJit, RunInTheDaemon) {
  const Module remote = Get(Build().RemoteJit());
  EXPECT_EQ(remote.kind(), "remote");
  EXPECT_EQ(remote.properties(), P::kRunnable);
  ExpectRuns(remote);
  ExpectRuns(Get(inlay::VirtualMachine::Create(remote)).module());
}

// llvm: {runnable, dso_exportable}; a module of functions: {runnable}; cuda file: {dso_exportable}; bytecode:
// {binary_exportable, runnable}. As a bit mask, with tvm-ffi's bits.
TEST_F(RelaxJit, ModulesHaveASubsetOfThreeProperties) {
  const inlay::Executable ex = Build();
  const Module root = ex.mod();
  EXPECT_EQ(root.kind(), "graph");
  EXPECT_EQ(root.properties(), P::kBinarySerializable | P::kRunnable);
  for (const Module& part : root.imported_modules()) {
    if (part.kind() != "llvm") continue;
    EXPECT_EQ(part.properties(), P::kRunnable | P::kCompilationExportable);
  }
  EXPECT_EQ(Doubling().properties(), P::kRunnable);
  EXPECT_EQ(Get(SourceModule("", "cuda")).properties(), P::kCompilationExportable);
  EXPECT_EQ(Get(SourceModule("", "c")).properties(), P::kCompilationExportable);
  EXPECT_EQ(inlay::ObjectModule("").properties(), P::kCompilationExportable);
  EXPECT_THAT(Text(SourceModule("", "rust")), HasSubstr("a source of kind 'rust'; there are c, cc, cuda"));
  const Module loaded = Get(ex.Jit());
  EXPECT_EQ(loaded.kind(), "library");
  EXPECT_EQ(loaded.properties(), P::kRunnable);
}

TEST_F(RelaxJit, PartsOfLibrariesAreStaticLibraries) {
  inlay::CompilationConfig config = inlay::config::Cpu();
  config.backends = {"onednn"};
  config.search = "none";
  const inlay::Executable ex = Get(inlay::Build(Model(), config));
  int others = 0;
  for (const Module& part : ex.mod().imported_modules()) {
    if (part.kind() != "static_library") continue;
    EXPECT_EQ(part.properties(), P::kCompilationExportable);
    ++others;
  }
  EXPECT_GT(others, 0);
  ExpectRuns(Get(ex.Jit()));
}

// binary_exportable: "when loaded back it will become runnable". The plan is in the library as bytes.
TEST_F(RelaxJit, BytesOfTheExecutorAreRunnableWhenLoadedBack) {
  ASSERT_TRUE(Build().ExportLibrary(File("a.so")).ok());
  EXPECT_THAT(Get(inlay::ReadManifest(File("a.so"))), HasSubstr("\"plan\":{"));
  ExpectRuns(Get(inlay::LoadLibrary(File("a.so"))));
}

TEST_F(RelaxJit, WhatIsLoadedBackIsNotExportableAgain) {
  inlay::Executable ex = Build();
  ASSERT_TRUE(ex.ExportLibrary(File("a.so")).ok());
  ex.ImportModule(Get(inlay::LoadLibrary(File("a.so"))));
  const absl::Status status = ex.ExportLibrary(File("b.so"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(inlay::KindOf(status), inlay::ErrorKind::kModule);
  EXPECT_THAT(Text(status), ContainsRegex("of kind 'library' can't be exported.*source or object.*Jit\\(\\)"));
  EXPECT_FALSE(fs::exists(File("b.so")));
}

// Exportable and not runnable: jit exports it and loads it back.
TEST_F(RelaxJit, DirectRunWithASourceModule) {
  const Module source = Get(SourceModule(kTwice, "c", "twice.c"));
  EXPECT_THAT(Text(inlay::VirtualMachine::Create(source)),
              ContainsRegex("'twice.c' of kind 'c' can't run as it is.*Jit\\(\\)"));
  inlay::Executable ex = Build();
  ex.ImportModule(source);
  const Module loaded = Get(ex.Jit());
  EXPECT_EQ(loaded["twice"](21).cast<int>(), 42);
  ExpectRuns(loaded);
}

// VirtualMachine(ex.jit("nvcc")): used where there is something to compile, and named where it is missing.
TEST_F(RelaxJit, JitNamesACompiler) {
  inlay::Executable ex = Build();
  ExpectRuns(Get(ex.Jit("nvcc")));  // nothing here wants a compiler
  ex.ImportModule(Get(SourceModule("__global__ void f() {}", "cuda", "kernel.cu")));
  EXPECT_THAT(Text(ex.Jit("no-nvcc")), ContainsRegex("'kernel.cu' of kind 'cuda' must be compiled.*no 'no-nvcc' here"));
}

TEST_F(RelaxJit, FcompileMayBeAFunction) {
  std::vector<std::vector<std::string>> calls;
  const std::string include = std::string(std::getenv("INLAY_TEST_TVM_FFI")) + "/include";
  inlay::ExportOptions options;
  options.options = {"-O1"};
  options.fcompile =
      Fcompile([&](const std::string& output, const std::string& source, const std::vector<std::string>& flags) {
        calls.push_back(flags);
        const std::string command = "cc -c -fPIC -I" + include + " " + flags[0] + " " + source + " -o " + output;
        return std::system(command.c_str()) == 0 ? absl::OkStatus() : absl::InternalError("cc failed");
      });
  inlay::Executable ex = Build();
  ex.ImportModule(Get(SourceModule(kTwice)));
  ASSERT_TRUE(ex.ExportLibrary(File("a.so"), options).ok());
  EXPECT_EQ(calls, (std::vector<std::vector<std::string>>{{"-O1"}}));
  EXPECT_EQ(Get(inlay::LoadLibrary(File("a.so")))["twice"](4).cast<int>(), 8);
}

TEST_F(RelaxJit, WhatTheCompilerSaysIsInTheError) {
  inlay::Executable ex = Build();
  ex.ImportModule(Get(SourceModule("int f( {", "c", "broken.c")));
  EXPECT_THAT(Text(ex.Jit()), HasSubstr("'broken.c' of kind 'c': cc failed:"));
  EXPECT_THAT(Text(ex.Jit()), HasSubstr("error"));
}

// jit: "load back and re-import the runnable modules"
TEST_F(RelaxJit, RunnableModulesAreImportedAgain) {
  inlay::Executable ex = Build();
  const Module mine = Doubling();
  ex.ImportModule(mine);
  const Module loaded = Get(ex.Jit());
  EXPECT_EQ(loaded["double"](4).cast<int>(), 8);
  ASSERT_EQ(loaded.imported_modules().size(), 1u);
  EXPECT_TRUE(loaded.imported_modules()[0].same_as(mine));
  ExpectRuns(loaded);
}

TEST_F(RelaxJit, ExportRequiresAllModulesToBeExportable) {
  inlay::Executable ex = Build();
  ex.ImportModule(Doubling());
  EXPECT_THAT(Text(ex.ExportLibrary(File("a.so"))),
              ContainsRegex("the module 'mine' of kind 'packed_function' can't be exported: it is runnable "
                            "only.*LoadLibrary; or use Jit\\(\\)"));
  EXPECT_FALSE(fs::exists(File("a.so")));
  EXPECT_THAT(Text(ex.RemoteJit()), HasSubstr("is yours, and a server runs no code of its clients: use Jit()"));
}

// Imports of imports are found too; a circle is refused; so is the run of what nobody has.
TEST_F(RelaxJit, ImportTrees) {
  Module outer = Get(SourceModule(kTwice));
  Module inner = FunctionModule({{"triple", Function::FromTyped([](int64_t x) { return 3 * x; })}});
  ASSERT_TRUE(outer.ImportModule(inner).ok());
  EXPECT_THAT(Text(inner.ImportModule(outer)), HasSubstr("imports it already"));
  inlay::Executable ex = Build();
  ex.ImportModule(outer);
  const Module loaded = Get(ex.Jit());
  EXPECT_EQ(loaded["twice"](1).cast<int>(), 2);
  EXPECT_EQ(loaded["triple"](1).cast<int>(), 3);
  EXPECT_EQ(loaded.GetFunction("nothing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(loaded.GetFunction("nothing")), HasSubstr("no function 'nothing'"));
  EXPECT_THROW(loaded["nothing"], tvm::ffi::Error);
  EXPECT_THAT(Text(ex.mod().GetFunction("twice")), ContainsRegex("'source.c' of kind 'c'.*can't run as it is"));
}

// export_library(addons=...): sources, modules, files of objects; for a process without inlay too.
TEST_F(RelaxJit, AddonsAreLinkedIntoTheLibrary) {
  inlay::ExportOptions options;
  const Module object = Get(inlay::CompileSource(Get(SourceModule(kTwice))));
  object->WriteToFile(File("twice.o"), "o");
  options.addons = {Get(SourceModule(kGreet, "cc", "greet.cc")), Get(inlay::LoadObjectModule(File("twice.o")))};
  options.options = {"-std=c++17"};
  ASSERT_TRUE(Build().ExportLibrary(File("a.so"), options).ok());
  const auto plain = tvm::ffi::Module::LoadFromFile(File("a.so"));
  EXPECT_EQ((*plain->GetFunction("greet"))("you").cast<std::string>(), "hello you");
  EXPECT_EQ((*plain->GetFunction("twice"))(4).cast<int>(), 8);
  ExpectRuns(Get(inlay::LoadLibrary(File("a.so"))));
}

// A module of another library's that writes sources is exported like one of inlay's: what counts are properties.
TEST_F(RelaxJit, ModulesOfOthersAreExportedByTheirProperties) {
  class Theirs final : public tvm::ffi::ModuleObj {
   public:
    const char* kind() const final { return "theirs"; }
    int GetPropertyMask() const final { return Module::kCompilationExportable; }
    tvm::ffi::Optional<Function> GetFunction(const tvm::ffi::String&) final { return std::nullopt; }
    tvm::ffi::Array<tvm::ffi::String> GetWriteFormats() const final { return {tvm::ffi::String("c")}; }
    void WriteToFile(const tvm::ffi::String& file, const tvm::ffi::String&) const final {
      std::ofstream(file.c_str()) << kTwice;
    }
  };
  const Module theirs = tvm::ffi::Module(tvm::ffi::make_object<Theirs>());
  EXPECT_TRUE(theirs.is_exportable());
  inlay::Executable ex = Build();
  ex.ImportModule(theirs);
  EXPECT_EQ(Get(ex.Jit())["twice"](3).cast<int>(), 6);
}

TEST_F(RelaxJit, AnExecutorBelongsToItsExecutable) {
  inlay::Executable ex = Build();
  inlay::ExportOptions options;
  options.addons = {Build().mod()};
  EXPECT_THAT(Text(ex.ExportLibrary(File("a.so"), options)), HasSubstr("belongs to another Executable"));
}

// A folder that runs anywhere, with the addons linked in; what is in its place is not lost by mistake.
TEST_F(RelaxJit, Bundles) {
  inlay::ExportOptions options;
  options.addons = {Get(SourceModule(kTwice))};
  ASSERT_TRUE(Build().ExportBundle(File("bundle"), options).ok());
  ASSERT_TRUE(Build().ExportBundle(File("bundle"), options).ok());  // replaced
  EXPECT_TRUE(fs::exists(File("bundle/lib/libtvm_ffi.so")));
  EXPECT_TRUE(fs::exists(File("bundle/licenses")));
  EXPECT_EQ(std::system((File("bundle/run") + " --random 1 > " + File("said")).c_str()), 0) << Bytes(File("said"));
  EXPECT_EQ(Get(inlay::LoadLibrary(File("bundle/model.so")))["twice"](2).cast<int>(), 4);
  fs::create_directories(File("mine/thing"));
  const absl::Status status = Build().ExportBundle(File("mine"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status), HasSubstr("holds other files than a bundle's"));
}

// Memoised; importing a module makes the next one new, and leaves the old one as it was.
TEST_F(RelaxJit, JitTwiceCostsOnce) {
  inlay::Executable ex = Build();
  const Module first = Get(ex.Jit());
  EXPECT_TRUE(Get(ex.Jit()).same_as(first));
  EXPECT_TRUE(Get(inlay::VirtualMachine::Create(ex)).module().same_as(first));
  ex.ImportModule(Doubling());
  EXPECT_EQ(Get(ex.Jit())["double"](1).cast<int>(), 2);
  EXPECT_FALSE(first.GetFunction("double").ok());
}

TEST_F(RelaxJit, TheVirtualMachineSaysWhatItCanNotRun) {
  EXPECT_THAT(Text(inlay::VirtualMachine::Create(Build(), "cuda:0")), HasSubstr("device cuda:0 is not supported"));
  EXPECT_THAT(Text(inlay::VirtualMachine::Create(Build().mod())), HasSubstr("can't run as it is"));
}

// graph, aot, vm: the same bits.
TEST_F(RelaxJit, ExecutorsAgree) {
  std::vector<std::vector<float>> results;
  for (const char* executor : {"graph", "aot", "vm"}) {
    inlay::CompilationConfig config = inlay::config::Cpu();
    config.executor = executor;
    const inlay::Executable ex = Get(inlay::Build(Model(), config));
    EXPECT_EQ(ex.mod().kind(), executor);
    const auto outputs = Get(Get(ex.Jit()).Run(Inputs(ex.signature())));
    const auto values = inlay::Values<float>(outputs[0]);
    results.emplace_back(values.begin(), values.end());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// "Python callables ... can be registered and called from a model (call_packed)": here C++ ones, by a model that C++
// builds.
TEST_F(RelaxJit, FunctionsOfThisProcessAreCalledFromAModel) {
  inlay::FunctionBuilder b;
  const auto x = b.Param("x", "f32", {2, 3});
  const auto y = b.CallPacked("seeds.negate", {b.Op("relu", {x})}, {"f32", {2, 3}});
  const inlay::IRModule module = Get(b.Finish({b.Op("add", {y, y})}, {"y"}));
  inlay::CompilationConfig config = inlay::config::Cpu();
  config.executor = "vm";
  const inlay::Executable ex = Get(inlay::Build(module, config));
  const auto input = Get(inlay::MakeTensor<float>({2, 3}, {-1, 2, -3, 4, -5, 6}));
  const Module loaded = Get(ex.Jit());
  EXPECT_THAT(Text(loaded.Run({input})), HasSubstr("'seeds.negate' (call_packed) is not registered"));
  ASSERT_TRUE(inlay::RegisterFunc("seeds.negate", Function::FromTyped([](inlay::Tensor t) {
                                    float* values = static_cast<float*>(t.data_ptr());
                                    for (int i = 0; i < 6; ++i) values[i] = -values[i];
                                    return t;
                                  }))
                  .ok());
  const auto outputs = Get(loaded.Run({input}));
  EXPECT_THAT(inlay::Values<float>(outputs[0]), testing::ElementsAre(0, -4, 0, -8, 0, -12));
  EXPECT_EQ(inlay::RegisterFunc("seeds.negate", Function::FromTyped([] {})).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace seeds
