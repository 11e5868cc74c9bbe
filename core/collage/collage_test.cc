// The partitioner as a user sees it: which sub-graphs end in which backend's partitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/collage/convexity.h"
#include "core/collage/merge.h"
#include "core/collage/partitioner.h"
#include "core/collage/search.h"
#include "core/ir/op_registry.h"

namespace inlay::collage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

class TestBackend : public backend::Backend {
 public:
  TestBackend(std::string name, bool fallback) : name_(std::move(name)), fallback_(fallback) {
    if (!fallback) return;
    for (const std::string& op : ir::OpRegistry::Global().Names()) Add({name_ + "." + op, ir::Op(op), nullptr, 0});
  }
  TestBackend& Add(backend::PatternRule rule) {
    rules_.push_back(std::move(rule));
    return *this;
  }
  std::string name() const override { return name_; }
  absl::Status CheckTarget(const target::Target&, const target::Target&) const override { return absl::OkStatus(); }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool merges_regions() const override { return !fallback_; }
  bool fuses_by_kind() const override { return fallback_; }
  bool is_fallback() const override { return fallback_; }

 private:
  std::string name_;
  bool fallback_;
  std::vector<backend::PatternRule> rules_;
};

class CollageTest : public ::testing::Test {
 protected:
  ir::VarPtr Call(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs = {}) {
    auto var = builder_.Call(op, std::move(args), std::move(attrs), op + std::to_string(++count_));
    EXPECT_TRUE(var.ok()) << var.status();
    return *var;
  }
  absl::StatusOr<Partitioned> Partition(std::vector<const backend::Backend*> backends) {
    ir::IRModule module;
    module.functions["main"] = function_;
    auto estimator = PreferenceEstimator();
    return Partitioner(std::move(backends), estimator.get()).Run(module);
  }
  // "backend: op op; backend: op" in order of the calls of main.
  static std::string Calls(const Partitioned& partitioned) {
    std::string text;
    for (const ir::Binding& binding : partitioned.module.functions.at("main").body.bindings) {
      if (binding.kind != ir::Binding::Kind::kCallFunction) continue;
      const ir::Function& callee = partitioned.module.functions.at(binding.callee);
      if (!text.empty()) text += "; ";
      text += callee.attrs.String("backend") + ":";
      for (const ir::Binding& inner : callee.body.bindings) {
        if (inner.kind == ir::Binding::Kind::kCall) text += " " + inner.callee;
      }
    }
    return text;
  }

  ir::Function function_;
  ir::Builder builder_{&function_};
  int count_ = 0;
  TestBackend native_{"native", true};
  TestBackend lib_{"lib", false};
};

TEST_F(CollageTest, BiggerLibraryPatternWins) {
  auto x = builder_.Param("x", F32({4, 8}));
  auto w = ir::MakeWeight(F32({8, 8}), Digest::Of("w"));
  auto b = ir::MakeWeight(F32({8}), Digest::Of("b"));
  auto y = Call("relu", {Call("add", {Call("matmul", {x, w}), b})});
  builder_.Return({Call("exp", {y})});
  lib_.Add({"lib.matmul", ir::Op("matmul"), nullptr, 0});
  lib_.Add({"lib.matmul_add_relu", ir::Op("relu", {ir::Op("add", {ir::Op("matmul"), ir::Any()})}), nullptr, 9});
  auto result = Partition({&lib_, &native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result), "lib: matmul add relu; native: exp");
  EXPECT_THAT(result->partitions[0].why, HasSubstr("lib.matmul_add_relu"));
}

TEST_F(CollageTest, RefusedMatchGoesElsewhereWithTheReasonKept) {
  auto x = builder_.Param("x", F32({4, 8}));
  builder_.Return({Call("matmul", {x, ir::MakeWeight(F32({8, 8}), Digest::Of("w"))})});
  lib_.Add({"lib.matmul", ir::Op("matmul"),
            [](const ir::PatternMatch&, const target::Target&) { return absl::UnimplementedError("only on Tuesdays"); },
            0});
  auto result = Partition({&lib_, &native_});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Calls(*result), "native: matmul");
  ASSERT_EQ(result->refusals.size(), 1);
  EXPECT_EQ(result->refusals[0].reason, "only on Tuesdays");
}

TEST_F(CollageTest, NativeFusesByKind) {
  auto x = builder_.Param("x", F32({4, 8}));
  auto w = ir::MakeWeight(F32({8, 8}), Digest::Of("w"));
  auto y = Call("sigmoid", {Call("add", {Call("matmul", {x, w}), x})});  // epilogue
  auto z = Call("softmax", {Call("exp", {Call("transpose", {y}, {{"perm", std::vector<int64_t>{1, 0}}})})});
  builder_.Return({z});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result), "native: matmul add sigmoid; native: transpose exp softmax");
}

TEST_F(CollageTest, ValueWithTwoUsersIsNotFusedAway) {
  auto x = builder_.Param("x", F32({4, 4}));
  auto e = Call("exp", {x});
  auto a = Call("softmax", {e});
  auto b = Call("reduce_sum", {e}, {{"axes", std::vector<int64_t>{1}}});
  builder_.Return({a, b});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Calls(*result), "native: exp; native: softmax; native: reduce_sum");
}

TEST_F(CollageTest, EqualPartitionsAreOneFunctionWhateverTheWeights) {
  ir::VarPtr x = builder_.Param("x", F32({4, 8}));
  for (int layer = 0; layer < 3; ++layer) {
    auto w = ir::MakeWeight(F32({8, 8}), Digest::Of(std::to_string(layer)), "w" + std::to_string(layer));
    x = Call("relu", {Call("matmul", {x, w})});
  }
  builder_.Return({x});
  lib_.Add({"lib.matmul_relu", ir::Op("relu", {ir::Op("matmul")}), nullptr, 1});
  // One candidate a region, so that the layers stay apart.
  struct NoRegions : TestBackend {
    using TestBackend::TestBackend;
    bool merges_regions() const override { return false; }
  } lib("lib", false);
  lib.Add({"lib.matmul_relu", ir::Op("relu", {ir::Op("matmul")}), nullptr, 1});
  auto result = Partition({&lib, &native_});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Calls(*result), "lib: matmul relu; lib: matmul relu; lib: matmul relu");
  ASSERT_EQ(result->partitions.size(), 1);
  EXPECT_EQ(result->partitions[0].call_sites, 3);
  const ir::Function& partition = result->module.functions.at(result->partitions[0].function);
  EXPECT_THAT(partition.attrs.Ints(backend::kConstantParams), ElementsAre(1));
}

TEST_F(CollageTest, RegionsOfALibraryAreMerged) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  auto a = Call("relu", {x});
  auto b = Call("tanh", {a});
  auto c = Call("add", {a, b});
  builder_.Return({c});
  for (const char* op : {"relu", "tanh", "add"}) lib_.Add({std::string("lib.") + op, ir::Op(op), nullptr, 0});
  auto result = Partition({&lib_, &native_});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Calls(*result), "lib: relu tanh add");
}

// lib takes a and c but not b, which lies on a path between them: merging a with c would close a cycle.
TEST_F(CollageTest, MergingNeverMakesACycle) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  auto a = Call("relu", {x});
  auto b = Call("exp", {a});
  auto c = Call("add", {a, b});
  builder_.Return({c});
  for (const char* op : {"relu", "add"}) lib_.Add({std::string("lib.") + op, ir::Op(op), nullptr, 0});
  auto result = Partition({&lib_, &native_});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Calls(*result), "lib: relu; native: exp; lib: add");
}

TEST_F(CollageTest, SeveralResultsAndTupleItems) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  auto parts = Call("split", {x}, {{"axis", int64_t{0}}, {"sizes", std::vector<int64_t>{3, 5}}});
  auto first = *builder_.GetItem(parts, 0);
  auto second = *builder_.GetItem(parts, 1);
  builder_.Return({first, second});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  const ir::Function& main = result->module.functions.at("main");
  ASSERT_EQ(main.body.bindings.size(), 3);  // the call and its two items
  EXPECT_EQ(result->module.functions.at(main.body.bindings[0].callee).body.results.size(), 2);
}

TEST_F(CollageTest, WhatNobodyCompilesIsNamed) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  builder_.Return({Call("tanh", {x})});
  auto result = Partition({&lib_});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("tanh1"));
}

TEST_F(CollageTest, ConvexityLooksThroughOutsiders) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  auto a = Call("relu", {x});
  auto b = Call("exp", {a});
  auto c = Call("add", {a, b});
  builder_.Return({c});
  DataflowGraph graph(function_.body);
  EXPECT_FALSE(IsConvex(graph, {0, 2}));
  EXPECT_TRUE(IsConvex(graph, {0, 1}));
  EXPECT_TRUE(IsConvex(graph, {0, 1, 2}));
}

// Two candidates that are convex each, but need each other: {a, d} and {b, c} with a -> c and b -> d.
TEST_F(CollageTest, CoverWithoutCyclesBetweenPartitions) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  ir::VarPtr y = builder_.Param("y", F32({8, 8}));
  auto a = Call("relu", {x});
  auto b = Call("exp", {y});
  auto c = Call("add", {b, a});
  auto d = Call("mul", {a, b});
  builder_.Return({c, d});
  DataflowGraph graph(function_.body);
  std::vector<Candidate> candidates;
  for (int i = 0; i < 4; ++i) candidates.push_back({{i}, &native_, "single", 10});
  candidates.push_back({{0, 3}, &lib_, "pair", 1});
  candidates.push_back({{1, 2}, &lib_, "pair", 1});
  auto cover = CheapestCover(graph, candidates);
  ASSERT_TRUE(cover.ok());
  ASSERT_EQ(cover->size(), 3) << "one pair and two singles";
}

TEST_F(CollageTest, SearchOfALongBranchyGraphStaysFast) {
  ir::VarPtr x = builder_.Param("x", F32({8, 8}));
  for (int i = 0; i < 300; ++i) {  // diamonds
    auto a = Call("exp", {x}), b = Call("tanh", {x}), c = Call("relu", {x});
    x = Call("add", {Call("mul", {a, b}), c});
  }
  builder_.Return({x});
  lib_.Add({"lib.add_mul", ir::Op("add", {ir::Op("mul")}), nullptr, 0});
  auto result = Partition({&lib_, &native_});
  ASSERT_TRUE(result.ok()) << result.status();
}

}  // namespace
}  // namespace inlay::collage
