#include "core/ir/work.h"

#include <gtest/gtest.h>

namespace inlay::ir {
namespace {

const DType kF = DType::kF32;

TEST(CountWork, ConvolutionWithBiasAndRelu) {
  Function f;
  Builder b(&f);
  VarPtr x = b.Param("x", MakeTensorType(kF, {1, 8, 10, 10}));
  VarPtr w = b.Param("w", MakeTensorType(kF, {16, 4, 3, 3}));
  Attrs attrs;
  attrs.Set("groups", int64_t{2});
  VarPtr y = *b.Call("conv", {x, w}, attrs);
  b.Return({*b.Call("relu", {y})});
  const double out = 16 * 8 * 8;
  const Work work = CountWork(f, {1});
  EXPECT_EQ(work.flops, 2 * out * 4 * 9 + out);
  EXPECT_EQ(work.constant_bytes, 4 * 16 * 4 * 9);
  EXPECT_EQ(work.parameter_bytes, 4 * 800 + work.constant_bytes);
  EXPECT_EQ(work.result_bytes, 4 * out);
}

TEST(CountWork, MatmulsOfBatches) {
  Function f;
  Builder b(&f);
  VarPtr x = b.Param("x", MakeTensorType(kF, {2, 1, 5, 7}));
  VarPtr y = b.Param("y", MakeTensorType(kF, {3, 7, 11}));
  b.Return({*b.Call("matmul", {x, y})});
  EXPECT_EQ(CountWork(f, {}).flops, 2.0 * 2 * 3 * 5 * 7 * 11);
}

TEST(CountWork, OfATableOnlyTheRowsThatAreTaken) {
  Function f;
  Builder b(&f);
  VarPtr table = b.Param("table", MakeTensorType(kF, {1000, 8}));
  VarPtr ids = b.Param("ids", MakeTensorType(DType::kI64, {4}));
  VarPtr rows = *b.Call("gather", {table, ids});
  b.Return({rows});
  Work work = CountWork(f, {0});
  EXPECT_EQ(work.flops, 0);
  EXPECT_EQ(work.constant_bytes, 4 * 4 * 8);
  EXPECT_EQ(work.parameter_bytes, 4 * 4 * 8 + 4 * 8);
  // Read by something else too: all of it.
  f.body.results.push_back(*b.Call("relu", {table}));
  EXPECT_EQ(CountWork(f, {0}).constant_bytes, 4 * 1000 * 8);
}

}  // namespace
}  // namespace inlay::ir
