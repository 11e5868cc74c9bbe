// What the daemon's rule takes as one kernel. That the kernel is right is contractions_test.py's matter.
#include "core/backends/native/depthwise_tokens.h"

#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "gtest/gtest.h"

namespace inlay::native {
namespace {

using backend::testing::CaseBuilder;
using Shape = CaseBuilder::Shape;

struct Mlp {
  int64_t channels = 16, groups = 16, kernel = 3, dilation = 1;
  bool flat = true, constant = true, read_twice = false;
  std::string behind;  // the convolution
  Shape back = {0, 2, 1};
};

// How many calls the rule takes together; 0: it does not apply.
size_t Taken(const Mlp& mlp) {
  CaseBuilder b;
  const Shape w = {mlp.channels, mlp.channels / mlp.groups, mlp.kernel, mlp.kernel};
  auto x = mlp.flat ? b.In({2, 35, mlp.channels}) : b.In({2, 5, 7, mlp.channels});
  auto y = b.Op("transpose", {x}, {{"perm", mlp.flat ? Shape{0, 2, 1} : Shape{0, 3, 1, 2}}});
  if (mlp.flat) y = b.Op("reshape", {y}, {{"shape", Shape{2, mlp.channels, 5, 7}}});
  y = b.Op("conv", {y, mlp.constant ? b.Weight(w) : b.In(w)},
           {{"pads", Shape(4, mlp.kernel / 2 * mlp.dilation)},
            {"dilations", Shape(2, mlp.dilation)},
            {"groups", mlp.groups}});
  auto image = y;
  if (mlp.behind == "add") {
    y = b.Op("add", {y, b.In({2, mlp.channels, 5, 7})});
  } else if (!mlp.behind.empty()) {
    y = b.Op(mlp.behind, {y});
  }
  if (mlp.flat) y = b.Op("reshape", {y}, {{"shape", Shape{2, mlp.channels, 35}}});
  y = b.Op("transpose", {y}, {{"perm", mlp.back}});
  std::vector<ir::Operand> results = {y};
  if (mlp.read_twice) results.push_back(image);
  const ir::Function function = b.Done("mlp", results).function;
  std::unordered_set<const ir::Var*> constants;
  for (int64_t i : function.attrs.IntsOr(backend::kConstantParams, {})) constants.insert(function.params[i].get());
  ir::PatternMatch match;
  const ir::DefUse def_use(function.body, constants);
  if (!ir::Match(DepthwiseTokens(), function.body.bindings.back(), def_use, &match)) return 0;
  return CheckDepthwiseTokens(match).ok() ? match.bindings.size() : 0;
}

TEST(DepthwiseTokensTest, TakesTheTransposesAndWhatIsBetween) {
  EXPECT_EQ(Taken({}), 5u);
  Mlp mlp;
  mlp.flat = false;
  mlp.back = {0, 2, 3, 1};
  EXPECT_EQ(Taken(mlp), 3u);
  mlp.behind = "gelu";
  EXPECT_EQ(Taken(mlp), 4u);
  mlp = {};
  mlp.behind = "relu";
  mlp.kernel = 7;
  EXPECT_EQ(Taken(mlp), 6u);
}

TEST(DepthwiseTokensTest, LeavesAloneWhatIsNone) {
  Mlp mlp;
  mlp.groups = 8;
  EXPECT_EQ(Taken(mlp), 0u) << "groups of two channels";
  mlp = {};
  mlp.channels = mlp.groups = 4;
  EXPECT_EQ(Taken(mlp), 0u) << "less than a vector";
  mlp = {};
  mlp.dilation = 2;
  EXPECT_EQ(Taken(mlp), 0u) << "dilated";
  mlp = {};
  mlp.kernel = 9;
  EXPECT_EQ(Taken(mlp), 0u) << "much code";
  mlp = {};
  mlp.constant = false;
  EXPECT_EQ(Taken(mlp), 0u) << "weights of each call";
  mlp = {};
  mlp.read_twice = true;
  EXPECT_EQ(Taken(mlp), 0u) << "the image is a result as well";
  mlp = {};
  mlp.behind = "add";
  EXPECT_EQ(Taken(mlp), 0u) << "another image is read";
  mlp = {};
  mlp.back = {2, 0, 1};
  EXPECT_EQ(Taken(mlp), 0u) << "not back to where it was";
}

}  // namespace
}  // namespace inlay::native
