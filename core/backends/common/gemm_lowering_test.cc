#include "core/backends/common/gemm_lowering.h"

#include <limits>

#include "core/backend/testing/cases.h"
#include "core/backends/common/gemm_backend.h"
#include "gtest/gtest.h"

namespace inlay::backends {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;
using Shape = std::vector<int64_t>;

const std::vector<ir::DType> kTypes = {ir::DType::kF32};

GemmDescription Lowered(const Case& c) {
  auto gemm = LowerGemm(c.function, kTypes);
  EXPECT_TRUE(gemm.ok()) << gemm.status();
  return gemm.ok() ? *gemm : GemmDescription();
}

std::string Refusal(const Case& c) {
  auto gemm = LowerGemm(c.function, kTypes);
  EXPECT_EQ(gemm.status().code(), absl::StatusCode::kUnimplemented) << gemm.status();
  return std::string(gemm.status().message());
}

Case Matmul(const Shape& a, const Shape& b, bool transpose_a = false, bool transpose_b = false) {
  CaseBuilder builder;
  auto x = builder.In(a), y = builder.Weight(b);
  return builder.Done("matmul",
                      {builder.Op("matmul", {x, y}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}})});
}

void ExpectStrides(const GemmOperand& operand, int64_t rows, int64_t columns, const Shape& batch) {
  EXPECT_EQ(operand.row_stride, rows);
  EXPECT_EQ(operand.column_stride, columns);
  EXPECT_EQ(operand.batch_strides, batch);
}

TEST(GemmLowering, JoinsTheRowsOfABatchThatMeetsOneMatrix) {
  const GemmDescription d = Lowered(Matmul({2, 9, 40}, {40, 56}));
  EXPECT_EQ(std::vector<int64_t>({d.m, d.n, d.k}), Shape({18, 56, 40}));
  EXPECT_TRUE(d.batch.empty());
  EXPECT_TRUE(d.b_constant);
  EXPECT_EQ(d.flops(), 2.0 * 18 * 56 * 40);
}

TEST(GemmLowering, BroadcastsTheBatch) {
  const GemmDescription d = Lowered(Matmul({5, 1, 7, 8}, {3, 8, 9}));
  EXPECT_EQ(d.batch, Shape({5, 3}));
  ExpectStrides(d.a, 8, 1, {56, 0});
  ExpectStrides(d.b, 9, 1, {0, 72});
}

TEST(GemmLowering, StridesOfWhatIsTransposed) {
  const GemmDescription d = Lowered(Matmul({16, 11}, {13, 16}, true, true));
  ExpectStrides(d.a, 1, 11, {});
  ExpectStrides(d.b, 1, 16, {});
  EXPECT_TRUE(d.a_transposed() && d.b_transposed());
  // Nothing is transposed along an extent of 1.
  const GemmDescription row = Lowered(Matmul({4, 8}, {1, 8}, false, true));
  EXPECT_FALSE(row.b_transposed());
  const GemmDescription outer = Lowered(Matmul({1, 4}, {5, 1}, true, true));
  EXPECT_FALSE(outer.a_transposed() || outer.b_transposed());
  EXPECT_EQ(outer.b.row_stride, 5);
}

TEST(GemmLowering, VectorsAreMatrices) {
  const GemmDescription column = Lowered(Matmul({4, 6, 8}, {8}));
  EXPECT_EQ(std::vector<int64_t>({column.m, column.n, column.k}), Shape({24, 1, 8}));
  const GemmDescription row = Lowered(Matmul({8}, {8, 3}));
  EXPECT_EQ(std::vector<int64_t>({row.m, row.n, row.k}), Shape({1, 3, 8}));
  const GemmDescription dot = Lowered(Matmul({8}, {8}));
  EXPECT_EQ(std::vector<int64_t>({dot.m, dot.n, dot.k}), Shape({1, 1, 8}));
}

TEST(GemmLowering, AConvolutionOfOnePixelIsAProduct) {
  CaseBuilder b;
  auto y = b.Op("conv", {b.In({2, 8, 5, 7}), b.Weight({16, 8, 1, 1}), b.Weight({16})});
  const GemmDescription d = Lowered(b.Done("conv", {b.Op("relu", {y})}));
  EXPECT_EQ(std::vector<int64_t>({d.m, d.n, d.k}), Shape({16, 35, 8}));
  ExpectStrides(d.a, 8, 1, {0});
  ExpectStrides(d.b, 35, 1, {280});
  EXPECT_FALSE(d.b_constant);  // that is the image
  ASSERT_EQ(d.steps.size(), 2u);
  ExpectStrides(d.steps[0].operand, 1, 0, {0});  // a bias a row
}

TEST(GemmLowering, OperandsOfSteps) {
  CaseBuilder b;
  auto y = b.Op("matmul", {b.In({2, 3, 9, 16}), b.In({2, 3, 10, 16})}, {{"transpose_b", true}});
  y = b.Op("mul", {y, ir::MakeScalar(ir::DType::kF32, 0.25)});
  y = b.Op("add", {y, b.In({2, 1, 1, 10})});  // attention's mask
  y = b.Op("sub", {b.In({9, 1}), y});
  const GemmDescription d = Lowered(b.Done("scores", {y}));
  ASSERT_EQ(d.steps.size(), 3u);
  EXPECT_EQ(d.steps[0].operand.input, -1);
  EXPECT_EQ(d.steps[0].operand.number, 0.25);
  ExpectStrides(d.steps[1].operand, 0, 1, {10, 0});
  EXPECT_EQ(d.steps[2].op, "rsub");
  ExpectStrides(d.steps[2].operand, 1, 0, {0, 0});
}

TEST(GemmLowering, RefusesWithTheReason) {
  auto of = [](auto build) {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({2, 3, 4}), b.Weight({4, 5})});
    return Refusal(b.Done("case", {build(&b, y)}));
  };
  EXPECT_NE(of([](auto* b, auto y) { return b->Op("exp", {y}); }).find("no step for operator 'exp'"),
            std::string::npos);
  EXPECT_NE(of([](auto* b, auto y) { return b->Op("add", {y, b->In({2, 1, 5})}); }).find("a part of the rows"),
            std::string::npos);
  EXPECT_NE(of([](auto* b, auto y) { return b->Op("add", {y, b->In({7, 2, 3, 5})}); }).find("the product is broadcast"),
            std::string::npos);
  EXPECT_NE(of([](auto* b, auto y) { return b->Op("mul", {y, y}); }).find("not a chain"), std::string::npos);
  EXPECT_NE(of([](auto* b, auto y) { return b->Op("div", {b->In({5}), y}); }).find("a division by"), std::string::npos);
  EXPECT_NE(of([](auto* b, auto y) {
              return b->Op("clip", {y}, {{"min", -std::numeric_limits<double>::infinity()}});
            }).find("not finite"),
            std::string::npos);
  CaseBuilder b;
  auto y = b.Op("conv", {b.In({1, 8, 5, 7}), b.Weight({16, 8, 3, 3})});
  EXPECT_NE(Refusal(b.Done("conv", {y})).find("no matrix product"), std::string::npos);
  CaseBuilder empty;
  y = empty.Op("matmul", {empty.In({0, 8}), empty.Weight({8, 3})});
  EXPECT_NE(Refusal(empty.Done("empty", {y})).find("without elements"), std::string::npos);
  CaseBuilder doubles;
  y = doubles.Op("matmul", {doubles.In({2, 8}, ir::DType::kF64), doubles.In({8, 3}, ir::DType::kF64)});
  EXPECT_NE(Refusal(doubles.Done("f64", {y})).find("dtype f64"), std::string::npos);
}

TEST(GemmLowering, RefusesWhatIsNoPartition) {
  Case c = Matmul({2, 3}, {3, 4});
  c.function.attrs.Set(backend::kConstantParams, std::vector<int64_t>{9});
  EXPECT_EQ(LowerGemm(c.function, kTypes).status().code(), absl::StatusCode::kInvalidArgument);
  c.function.attrs.Erase(backend::kConstantParams);
  EXPECT_EQ(LowerGemm(c.function, kTypes).status().code(), absl::StatusCode::kInvalidArgument);
  c = Matmul({2, 3}, {3, 4});
  c.function.body.results = {c.function.params[0]};
  EXPECT_EQ(LowerGemm(c.function, kTypes).status().code(), absl::StatusCode::kInvalidArgument);
}

GemmLibrary Library() {
  GemmLibrary library;
  library.name = "some";
  library.dtypes = kTypes;
  library.options = {{"nb", 64, 16, 256, 16, "columns"}};
  library.required_feature = "avx2";
  return library;
}

TEST(GemmOptions, AreCheckedAgainstTheSchema) {
  target::Target target;
  target.kind = "some";
  EXPECT_EQ(GemmOptions(Library(), target)->at("nb"), 64);
  target.attrs["nb"] = "32";
  EXPECT_EQ(GemmOptions(Library(), target)->at("nb"), 32);
  for (const char* bad : {"31", "0", "512", "many", ""}) {
    target.attrs["nb"] = bad;
    const absl::Status status = GemmOptions(Library(), target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(absl::StrCat("some: nb=", bad, " must be ")), std::string::npos) << status;
  }
  target.attrs = {{"mb", "64"}};
  EXPECT_EQ(GemmOptions(Library(), target).status().message(),
            "the codegen target some has no attribute 'mb'; it has nb, split-flops");
}

TEST(GemmBackend, NeedsItsFeature) {
  target::Target none;
  none.kind = "some";
  const GemmBackend backend(Library());
  const absl::Status status = backend.CheckTarget(*target::Target::Parse("llvm -mcpu=x86-64-v2")->Completed(), none);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("needs a target with avx2"), std::string::npos) << status;
}

}  // namespace
}  // namespace inlay::backends
