// What the daemon's rule takes as one kernel. That the kernel is right is contractions_test.py's and the conformance
// suite's matter.
#include "core/backends/native/depthwise_pattern.h"

#include <string>

#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "gtest/gtest.h"

namespace inlay::native {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;
using Shape = CaseBuilder::Shape;

struct Block {
  int64_t extent = 112, channels = 16, hidden = 96, kernel = 1;  // of the first convolution
  std::string between = "clip";
  bool constant = true, read_twice = false;
};

// The function ends with the depthwise convolution, unless another result follows.
ir::Function Make(const Block& block) {
  CaseBuilder b;
  const Shape w_shape = {block.hidden, block.channels, block.kernel, block.kernel};
  auto x = b.In({1, block.channels, block.extent, block.extent});
  auto w = block.constant ? b.Weight(w_shape) : b.In(w_shape);
  auto y = b.Op("conv", {x, w, b.Weight({block.hidden})}, {{"pads", Shape(4, block.kernel / 2)}});
  if (block.between == "hard_swish") {
    y = b.Op("mul", {y, b.Op("hard_sigmoid", {y})});
  } else if (block.between == "scale") {
    y = b.Op("relu", {b.Op("mul", {y, b.Weight({block.hidden, 1, 1})})});
  } else if (block.between == "add") {
    y = b.Op("add", {y, b.In({1, block.hidden, block.extent, block.extent})});
  } else if (block.between == "transpose") {
    y = b.Op("transpose", {y}, {{"perm", Shape{0, 1, 3, 2}}});
  } else if (block.between != "nothing") {
    y = b.Op(block.between, {y});
  }
  auto z = b.Op("conv", {y, b.Weight({block.hidden, 1, 3, 3})}, {{"pads", Shape(4, 1)}, {"groups", block.hidden}});
  std::vector<ir::Operand> results = {z};
  if (block.read_twice) results.push_back(y);
  return b.Done("block", results).function;
}

// How many calls the rule takes together; 0: it does not apply.
size_t Taken(const Block& block, const std::string& cpu = "x86-64-v4") {
  const ir::Function function = Make(block);
  std::unordered_set<const ir::Var*> constants;
  for (int64_t i : function.attrs.Ints(backend::kConstantParams)) constants.insert(function.params[i].get());
  const ir::DefUse def_use(function.body, constants);
  ir::PatternMatch match;
  if (!ir::Match(DepthwiseBlock(), function.body.bindings.back(), def_use, &match)) return 0;
  const target::Target target = *target::Target::Parse("llvm -mcpu=" + cpu)->Completed();
  return CheckDepthwiseBlock(match, target).ok() ? match.bindings.size() : 0;
}

TEST(DepthwisePatternTest, TakesBothConvolutionsAndWhatIsBetween) {
  EXPECT_EQ(Taken({}), 3u);
  EXPECT_EQ(Taken({}, "x86-64-v3"), 3u);
  EXPECT_EQ(Taken({}, "x86-64-v2"), 3u);
  Block block;
  block.between = "nothing";
  EXPECT_EQ(Taken(block), 2u);
  block.between = "silu";
  EXPECT_EQ(Taken(block), 3u);
  block.between = "hard_swish";
  EXPECT_EQ(Taken(block), 4u);
  block.between = "scale";
  EXPECT_EQ(Taken(block), 4u);
}

TEST(DepthwisePatternTest, FarCachesHaveSmallerImagesTaken) {
  Block block;
  block.channels = 24;
  block.hidden = 144;
  block.extent = 56;
  EXPECT_EQ(Taken(block, "emeraldrapids"), 3u);
  EXPECT_EQ(Taken(block, "znver5"), 0u);
  block.extent = 14;
  EXPECT_EQ(Taken(block, "emeraldrapids"), 0u);
  block.extent = 147;
  block.channels = 32;
  EXPECT_EQ(Taken(block, "emeraldrapids"), 3u);
  block.channels = 64;
  EXPECT_EQ(Taken(block, "emeraldrapids"), 0u) << "more streams than a prefetcher follows";
}

TEST(DepthwisePatternTest, LeavesAloneWhatIsNoSuchBlockOrGainsNothing) {
  Block block;
  block.extent = 14;
  EXPECT_EQ(Taken(block), 0u) << "the image is small";
  for (const char* between : {"add", "transpose"}) {
    block = {};
    block.between = between;
    EXPECT_EQ(Taken(block), 0u) << between;
  }
  block = {};
  block.read_twice = true;
  EXPECT_EQ(Taken(block), 0u) << "the image is a result as well";
  block = {};
  block.constant = false;
  EXPECT_EQ(Taken(block), 0u) << "weights of each call";
  block = {};
  block.kernel = 3;
  EXPECT_EQ(Taken(block), 0u) << "not pointwise";
}

}  // namespace
}  // namespace inlay::native
