// What is recognised as attention, and what partitions hold of it. That the kernel is right is attention_test.py's and
// the conformance suite's matter.
#include "core/backends/native/attention_pattern.h"

#include "core/backend/testing/cases.h"
#include "core/backends/native/composites.h"
#include "gtest/gtest.h"

namespace inlay::native {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;

std::vector<Case> AttentionCases() {
  std::vector<Case> cases;
  backend::testing::AddAttentionCases(&cases);
  return cases;
}

// The last binding of each is where attention ends, its heads joined: nothing around it is left outside.
TEST(AttentionPatternTest, TakesTheWholeOfEveryForm) {
  for (const Case& c : AttentionCases()) {
    const ir::DefUse def_use(c.function.body);
    ir::PatternMatch match;
    ASSERT_TRUE(ir::Match(AttentionWithViews(), c.function.body.bindings.back(), def_use, &match)) << c.name;
    EXPECT_TRUE(CheckAttention(match).ok()) << c.name << ": " << CheckAttention(match);
    EXPECT_EQ(match.bindings.size(), c.function.body.bindings.size()) << c.name;
  }
}

TEST(AttentionPatternTest, BecomesOneNodeThatReadsViews) {
  for (const Case& c : AttentionCases()) {
    absl::StatusOr<Graph> graph = Graph::Build(c.function);
    ASSERT_TRUE(graph.ok()) << graph.status();
    FoldComposites(c.function, CpuFeatures(), &*graph);
    int composites = 0;
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      const Node& node = *graph->nodes[i];
      EXPECT_EQ(node.id, static_cast<int>(i));
      EXPECT_NE(node.op, "matmul") << c.name;
      EXPECT_NE(node.op, "softmax") << c.name;
      composites += node.op == kAttention;
    }
    EXPECT_EQ(composites, 1) << c.name;
  }
}

ir::Function Attention(int64_t rows, int64_t keys, int64_t size, bool scores_leave, bool transposed = false) {
  CaseBuilder b;
  auto q = b.In({1, rows, size}), k = b.In({1, keys, size}), v = b.In({1, keys, size});
  if (transposed) q = b.In({1, size, rows});
  auto scores = b.Op("matmul", {q, k}, {{"transpose_a", transposed}, {"transpose_b", true}});
  auto context = b.Op("matmul", {b.Op("softmax", {scores}, {{"axis", int64_t{2}}}), v});
  std::vector<ir::Operand> results = {context};
  if (scores_leave) results.push_back(scores);
  return b.Done("attention", results).function;
}

// q, k and v are items of one split, which the three share.
TEST(AttentionPatternTest, ReachesThroughASplit) {
  ir::Function f;
  ir::Builder b(&f);
  auto x = b.Param("x", ir::MakeTensorType(ir::DType::kF32, {1, 5, 24}));
  auto call = [&](const char* op, std::vector<ir::Operand> args, ir::Attrs attrs) {
    return *b.Call(op, std::move(args), std::move(attrs));
  };
  auto joint = call("split", {x}, {{"axis", int64_t{2}}, {"sizes", std::vector<int64_t>{8, 8, 8}}});
  auto heads = [&](int i) {
    auto split = call("reshape", {*b.GetItem(joint, i)}, {{"shape", std::vector<int64_t>{1, 5, 2, 4}}});
    return call("transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  };
  auto q = heads(0), k = heads(1), v = heads(2);
  auto weights = call("softmax", {call("matmul", {q, k}, {{"transpose_b", true}})}, {{"axis", int64_t{3}}});
  b.Return({call("matmul", {weights, v}, {})});
  const ir::DefUse def_use(f.body);
  ir::PatternMatch match;
  ASSERT_TRUE(ir::Match(AttentionWithViews(), f.body.bindings.back(), def_use, &match));
  EXPECT_EQ(match.bindings.size(), f.body.bindings.size());
}

bool Recognised(const ir::Function& function, absl::Status* status) {
  const ir::DefUse def_use(function.body);
  ir::PatternMatch match;
  if (!ir::Match(AttentionCore(), function.body.bindings.back(), def_use, &match)) return false;
  *status = CheckAttention(match);
  return true;
}

TEST(AttentionPatternTest, LeavesAloneWhatItCannotServe) {
  absl::Status status;
  EXPECT_TRUE(Recognised(Attention(5, 7, 8, false), &status));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(Recognised(Attention(5, 7, 8, true), &status)) << "the scores are a result";
  EXPECT_FALSE(Recognised(Attention(5, 7, 8, false, true), &status)) << "q is transposed";
  ASSERT_TRUE(Recognised(Attention(5, 7, 520, false), &status));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("heads of more than 512"), std::string::npos) << status;
}

}  // namespace
}  // namespace inlay::native
