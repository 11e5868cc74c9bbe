#include "core/ir/work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/ir/dim_expr.h"

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
  const int64_t out = 16 * 8 * 8;
  const Work work = CountWork(f, {1});
  EXPECT_EQ(work.flops, 2 * out * 4 * 9 + out);
  EXPECT_EQ(work.constant_bytes, 4 * 16 * 4 * 9);
  EXPECT_EQ(work.bytes, 4 * 800 + 4 * 16 * 4 * 9 + 4 * out);
}

TEST(CountWork, MatmulsOfBatches) {
  Function f;
  Builder b(&f);
  VarPtr x = b.Param("x", MakeTensorType(kF, {2, 1, 5, 7}));
  VarPtr y = b.Param("y", MakeTensorType(kF, {3, 7, 11}));
  b.Return({*b.Call("matmul", {x, y})});
  EXPECT_EQ(CountWork(f, {}).flops, 2 * 2 * 3 * 5 * 7 * 11);
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
  EXPECT_EQ(work.bytes, 4 * 4 * 8 + 4 * 8 + 4 * 4 * 8);
  // Read by something else too: all of it.
  f.body.results.push_back(*b.Call("relu", {table}));
  EXPECT_EQ(CountWork(f, {0}).constant_bytes, 4 * 1000 * 8);
}

TEST(CountWork, OfOpenExtents) {
  Function f;
  Builder b(&f);
  const Dim batch = Dim::Symbol("batch"), height = Dim::Symbol("height");
  VarPtr x = b.Param("x", TensorType{kF, {batch, 8, height, 10}});
  VarPtr w = b.Param("w", MakeTensorType(kF, {16, 8, 3, 3}));
  VarPtr y = *b.Call("relu", {*b.Call("conv", {x, w})});
  b.Return({y});
  const Work work = CountWork(f, {1});
  // 16 channels of height-2 by 8 results, of 72 multiply-adds and a maximum.
  EXPECT_EQ(work.flops.symbol(), "-37120*batch+18560*batch*height");
  EXPECT_EQ(work.constant_bytes, 4 * 16 * 8 * 9);
  EXPECT_EQ(work.bytes.symbol(), "-1024*batch+832*batch*height+4608");
  EXPECT_EQ(CountFlops(f.body.bindings[0]), 0);
  EXPECT_EQ(CountElements(y->type), 0);
}

TEST(CountWork, AMatrixForEachRowAtMost) {
  for (int64_t rows : {3, 100}) {
    Function f;
    Builder b(&f);
    VarPtr x = b.Param("x", MakeTensorType(kF, {rows, 32})),
           which = b.Param("which", MakeTensorType(DType::kI64, {rows}));
    VarPtr w = b.Param("w", MakeTensorType(kF, {8, 32, 40}));
    b.Return({*b.Call("gather_matmul", {x, w, which})});
    const Work work = CountWork(f, {2});
    EXPECT_EQ(work.flops, 2 * rows * 32 * 40);
    EXPECT_EQ(work.constant_bytes, 4 * std::min<int64_t>(rows, 8) * 32 * 40);
  }
}

TEST(CountWork, PlacesReadNoMorePixelsThanTheyAskFor) {
  for (const auto& [places, mode, bytes] : std::vector<std::tuple<int64_t, std::string, int64_t>>{
           {10, "linear", 4 * 10 * 32}, {10, "nearest", 10 * 32}, {10000, "linear", 2 * 50 * 40 * 32}}) {
    Function f;
    Builder b(&f);
    VarPtr x = b.Param("x", MakeTensorType(kF, {2, 50, 40, 32})),
           grid = b.Param("grid", MakeTensorType(kF, {2, places, 2}));
    b.Return({*b.Call("grid_sample", {x, grid}, {{"mode", mode}})});
    const Work work = CountWork(f, {});
    EXPECT_EQ(work.flops, 2 * (mode == "linear" ? 4 : 1) * 2 * places * 32);
    // The pixels (of 10 places those of both images), the grid and the result.
    EXPECT_EQ(work.bytes, 4 * ((places == 10 ? 2 * bytes : bytes) + 2 * places * 2 + 2 * places * 32));
  }
}

TEST(CountElements, OfATupleThoseThatAreKnown) {
  const TensorType known = MakeTensorType(kF, {3, 5}), open{kF, {Dim::Symbol("n"), 7}};
  EXPECT_EQ(CountElements(TupleType{{known, open, known}}), 30);
  EXPECT_EQ(CountBytes(TupleType{{known, open, known}}), 120);
}

TEST(CountWork, WhatIsTooMuchCountsNothing) {
  Function f;
  Builder b(&f);
  std::vector<Dim> dims;
  for (int i = 0; i < 8; ++i) dims.push_back(*AddDims(Dim::Symbol(absl::StrCat("a", i)), Dim::Symbol("b")));
  b.Return({*b.Call("relu", {b.Param("x", TensorType{kF, dims})})});
  const Work work = CountWork(f, {});
  EXPECT_EQ(work.flops, 0);
  EXPECT_EQ(work.bytes, 0);
}

}  // namespace
}  // namespace inlay::ir
