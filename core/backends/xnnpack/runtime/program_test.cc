// What the conformance suite does not reach: work that is large enough to be split, NaN, damaged descriptions.
#include "core/backends/xnnpack/runtime/program.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "core/backend/testing/call_site.h"
#include "core/backend/testing/conformance/suite.h"
#include "core/backends/xnnpack/lowering.h"
#include "core/backends/xnnpack/runtime/program_builder.h"
#include "core/backends/xnnpack/runtime/shim.h"
#include "gtest/gtest.h"

namespace inlay::xnnpack {
namespace {

using backend::testing::CallSite;
using backend::testing::Case;
using backend::testing::CaseBuilder;
using Shape = std::vector<int64_t>;

int32_t Init(const CallSite& site, const std::string& bytes) {
  void* state = nullptr;
  const int32_t code =
      inlay_xnnpack_init(&site.context(), site.args(), &state, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (code == INLAY_OK) inlay_xnnpack_destroy(state);
  return code;
}

// The results, and how many operators made them.
std::vector<std::string> RunProgram(const ir::Function& function, const std::vector<std::string>& inputs,
                                    int num_threads, int* pieces = nullptr) {
  auto lowered = Lower(function);
  if (!lowered.ok()) {
    ADD_FAILURE() << lowered.status();
    return {};
  }
  CallSite site(function, num_threads, inputs);
  const std::string bytes = Serialize(*lowered);
  auto read = ReadAndCheck(bytes.data(), static_cast<int64_t>(bytes.size()));
  auto program = ProgramBuilder(read, site.context(), site.args()).Build();
  if (pieces != nullptr) *pieces = static_cast<int>(program->num_pieces());
  site.SetWorkspace(lowered->description.workspace_bytes);
  program->Run(site.context(), site.args());
  return site.Outputs();
}

ir::VarPtr Conv(CaseBuilder* b, ir::VarPtr x, int64_t channels, int64_t kernel, int64_t stride, int64_t groups) {
  const int64_t in = x->type.tensor().dims[1].value();
  return b->Op("conv", {x, b->Weight({channels, in / groups, kernel, kernel}), b->Weight({channels})},
               {{"pads", Shape(4, kernel / 2)}, {"strides", Shape{stride, stride}}, {"groups", groups}});
}

// Every kind of step, with enough work to be split and extents that no vector divides.
std::vector<Case> LargeCases() {
  std::vector<Case> cases;
  auto conv = [&](const char* name, Shape x, int64_t channels, int64_t kernel, int64_t stride, int64_t groups) {
    CaseBuilder b;
    cases.push_back(b.Done(name, {b.Op("relu", {Conv(&b, b.In(x), channels, kernel, stride, groups)})}));
  };
  conv("conv_3x3", {1, 11, 13, 15}, 33, 3, 1, 1);
  conv("conv_1x1", {2, 37, 13, 15}, 51, 1, 1, 1);
  conv("conv_5x5_strided", {1, 9, 21, 23}, 34, 5, 2, 1);
  conv("depthwise_3x3", {1, 147, 27, 25}, 147, 3, 1, 147);
  conv("depthwise_5x5", {1, 99, 27, 29}, 99, 5, 2, 99);
  conv("depthwise_twice_the_channels", {1, 40, 27, 25}, 80, 3, 1, 40);
  conv("grouped", {1, 30, 15, 17}, 42, 3, 1, 3);
  conv("grouped_whole_vectors", {1, 32, 15, 17}, 64, 3, 1, 2);
  {
    CaseBuilder b;
    auto x = b.In({1, 11, 11, 13});
    cases.push_back(b.Done("conv_transpose", {b.Op("conv_transpose", {x, b.Weight({11, 21, 4, 4}), b.Weight({21})},
                                                   {{"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}})}));
  }
  {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({3, 31, 67}), b.Weight({67, 103})});
    y = b.Op("clip", {b.Op("add", {y, b.Weight({103})})}, {{"max", 1.5}});
    cases.push_back(b.Done("matmul", {b.Op("softmax", {y}, {{"axis", int64_t{2}}})}));
  }
  {
    CaseBuilder b;
    auto x = Conv(&b, b.In({1, 8, 61, 59}), 53, 1, 1, 1);
    auto y = b.Op("max_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
    auto z = b.Op("avg_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
    auto both =
        b.Op("concat", {y, b.Op("leaky_relu", {z}, {{"alpha", 0.3}}), b.Op("elu", {y})}, {{"axis", int64_t{1}}});
    auto scaled = b.Op("mul", {b.Op("sub", {both, b.Weight({159, 1, 1})}), b.Weight({1, 159, 31, 30})});
    auto mean = b.Op("reduce_mean", {scaled}, {{"axes", Shape{2, 3}}, {"keepdims", true}});
    auto gate = b.Op("hard_sigmoid", {mean}, {{"alpha", 0.3}, {"beta", 0.4}});
    auto result = b.Op("div", {b.Op("mul", {scaled, gate}), ir::MakeScalar(ir::DType::kF32, 3.0)});
    cases.push_back(b.Done("images", {result, b.Op("softmax", {both}, {{"axis", int64_t{1}}})}));
  }
  return cases;
}

TEST(Program, ComputesWhatTheReferenceComputesInAnyNumberOfThreads) {
  for (const Case& c : LargeCases()) {
    const auto inputs = backend::testing::MakeInputs(c.function, c, 3);
    int alone = 0;
    for (int threads : {1, 2, 7}) {
      int pieces = 0;
      const auto outputs = RunProgram(c.function, inputs, threads, &pieces);
      EXPECT_EQ(backend::testing::Compare(c.function, c, inputs, outputs), "") << c.name << ", " << threads;
      if (threads == 1) {
        alone = pieces;
      } else {
        EXPECT_GT(pieces, alone) << c.name << " is not split for " << threads;
      }
    }
  }
}

// README, "NaN": what the kernels make of it. A change here is one of the library's.
TEST(Program, NaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto first = [&](const Case& c, float value) {
    auto inputs = backend::testing::MakeInputs(c.function, c, 1);
    std::memcpy(&inputs[0][0], &value, sizeof(value));
    const std::string output = RunProgram(c.function, inputs, 1)[0];
    float result;
    std::memcpy(&result, output.data(), sizeof(result));
    return result;
  };
  auto unary = [](const char* op) {
    CaseBuilder b;
    return b.Done(op, {b.Op(op, {b.In({16})})});
  };
  EXPECT_TRUE(std::isnan(first(unary("sigmoid"), nan)));
  EXPECT_EQ(first(unary("relu"), nan), 0);
  CaseBuilder b;
  EXPECT_EQ(first(b.Done("matmul", {b.Op("matmul", {b.In({1, 8}), b.Weight({8, 16})})}), nan),
            -std::numeric_limits<float>::infinity());
  EXPECT_EQ(first(unary("relu"), std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
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
  for (const char* name : {"classifier", "conv_scale_shift", "squeeze_excite_2", "conv_transpose_grouped"}) {
    ir::Function function;
    const std::string good = Bytes(name, &function);
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
    EXPECT_GT(refused, 50) << name;
  }
}

}  // namespace
}  // namespace inlay::xnnpack
