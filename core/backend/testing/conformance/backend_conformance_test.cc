// What holds for every backend, whatever it claims.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backend/testing/conformance/suite.h"
#include "core/backend/testing/partitions.h"
#include "core/base/digest.h"
#include "gtest/gtest.h"

namespace inlay::backend::testing {
namespace {

class BackendConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const Backend& backend() const { return GetBackend(GetParam()); }
  const BackendCodegen& codegen() const { return GetCodegen(GetParam()); }
};

TEST_P(BackendConformance, NamesAreSane) {
  EXPECT_EQ(backend().name(), GetParam());
  EXPECT_EQ(codegen().name(), GetParam());
  EXPECT_FALSE(backend().rules().empty()) << "a backend that claims nothing";
  std::set<std::string> names;
  for (const PatternRule& rule : backend().rules()) {
    EXPECT_NE(rule.pattern, nullptr) << rule.name;
    EXPECT_TRUE(absl::StartsWith(rule.name, GetParam() + ".")) << rule.name;
    EXPECT_TRUE(names.insert(rule.name).second) << "two rules are called " << rule.name;
  }
}

TEST_P(BackendConformance, VersionIsStableInAProcess) {
  EXPECT_FALSE(codegen().version().empty());
  EXPECT_EQ(codegen().version(), codegen().version());
}

TEST_P(BackendConformance, TargetsAreChecked) {
  target::Target none;
  none.kind = GetParam();
  EXPECT_TRUE(backend().CheckTarget(TestTarget(), none).ok()) << backend().CheckTarget(TestTarget(), none);
  target::Target other = TestTarget();
  other.kind = "no_such_device";
  EXPECT_FALSE(backend().CheckTarget(other, none).ok());
}

// Everything that the backend claims of the cases, compiled: one line a partition.
std::string CompileEverything(const std::string& name) {
  std::ostringstream lines;
  lines << GetCodegen(name).version() << "\n";
  std::vector<std::string> refusals;
  for (const Case& c : AllCases()) {
    for (const TestPartition& p : PartitionsOf(GetBackend(name), c.function, TestTarget(), &refusals)) {
      auto library = CompileOnce(name, p.function);
      lines << c.name << " " << p.name << " ";
      if (!library.ok()) {
        lines << library.status() << "\n";
        continue;
      }
      lines << Digest::Of(library->manifest().SerializeAsString()).hex();
      for (const auto& object : library->objects()) lines << " " << Digest::Of(object.data()).hex();
      lines << "\n";
    }
  }
  return lines.str();
}

// A key that another process does not arrive at is no key: the same binary, started anew, must give the same version
// and the same bytes for every partition.
TEST_P(BackendConformance, AnotherProcessGivesTheSameBytes) {
  const char* dump = std::getenv("INLAY_CONFORMANCE_DUMP");
  const std::string mine = CompileEverything(GetParam());
  if (dump != nullptr) {
    std::ofstream(dump) << mine;
    return;
  }
  const std::string path = ::testing::TempDir() + "/dump_" + GetParam();
  const std::string filter = absl::StrCat("--gtest_filter=*AnotherProcessGivesTheSameBytes/", GetParam());
  const pid_t child = fork();
  if (child == 0) {
    setenv("INLAY_CONFORMANCE_DUMP", path.c_str(), 1);
    unsetenv("GTEST_OUTPUT");
    unsetenv("XML_OUTPUT_FILE");
    unsetenv("TEST_SHARD_INDEX");
    unsetenv("TEST_TOTAL_SHARDS");
    unsetenv("TEST_SHARD_STATUS_FILE");
    execl("/proc/self/exe", "conformance", filter.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ifstream file(path);
  std::stringstream theirs;
  theirs << file.rdbuf();
  EXPECT_EQ(mine, theirs.str());
  EXPECT_GT(std::count(mine.begin(), mine.end(), '\n'), 1) << "no case is claimed";
}

TEST_P(BackendConformance, AnUnknownOperatorIsAnError) {
  CaseBuilder b;
  auto x = b.In({2, 3});
  Case c = b.Done("unknown", {b.Op("relu", {x})});
  c.function.body.bindings[0].callee = "no_such_operator";
  auto library = Compile(GetParam(), c.function);
  ASSERT_FALSE(library.ok());
  EXPECT_TRUE(library.status().code() == absl::StatusCode::kUnimplemented ||
              library.status().code() == absl::StatusCode::kInvalidArgument)
      << library.status();
  EXPECT_TRUE(absl::StrContains(library.status().message(), "no_such_operator")) << library.status();
}

TEST_P(BackendConformance, MissingConstantParamsAreAnError) {
  CaseBuilder b;
  Case c = b.Done("no_constants", {b.Op("relu", {b.In({2, 3})})});
  c.function.attrs.Erase(kConstantParams);
  EXPECT_FALSE(Compile(GetParam(), c.function).ok());
  c.function.attrs.Set(kConstantParams, std::vector<int64_t>{7});
  EXPECT_FALSE(Compile(GetParam(), c.function).ok());
}

// A dtype that a backend does not claim is refused by its rules and, if it comes all the same, by its codegen.
TEST_P(BackendConformance, UnclaimedDtypesAreErrors) {
  for (ir::DType dtype : {ir::DType::kF16, ir::DType::kBF16, ir::DType::kF64, ir::DType::kI8}) {
    CaseBuilder b;
    auto x = b.In({4, 8}, dtype), y = b.In({8, 6}, dtype);
    Case c = b.Done("dtype", {b.Op("matmul", {x, y})});
    std::vector<std::string> refusals;
    const bool claimed = !PartitionsOf(backend(), c.function, TestTarget(), &refusals).empty();
    auto library = Compile(GetParam(), c.function);
    EXPECT_EQ(claimed, library.ok()) << ir::Name(dtype) << " " << library.status();
  }
}

// A backend either has code for open dimensions, which is told their values, or refuses them.
TEST_P(BackendConformance, SymbolicShapesAreListedOrErrors) {
  CaseBuilder b;
  Case c = b.Done("symbolic", {b.Op("relu", {b.In({2, 3})})});
  auto type = c.function.params[0]->type.tensor();
  type.dims[0] = ir::Dim::Symbol("batch");
  ir::Function symbolic;
  ir::Builder builder(&symbolic);
  auto x = builder.Param("x", type);
  auto y = builder.Call("relu", {x});
  ASSERT_TRUE(y.ok());
  builder.Return({*y});
  symbolic.attrs.Set(kConstantParams, std::vector<int64_t>{});
  auto library = Compile(GetParam(), symbolic);
  if (library.ok()) {
    const proto::PrimitiveFunction& function = library->manifest().functions(0);
    ASSERT_EQ(function.symbols_size(), 1);
    EXPECT_EQ(function.symbols(0), "batch");
    EXPECT_EQ(function.inputs(0).dims(0).symbol(), "batch");
    EXPECT_EQ(function.outputs(0).dims(0).symbol(), "batch");
  } else {
    EXPECT_NE(library.status().code(), absl::StatusCode::kInternal) << library.status();
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackendConformance, ::testing::ValuesIn(BackendNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace inlay::backend::testing
