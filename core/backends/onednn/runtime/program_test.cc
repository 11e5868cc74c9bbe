#include "core/backends/onednn/runtime/program.h"

#include <random>
#include <string>

#include "core/backend/testing/call_site.h"
#include "core/backend/testing/cases.h"
#include "core/backends/onednn/layouts.h"
#include "core/backends/onednn/lowering.h"
#include "core/backends/onednn/runtime/program_builder.h"
#include "core/backends/onednn/runtime/shim.h"
#include "gtest/gtest.h"

namespace inlay::onednn {
namespace {

using backend::testing::CallSite;

Storage Temporary(int64_t bytes, int first, int last) {
  Storage storage;
  storage.bytes = bytes;
  storage.first = first;
  storage.last = last;
  return storage;
}

TEST(PlanMemory, SharesWhatIsNotAliveAtOnce) {
  std::vector<Storage> storages = {Temporary(1000, 0, 1), Temporary(600, 1, 2), Temporary(900, 2, 3),
                                   Temporary(100, 0, 3)};
  const int64_t total = PlanMemory(&storages);
  EXPECT_EQ(total, 1024 + 640 + 128);
  for (size_t i = 0; i < storages.size(); ++i) {
    EXPECT_EQ(storages[i].offset % 64, 0);
    for (size_t j = 0; j < i; ++j) {
      const Storage &a = storages[i], &b = storages[j];
      if (a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << i << " over " << j;
    }
  }
}

int32_t Init(const CallSite& site, const std::string& bytes) {
  void* state = nullptr;
  const int32_t code =
      inlay_onednn_init(&site.context(), site.args(), &state, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (code == INLAY_OK) inlay_onednn_destroy(state);
  return code;
}

std::unique_ptr<Program> Build(const CallSite& site, const std::string& bytes) {
  auto read = ReadAndCheck(bytes.data(), static_cast<int64_t>(bytes.size()));
  return ProgramBuilder(read, site.context(), site.args()).Build();
}

// What CheckCall accepts runs in generated kernels, on whatever CPU this is; and the manifest's workspace is enough.
TEST(Program, HasNoReferenceKernels) {
  int built = 0;
  for (const auto& c : backend::testing::AllCases()) {
    auto lowered = Lower(c.function);
    if (!lowered.ok()) continue;
    auto program = Build(CallSite(c.function, 1), Serialize(*lowered));
    for (const std::string& line : program->Describe()) {
      EXPECT_EQ(line.find(" ref"), std::string::npos) << c.name << ": " << line;
    }
    EXPECT_LE(program->workspace_bytes(), lowered->description.workspace_bytes) << c.name;
    ++built;
  }
  EXPECT_GT(built, 50);
}

// The layout that PrefersChannelsLast says is the one that the library chooses, on whatever CPU this is.
TEST(Program, ReordersNothingWhereItsNeighboursHaveTheChannelsLastToo) {
  int preferring = 0, without_any = 0;
  for (const auto& c : backend::testing::AllCases()) {
    if (!Lower(c.function).ok()) continue;
    ir::Function function = c.function;
    const backend::ChannelsLast preferred = PrefersChannelsLast(function);
    if (preferred.params.empty() || preferred.results.empty()) continue;
    const size_t before = Build(CallSite(function, 1), Serialize(*Lower(function)))->Describe().size();
    function.attrs.Set(backend::kChannelsLastParams, preferred.params);
    function.attrs.Set(backend::kChannelsLastResults, preferred.results);
    const auto lowered = Lower(function);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const std::vector<std::string> after = Build(CallSite(function, 1), Serialize(*lowered))->Describe();
    const bool pools_only = lowered->description.steps[0].op.find("pool") != std::string::npos;  // in any layout
    EXPECT_LE(after.size() + (pools_only ? 0 : 2), before) << c.name;
    if (after.size() == lowered->description.steps.size()) ++without_any;
    ++preferring;
  }
  EXPECT_GT(preferring, 15);
  EXPECT_GE(without_any, preferring - 3) << "some broadcast inside needs another layout";
}

std::string Bytes(const std::string& name, ir::Function* function) {
  for (const auto& c : backend::testing::AllCases()) {
    if (c.name != name) continue;
    *function = c.function;
    return Serialize(*Lower(c.function));
  }
  return "";
}

TEST(Shim, RefusesDamagedDescriptions) {
  ir::Function function;
  const std::string good = Bytes("residual_block", &function);
  const CallSite site(function, 1);
  EXPECT_EQ(Init(site, good), INLAY_OK) << site.error();
  EXPECT_EQ(Init(site, good.substr(0, good.size() / 2)), INLAY_E_INTERNAL);
  EXPECT_NE(site.error(), "");
  std::string other = good;
  const size_t version = other.find("\"version\":");
  ASSERT_NE(version, std::string::npos);
  other[version + 10] = '7';
  EXPECT_EQ(Init(site, other), INLAY_E_INTERNAL);
  EXPECT_NE(site.error().find("version 7"), std::string::npos) << site.error();
}

// Digits changed at random: an error or another partition of the same memory, never a crash.
TEST(Shim, SurvivesRandomDigits) {
  ir::Function function;
  const std::string good = Bytes("conv_scale_shift", &function);
  const CallSite site(function, 1);
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    size_t at = random() % bytes.size();
    while (bytes[at] < '0' || bytes[at] > '9') at = random() % bytes.size();
    bytes[at] = static_cast<char>('0' + random() % 10);
    refused += Init(site, bytes) != INLAY_OK;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace inlay::onednn
