#include "core/collage/micro_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/collage/cover.h"
#include "core/ir/batch.h"
#include "core/ir/op_registry.h"

namespace inlay::collage {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr BatchMachine kMachine{512 * kKiB, 1};

// A chain: each call reads what the one before wrote. `row_bytes`: of the input, then of each call's result.
struct Chain {
  std::vector<BatchedCall> calls;
  std::vector<int> last_use;

  Chain(const std::vector<int64_t>& row_bytes, const std::vector<int64_t>& weight_bytes) {
    for (size_t i = 0; i < weight_bytes.size(); ++i) {
      const int value = static_cast<int>(i);
      calls.push_back({{{value, row_bytes[i]}}, {{value + 1, row_bytes[i + 1]}}, weight_bytes[i], true});
    }
    for (size_t i = 0; i <= weight_bytes.size(); ++i) last_use.push_back(static_cast<int>(i));
  }
  std::vector<int64_t> Rows(int64_t batch, BatchMachine machine = kMachine) const {
    return ChooseRows(calls, last_use, batch, machine);
  }
};

TEST(MicroBatches, LargeImagesGoOneByOneAndLargeWeightsOnce) {
  const Chain chain({600 * kKiB, 3 * kMiB, 3 * kMiB, kMiB, 200 * kKiB, 100 * kKiB},
                    {9 * kKiB, 40 * kKiB, 40 * kKiB, 2 * kMiB, 4 * kMiB});
  EXPECT_THAT(chain.Rows(8), ElementsAre(1, 1, 1, 8, 8));
}

TEST(MicroBatches, WhatIsNearAnywayGoesAtOnce) {
  EXPECT_THAT(Chain({8 * kKiB, 8 * kKiB, 8 * kKiB}, {kKiB, kKiB}).Rows(8), Each(8));
}

TEST(MicroBatches, SeveralRowsAtATimeWhereThatIsNearEnough) {
  EXPECT_THAT(Chain({64 * kKiB, 64 * kKiB, 64 * kKiB, 64 * kKiB}, {64 * kKiB, 64 * kKiB, 64 * kKiB}).Rows(64), Each(4));
}

TEST(MicroBatches, ALoneCallGainsNothing) { EXPECT_THAT(Chain({3 * kMiB, 3 * kMiB}, {kKiB}).Rows(8), Each(8)); }

TEST(MicroBatches, WhatMixesRowsEndsARun) {
  Chain chain(std::vector<int64_t>(8, 3 * kMiB), std::vector<int64_t>(7, kKiB));
  chain.calls[3].separable = false;
  EXPECT_THAT(chain.Rows(4), ElementsAre(1, 1, 1, 4, 1, 1, 1));
}

// Rows of 25 floats: only what stays within a run may lie anywhere.
TEST(MicroBatches, PartsOfWhatCrossesABorderAreAligned) {
  Chain chain({3 * kMiB, 3 * kMiB, 3 * kMiB, 100, 3 * kMiB, 3 * kMiB, 3 * kMiB}, std::vector<int64_t>(6, kKiB));
  EXPECT_THAT(chain.Rows(4), Each(1));
  chain.last_use[3] = 6;  // a result as well
  EXPECT_THAT(chain.Rows(4), ElementsAre(1, 1, 4, 4, 1, 1));
}

// What a batch of more would take two at a time.
TEST(MicroBatches, AnOpenBatchGoesOneByOneOrAtOnce) {
  const Chain chain({64 * kKiB, 64 * kKiB, 64 * kKiB, 64 * kKiB}, {64 * kKiB, 64 * kKiB, 64 * kKiB});
  EXPECT_THAT(ChooseRows(chain.calls, chain.last_use, 64, kMachine, /*is_open=*/true), Each(1));
  EXPECT_THAT(ChooseRows(chain.calls, chain.last_use, 2, kMachine, /*is_open=*/true), Each(2));
  EXPECT_THAT(ChooseRows(chain.calls, chain.last_use, 1000, kMachine, /*is_open=*/true), Each(1));
}

TEST(MicroBatches, CodeForAnOpenBatchIsSlower) {
  Chain chain({8 * kKiB, 8 * kKiB, 8 * kKiB}, {kKiB, kKiB});
  EXPECT_THAT(ChooseRows(chain.calls, chain.last_use, 4, kMachine, /*is_open=*/true), Each(4));
  for (BatchedCall& call : chain.calls) call.open_us = 50;
  EXPECT_THAT(ChooseRows(chain.calls, chain.last_use, 4, kMachine, /*is_open=*/true), Each(1));
}

TEST(MicroBatches, AThousandCallsAndAMillionRowsTakeNoTime) {
  const Chain images(std::vector<int64_t>(1001, kMiB), std::vector<int64_t>(1000, kKiB));
  EXPECT_THAT(images.Rows(64), Each(1));
  const Chain rows(std::vector<int64_t>(11, 64), std::vector<int64_t>(10, kKiB));
  EXPECT_THAT(rows.Rows(1 << 20), Each((1 << 20) / 64));
}

class AnyOp : public backend::Backend {
 public:
  AnyOp() {
    for (const std::string& op : ir::OpRegistry::Global().Names()) rules_.push_back({op, ir::Op(op), nullptr, 0});
  }
  std::string name() const override { return "any"; }
  absl::Status CheckTarget(const target::Target&, const target::Target&) const override { return absl::OkStatus(); }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool is_fallback() const override { return true; }

 private:
  std::vector<backend::PatternRule> rules_;
};

// Three convolutions of large images, each a partition, then the images' means.
class MicroBatchesTest : public ::testing::Test {
 protected:
  MicroBatchesTest() { SetThreads(1); }
  static void SetUpTestSuite() { backend::BackendRegistry::Global().Register(std::make_unique<AnyOp>()); }

  Partitioned Cut(const ir::Dim& batch, const ir::Dim& height = 112) {
    ir::Function main;
    ir::Builder b(&main);
    ir::Operand x = b.Param("x", ir::TensorType{ir::DType::kF32, {batch, 32, height, 112}});
    const ir::TensorType type = ir::MakeTensorType(ir::DType::kF32, {32, 32, 1, 1});
    for (const char* name : {"a", "b", "c"}) x = *b.Call("conv", {x, ir::MakeWeight(type, Digest::Of(name), name)});
    b.Return({*b.Call("reduce_mean", {x}, {{"axes", std::vector<int64_t>{2, 3}}})});
    module_.functions["main"] = std::move(main);
    Cover cover;
    for (int i = 0; i < 4; ++i) {
      cover.functions["main"].push_back({{i}, backend::BackendRegistry::Global().Find("any"), {"rule"}, 0});
    }
    return CutAlong(module_, cover);
  }

  void SetThreads(int threads, const std::string& cores = "") {
    target::CompilationConfig config = module_.config();
    config.num_threads = threads;
    if (!cores.empty()) config.targets[0].attrs["num-cores"] = cores;
    module_.set_config(config);
  }

  static std::vector<ir::Dim> MicroBatchesOf(const Partitioned& partitioned) {
    std::vector<ir::Dim> counts;
    for (const ir::Binding& call : partitioned.module.functions.at("main").body.bindings) {
      counts.push_back(ir::MicroBatchesOf(call));
    }
    return counts;
  }

  void UseVm(int64_t hint = 0) {
    target::CompilationConfig config = module_.config();
    config.executor.kind = target::ExecutorKind::kVm;
    if (hint > 0) config.dim_hints["n"] = hint;
    module_.set_config(config);
  }

  ir::IRModule module_;
};

TEST_F(MicroBatchesTest, PartitionsAreThoseOfASmallerBatch) {
  const Partitioned partitioned = Cut(8);
  EXPECT_THAT(MicroBatchesOf(partitioned), ElementsAre(8, 8, 8, 8));
  ASSERT_EQ(partitioned.partitions.size(), 2);
  EXPECT_EQ(partitioned.partitions[0].call_sites, 3 * 8);
  EXPECT_THAT(partitioned.partitions[0].why, ::testing::HasSubstr("1 of 8 rows at a time"));
  ASSERT_EQ(partitioned.module.functions.size(), 3);  // main among them
  // So what was compiled for one image serves.
  std::vector<std::string> of_one;
  for (const PartitionInfo& partition : Cut(1).partitions) of_one.push_back(partition.function);
  EXPECT_THAT(of_one, ElementsAre(partitioned.partitions[0].function, partitioned.partitions[1].function));
}

// Large images first, then large weights.
TEST_F(MicroBatchesTest, PartitionsAreListedInTheOrderOfTheirCalls) {
  ir::Function main;
  ir::Builder b(&main);
  ir::Operand x = b.Param("x", ir::MakeTensorType(ir::DType::kF32, {8, 16, 112, 112}));
  const ir::TensorType square = ir::MakeTensorType(ir::DType::kF32, {16, 16, 1, 1});
  for (const char* name : {"a", "b"}) x = *b.Call("conv", {x, ir::MakeWeight(square, Digest::Of(name), name)});
  x = *b.Call("reduce_mean", {x}, {{"axes", std::vector<int64_t>{2, 3}}});
  x = *b.Call("matmul", {x, ir::MakeWeight(ir::MakeTensorType(ir::DType::kF32, {16, 100000}), Digest::Of("c"), "c")});
  b.Return({x});
  module_.functions["main"] = std::move(main);
  Cover cover;
  for (int i = 0; i < 4; ++i) {
    cover.functions["main"].push_back({{i}, backend::BackendRegistry::Global().Find("any"), {"rule"}, 0});
  }
  const Partitioned partitioned = CutAlong(module_, cover);
  EXPECT_THAT(MicroBatchesOf(partitioned), ElementsAre(8, 8, 8, 1));
  std::vector<std::string> ops;
  for (const PartitionInfo& partition : partitioned.partitions) ops.push_back(partition.ops.at(0));
  EXPECT_THAT(ops, ElementsAre("conv", "reduce_mean", "matmul"));
}

TEST_F(MicroBatchesTest, OneRowIsNoBatch) { EXPECT_THAT(MicroBatchesOf(Cut(1)), Each(1)); }

// Many cores have large caches together, and wait for each other at the end of each call.
TEST_F(MicroBatchesTest, ThreadsThatAreNotKnownAreMany) {
  SetThreads(0);
  EXPECT_THAT(MicroBatchesOf(Cut(2)), Each(1));
  SetThreads(0, "1");
  EXPECT_THAT(MicroBatchesOf(Cut(2)), Each(2));
  SetThreads(8);
  EXPECT_THAT(MicroBatchesOf(Cut(2)), Each(1));
}

TEST_F(MicroBatchesTest, RowsOfAnOpenBatchAreAKnownOne) {
  UseVm();
  EXPECT_THAT(MicroBatchesOf(Cut(8)), Each(8));
  const ir::Dim n = ir::Dim::Symbol("n");
  const Partitioned partitioned = Cut(n);
  EXPECT_THAT(MicroBatchesOf(partitioned), Each(n));
  EXPECT_THAT(partitioned.partitions[0].why, ::testing::HasSubstr("1 of n rows at a time"));
  EXPECT_EQ(partitioned.partitions[0].call_sites, 3);
  std::vector<std::string> of_one, of_open;
  for (const PartitionInfo& partition : Cut(1).partitions) of_one.push_back(partition.function);
  for (const PartitionInfo& partition : partitioned.partitions) of_open.push_back(partition.function);
  EXPECT_EQ(of_open, of_one);
  // Rows of a size that only a run knows may lie anywhere.
  EXPECT_THAT(MicroBatchesOf(Cut(n, ir::Dim::Symbol("h"))), Each(1));
}

TEST_F(MicroBatchesTest, AnOpenBatchThatIsOneImageGoesAtOnce) {
  UseVm(/*hint=*/1);
  EXPECT_THAT(MicroBatchesOf(Cut(ir::Dim::Symbol("n"))), Each(1));
}

}  // namespace
}  // namespace inlay::collage
