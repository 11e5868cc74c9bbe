// The partitioner as a user sees it: which sub-graphs end in which backend's partitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/status_macros.h"
#include "core/collage/convexity.h"
#include "core/collage/merge.h"
#include "core/collage/partitioner.h"
#include "core/collage/search.h"
#include "core/ir/op_registry.h"
#include "core/ir/structural_hash.h"

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
  // A library's are, of every image.
  backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target&) const override {
    backend::ChannelsLast preferred;
    if (fallback_) return preferred;
    for (size_t i = 0; i < partition.params.size(); ++i) {
      if (partition.params[i]->type.tensor().rank() == 4) preferred.params.push_back(i);
    }
    for (size_t i = 0; i < partition.body.results.size(); ++i) {
      if (partition.body.results[i].tensor_type().rank() == 4) preferred.results.push_back(i);
    }
    return preferred;
  }

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
    module_.functions["main"] = function_;
    auto estimator = PreferenceEstimator(module_.config().target());
    Partitioner partitioner(std::move(backends), estimator.get());
    SearchSpace space = partitioner.Propose(module_);
    refusals_ = space.refusals;
    INLAY_ASSIGN_OR_RETURN(Cover cover, partitioner.BestByEstimate(space, module_.config()));
    return CutAlong(module_, cover);
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

  ir::IRModule module_;
  std::vector<Refusal> refusals_;
  ir::Function function_;
  ir::Builder builder_{&function_};
  int count_ = 0;
  TestBackend native_{"native", true};
  TestBackend lib_{"lib", false};
};

// "lib: op >0 0>" of each partition: its operators, inputs and outputs that have their channels last.
std::string Layouts(const Partitioned& partitioned) {
  std::string text;
  for (const PartitionInfo& partition : partitioned.partitions) {
    text += (text.empty() ? "" : "; ") + partition.backend + ":";
    for (const std::string& op : partition.ops) text += " " + op;
    for (int64_t i : partition.channels_last.params) text += " >" + std::to_string(i);
    for (int64_t i : partition.channels_last.results) text += " " + std::to_string(i) + ">";
    const ir::Function& function = partitioned.module.functions.at(partition.function);
    EXPECT_EQ(function.attrs.IntsOr(backend::kChannelsLastParams, {}), partition.channels_last.params);
    EXPECT_EQ(function.attrs.IntsOr(backend::kChannelsLastResults, {}), partition.channels_last.results);
  }
  return text;
}

TEST_F(CollageTest, ImagesCrossWithTheirChannelsLastWhereBothSidesPreferIt) {
  TestBackend other("other", false);
  lib_.Add({"lib.exp", ir::Op("exp"), nullptr, 0});
  other.Add({"other.tanh", ir::Op("tanh"), nullptr, 0});
  auto x = builder_.Param("x", F32({2, 8, 4, 4}));
  auto y = Call("tanh", {Call("exp", {x})});
  builder_.Return({Call("softmax", {Call("exp", {y})}, {{"axis", int64_t{1}}})});
  auto result = Partition({&lib_, &other, &native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Layouts(*result), "lib: exp 0>; other: tanh >0 0>; lib: exp >0; native: softmax")
      << "arguments are row-major, and so is what native code reads; the two exp are not the same code";
  Cover cover;
  cover.functions["main"] = {{{0}, &lib_, {}, 0}, {{1}, &other, {}, 0}, {{2}, &lib_, {}, 0}, {{3}, &native_, {}, 0}};
  EXPECT_EQ(Layouts(CutAlong(module_, cover, Borders::kRowMajor)), "lib: exp; other: tanh; native: softmax");
}

TEST_F(CollageTest, WhoNeedsAValueRowMajorDecidesForAll) {
  TestBackend other("other", false);
  lib_.Add({"lib.exp", ir::Op("exp"), nullptr, 0});
  other.Add({"other.tanh", ir::Op("tanh"), nullptr, 0});
  auto e = Call("exp", {builder_.Param("x", F32({2, 8, 4, 4}))});
  auto shared = Call("exp", {builder_.Param("y", F32({2, 8, 4, 4}))});
  auto matrix = Call("exp", {builder_.Param("z", F32({8, 4}))});
  builder_.Return({e, Call("tanh", {e}), Call("tanh", {shared}), Call("softmax", {shared}, {{"axis", int64_t{1}}}),
                   Call("tanh", {matrix})});
  auto result = Partition({&lib_, &other, &native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Layouts(*result).find('>'), std::string::npos) << Layouts(*result);
}

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
  ASSERT_EQ(refusals_.size(), 1);
  EXPECT_EQ(refusals_[0].reason, "only on Tuesdays");
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

// Bytes cross between partitions, not what they stand for: of the two images that meet the second one's maker takes in
// what widens both.
TEST_F(CollageTest, WhoReadsBytesWidensThem) {
  auto x = builder_.Param("x", ir::MakeTensorType(ir::DType::kU8, {4, 8}));
  auto w = ir::MakeWeight(ir::MakeTensorType(ir::DType::kI8, {8, 8}), Digest::Of("w"));
  auto bytes = [&] { return Call("cast", {Call("matmul_integer", {x, w})}, {{"dtype", ir::DType::kU8}}); };
  auto wide = [&](ir::VarPtr v) { return Call("sqrt", {Call("cast", {v}, {{"dtype", ir::DType::kF32}})}); };
  auto first = bytes(), second = bytes();
  builder_.Return({Call("add", {wide(first), wide(second)})});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result), "native: matmul_integer cast; native: matmul_integer cast cast sqrt cast sqrt add");
}

TEST_F(CollageTest, WhatIsPointwiseGoesInBeforeAProductTakesItsTail) {
  auto x = builder_.Param("x", F32({4, 8})), r = builder_.Param("r", ir::MakeTensorType(ir::DType::kBF16, {4, 8}));
  auto w = ir::MakeWeight(F32({8, 8}), Digest::Of("w"));
  auto product = Call("matmul", {x, w});
  auto widened = Call("cast", {Call("relu", {r})}, {{"dtype", ir::DType::kF32}});
  builder_.Return({Call("add", {product, widened})});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result), "native: matmul relu cast add");
}

TEST_F(CollageTest, AProductReadsWhatIsReshaped) {
  auto x = builder_.Param("x", F32({2, 3, 4})), k = builder_.Param("k", F32({4, 2, 5})),
       v = builder_.Param("v", F32({4, 10}));
  auto flat = [&](const ir::Operand& t, std::vector<int64_t> shape) {
    return Call("reshape", {t}, {{"shape", shape}});
  };
  auto rows = flat(x, {6, 4});
  auto y = Call("matmul", {rows, flat(k, {4, 10})});
  // What others need too stays, and so does what moves or computes something in front of the product.
  auto moved = Call("transpose", {v}, {{"perm", std::vector<int64_t>{1, 0}}});
  builder_.Return({y, Call("matmul", {rows, Call("neg", {v})}), Call("matmul", {y, moved})});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result),
            "native: reshape; native: reshape matmul; native: transpose; native: neg; native: matmul; native: matmul");
}

TEST_F(CollageTest, OpenExtentsFuseToo) {
  auto x = builder_.Param("x", ir::TensorType{ir::DType::kF32, {ir::Dim::Symbol("n"), 8}});
  auto w = ir::MakeWeight(F32({8, 8}), Digest::Of("w"));
  auto y = Call("add", {Call("relu", {Call("matmul", {x, w})}), x});
  builder_.Return({Call("softmax", {Call("exp", {y})})});
  auto result = Partition({&native_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Calls(*result), "native: matmul relu add exp; native: softmax");
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
  DataflowGraph graph(function_);
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
  DataflowGraph graph(function_);
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

class CoverTest : public CollageTest {
 protected:
  // matmul, add, split and its two items, a function call of neither.
  CoverTest() {
    auto x = builder_.Param("x", F32({8, 8}));
    auto y = Call("add", {Call("matmul", {x, ir::MakeWeight(F32({8, 8}), Digest::Of("w"))}), x});
    auto parts = Call("split", {y}, {{"axis", int64_t{0}}, {"sizes", std::vector<int64_t>{3, 5}}});
    builder_.Return({*builder_.GetItem(parts, 0), *builder_.GetItem(parts, 1)});
    module_.functions["main"] = function_;
    auto estimator = PreferenceEstimator(module_.config().target());
    Partitioner partitioner({&native_}, estimator.get());
    cover_ = *partitioner.BestByEstimate(partitioner.Propose(module_), module_.config());
  }
  absl::StatusOr<Cover> Reread(const proto::Cover& proto) {
    return FromProto(proto, module_, ir::StructuralHash(module_), {&native_});
  }
  Cover cover_;
};

TEST_F(CoverTest, TravelsAndCutsTheSame) {
  auto again = Reread(ToProto(cover_, ir::StructuralHash(module_)));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->SameCuts(cover_));
  EXPECT_EQ(Calls(CutAlong(module_, *again)), Calls(CutAlong(module_, cover_)));
}

TEST_F(CoverTest, OneThatDoesNotFitIsRefusedWithThePlace) {
  const proto::Cover good = ToProto(cover_, ir::StructuralHash(module_));
  auto expect = [&](const std::function<void(proto::Cover*)>& change, const char* message) {
    proto::Cover cover = good;
    change(&cover);
    auto result = Reread(cover);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(message));
  };
  auto groups = [](proto::Cover* cover) { return cover->mutable_functions(0)->mutable_groups(); };
  expect([](auto* c) { c->set_module_hash("00"); }, "another module");
  expect([](auto* c) { c->clear_functions(); }, "not covered");
  expect([](auto* c) { *c->add_functions() = c->functions(0); }, "covered twice");
  expect([](auto* c) { c->mutable_functions(0)->set_function("other"); }, "none of that name");
  expect([&](auto* c) { groups(c)->Mutable(0)->set_backend("cublas"); }, "'cublas' can't be used");
  expect([&](auto* c) { groups(c)->Mutable(0)->clear_backend(); }, "has no backend");
  expect([&](auto* c) { groups(c)->Mutable(0)->add_positions(99); }, "position 99");
  expect([&](auto* c) { groups(c)->Mutable(0)->clear_positions(); }, "is empty");
  expect([&](auto* c) { *groups(c)->Add() = groups(c)->Get(0); }, "in two groups");
  expect([&](auto* c) { groups(c)->RemoveLast(); }, "in no group");
  expect(
      [&](auto* c) {  // {0, 2...} around {1}
        groups(c)->Clear();
        auto* outer = groups(c)->Add();
        auto* inner = groups(c)->Add();
        for (auto* group : {outer, inner}) group->set_backend("native");
        for (int position : {0, 2, 3, 4}) outer->add_positions(position);
        inner->add_positions(1);
      },
      "need each other");
  expect(
      [&](auto* c) {
        groups(c)->Clear();
        for (auto positions : {std::vector<int>{1, 2, 3, 4}, {0}}) {
          auto* group = groups(c)->Add();
          group->set_backend("native");
          group->mutable_positions()->Add(positions.begin(), positions.end());
        }
      },
      "before one that it needs");
}

class PricedBackend : public TestBackend {
 public:
  using TestBackend::TestBackend;
  double EstimateMicros(const ir::Function&, const target::Target&) const override { return 1; }
  double TransitionMicros(const ir::TensorType& tensor, const target::Target&) const override {
    return tensor.rank() == 4 ? 10 : 0;
  }
};

TEST(CostModel, MeasuredTransitionsTakeThePlaceOfConstants) {
  const PricedBackend lib("lib", false), other("other", false);
  const target::Target target;
  const ir::TensorType small = F32({1, 1, 16, 16}), large = F32({1, 1, 64, 64}), matrix = F32({64, 64});
  const CostModel constants;
  EXPECT_GT(constants.CallMicros("lib"), 0);
  EXPECT_EQ(constants.TransitionMicros(lib, small, target), 10);

  proto::TransitionCosts costs;
  auto* dispatch = costs.add_dispatch();
  dispatch->set_backend("lib");
  dispatch->set_us(3);
  dispatch->set_estimated_us(1);
  for (const auto& [type, us] : {std::pair(small, 5.0), std::pair(large, 20.0)}) {
    auto* layout = costs.add_layouts();
    layout->set_backend("lib");
    layout->set_bytes(type.NumBytes());
    layout->set_us(us);
    layout->set_estimated_us(10);
  }
  const CostModel copied = CostModel(costs);
  const CostModel measured = copied;  // a value
  EXPECT_EQ(measured.CallMicros("lib"), 2) << "what the backend's estimate of such a call lacks";
  EXPECT_EQ(measured.LeastMicros("lib"), 3);
  EXPECT_EQ(measured.TransitionMicros(lib, small, target), 5);
  EXPECT_EQ(measured.TransitionMicros(lib, large, target), 20);
  EXPECT_EQ(measured.TransitionMicros(lib, F32({1, 1, 1, 1}), target), 5) << "as of the nearest size";
  EXPECT_NEAR(measured.TransitionMicros(lib, F32({1, 1, 32, 32}), target), 12.5, 1e-9) << "between them";
  EXPECT_EQ(measured.TransitionMicros(lib, matrix, target), 0) << "the backend knows what crosses as it is";
  EXPECT_EQ(measured.TransitionMicros(other, small, target), 10);
  EXPECT_EQ(measured.CallMicros("other"), constants.CallMicros("other"));
}

TEST_F(CollageTest, DearTransitionsKeepALibraryOut) {
  // What the library does for 1 us, between native code that takes 2 us for each: worth it unless borders cost more.
  const PricedBackend lib = [] {
    PricedBackend made("lib", false);
    made.Add({"lib.max_pool", ir::Op("sigmoid"), nullptr, 0});
    return made;
  }();
  auto x = builder_.Param("x", F32({1, 1, 64, 64}));
  builder_.Return({Call("exp", {Call("sigmoid", {Call("exp", {x})})})});
  module_.functions["main"] = function_;
  auto best = [&](double us) {
    proto::TransitionCosts costs;
    auto* layout = costs.add_layouts();
    layout->set_backend("lib");
    layout->set_bytes(64 * 64 * 4);
    layout->set_us(us);
    layout->set_estimated_us(10);
    const CostModel model(costs);
    const auto estimator = AnalyticEstimator(module_.config(), &model);
    const Partitioner partitioner({&lib, &native_}, estimator.get());
    return Calls(CutAlong(module_, *partitioner.BestByEstimate(partitioner.Propose(module_), module_.config())));
  };
  EXPECT_THAT(best(1), HasSubstr("lib: sigmoid"));
  EXPECT_EQ(best(150), "native: exp sigmoid exp");
}

}  // namespace
}  // namespace inlay::collage
