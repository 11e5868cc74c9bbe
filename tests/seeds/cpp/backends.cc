// What of the third seed document is the user's side, as one writes it in C++: tests/seeds/test_002_backends.py's
// statements.
#include <cstdlib>
#include <filesystem>

#include "support.h"

namespace seeds {
namespace {

using inlay::CompilationConfig;
using inlay::Module;
using testing::HasSubstr;

class Backends : public Seeds {};

CompilationConfig By(const std::string& backend, const std::string& target = "") {
  CompilationConfig config = CompilationConfig::FromTarget("llvm -mcpu=x86-64-v3");
  if (!target.empty()) config.targets.emplace_back(target);
  config.backends = {backend};
  config.search = "none";
  return config;
}

// Custom runtime module, built-in, CSource: each style's backend, exported, loaded, run. All under one path, which
// leaves no temporary files.
TEST_F(Backends, ThreeStyles) {
  const std::string scratch = File("scratch");
  std::filesystem::create_directory(scratch);
  setenv("TMPDIR", scratch.c_str(), 1);
  for (const char* backend : {"onednn", "xnnpack", "libxsmm", "openblas", "csource"}) {
    SCOPED_TRACE(backend);
    const std::string target = std::string(backend) == "csource" ? "csource -cflags=-O1" : "";
    const inlay::Executable ex = Get(inlay::Build(Model(), By(backend, target)));
    int own = 0;
    for (const auto& part : ex.report().partitions) own += part.backend == backend;
    EXPECT_GT(own, 0);
    ASSERT_TRUE(ex.ExportLibrary(File("a.so")).ok());
    ExpectRuns(Get(inlay::LoadLibrary(File("a.so"))));
  }
  unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(scratch));
}

// "I extend the 'external codegen' Target with all the options which influence tuning and compilation": another option
// is another key, and a wrong one is refused by name.
TEST_F(Backends, OptionsAreInTheCodegenTarget) {
  const auto keys = [](const inlay::Executable& ex) {
    std::vector<std::string> actions;
    for (const auto& part : ex.report().partitions) actions.push_back(part.action);
    return actions;
  };
  const auto first = Get(inlay::Build(Model(), By("csource", "csource -cflags=-O1")));
  const auto again = Get(inlay::Build(Model(), By("csource", "csource -cflags=-O1")));
  const auto other = Get(inlay::Build(Model(), By("csource", "csource -cflags=-Os")));
  EXPECT_EQ(again.report().actions_run, 0);
  EXPECT_EQ(keys(first), keys(again));
  EXPECT_NE(keys(first), keys(other));
  EXPECT_THAT(Text(inlay::Build(Model(), By("csource", "csource -colour=red"))), HasSubstr("'colour'"));
}

// "I require the user to supply both the usual Target("cuda") as well as the 'external codegen' Target"
TEST_F(Backends, DeviceAndCodegenTargets) {
  const auto ex = Get(inlay::Build(Model(), By("native", "native -winograd=0")));
  EXPECT_EQ(ex.config().targets[0], inlay::Target("llvm -mcpu=x86-64-v3"));
  for (const auto& part : ex.report().partitions) {
    if (part.backend == "native") {
      EXPECT_EQ(part.codegen_target, "native -winograd=0");
    }
  }
}

// "a new StaticLibraryNode ... convey the contents of a generated .o file ... to the final export_library"
TEST_F(Backends, StaticLibrariesCarryObjectsToTheLink) {
  int carried = 0;
  for (const Module& part : Get(inlay::Build(Model(), By("onednn"))).mod().imported_modules()) {
    if (part.kind() != "static_library") continue;
    EXPECT_EQ(part.properties(), P::kCompilationExportable);
    ++carried;
  }
  EXPECT_GT(carried, 0);
}

// "centralizing the 'is dso module' predicate as a method on runtime::Module"
TEST_F(Backends, ExportableIsAMethod) {
  const auto ex = Get(inlay::Build(Model(), By("onednn")));
  for (const Module& module : ex.mod().Walk()) EXPECT_TRUE(module.is_exportable()) << module.ToString();
  EXPECT_FALSE(inlay::FunctionModule({}).is_exportable());
  EXPECT_FALSE(Get(ex.Jit()).is_exportable());
}

}  // namespace
}  // namespace seeds
