// What recognise_gather_matmul writes; that it computes the same is tests/e2e/test_experts.py's.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

struct Experts {
  Ints table = {8, 40, 32}, which = {5}, vectors = {5, 32, 1};
  DType stored = DType::kF32;  // of the table; then it is cast
  bool is_input = false;       // and not a weight
  bool matrices_left = true, transpose_a = false, transpose_b = false, other_use = false;
  int64_t axis = 0;
};

std::string Recognised(const Experts& e) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::MakeTensorType(DType::kF32, e.vectors)),
         which = b.Param("which", ir::MakeTensorType(DType::kI64, e.which));
  Operand table(Weight(e.table, "w", e.stored));
  if (e.is_input) table = b.Param("table", ir::MakeTensorType(e.stored, e.table));
  VarPtr matrices = b.Call("gather", {table, which}, {{"axis", e.axis}});
  if (e.stored != DType::kF32) matrices = b.Call("cast", {matrices}, {{"dtype", DType::kF32}});
  std::vector<Operand> args = {matrices, x};
  if (!e.matrices_left) std::swap(args[0], args[1]);
  VarPtr y = b.Call("matmul", args, {{"transpose_a", e.transpose_a}, {"transpose_b", e.transpose_b}});
  e.other_use ? b.Return({y, matrices}) : b.Return({y});
  return BodyAfter(b, RecogniseGatherMatmul());
}

bool IsRecognised(const Experts& e) { return Recognised(e).find("gather_matmul") != std::string::npos; }

TEST(RecogniseGatherMatmulTest, AMatrixTimesAColumn) {
  EXPECT_EQ(Recognised({}),
            "  %0: f32[5, 32] = reshape(%x, shape=[5, 32])\n"
            "  %1: i64[5] = reshape(%which, shape=[5])\n"
            "  %2: f32[5, 40] = gather_matmul(%0, @w0, %1, transpose_b=true)\n"
            "  %3: f32[5, 40, 1] = reshape(%2, shape=[5, 40, 1])\n"
            "  return %3\n");
  Experts transposed;
  transposed.table = {8, 32, 40};
  transposed.transpose_a = true;
  EXPECT_NE(Recognised(transposed).find("gather_matmul(%0, @w0, %1, transpose_b=false)"), std::string::npos);
}

TEST(RecogniseGatherMatmulTest, ARowTimesAMatrix) {
  Experts e;
  e.matrices_left = false;
  e.table = {8, 32, 40};
  e.which = {2, 3};
  e.vectors = {2, 3, 1, 32};
  EXPECT_EQ(Recognised(e),
            "  %0: f32[6, 32] = reshape(%x, shape=[6, 32])\n"
            "  %1: i64[6] = reshape(%which, shape=[6])\n"
            "  %2: f32[6, 40] = gather_matmul(%0, @w0, %1, transpose_b=false)\n"
            "  %3: f32[2, 3, 1, 40] = reshape(%2, shape=[2, 3, 1, 40])\n"
            "  return %3\n");
  e.table = {8, 40, 32};
  e.transpose_b = true;
  EXPECT_NE(Recognised(e).find("gather_matmul(%0, @w0, %1, transpose_b=true)"), std::string::npos);
  Experts one;  // an index of rank 0
  one.which = {};
  one.vectors = {32, 1};
  EXPECT_NE(Recognised(one).find("f32[1, 40] = gather_matmul("), std::string::npos) << Recognised(one);
}

TEST(RecogniseGatherMatmulTest, WeightsOf16Bits) {
  Experts e;
  e.stored = DType::kBF16;
  EXPECT_EQ(Recognised(e),
            "  %0: f32[5, 32] = reshape(%x, shape=[5, 32])\n"
            "  %1: i64[5] = reshape(%which, shape=[5])\n"
            "  %2: f32[8, 40, 32] = cast(@w0, dtype=f32)\n"
            "  %3: f32[5, 40] = gather_matmul(%0, %2, %1, transpose_b=true)\n"
            "  %4: f32[5, 40, 1] = reshape(%3, shape=[5, 40, 1])\n"
            "  return %4\n");
}

TEST(RecogniseGatherMatmulTest, NothingElse) {
  EXPECT_TRUE(IsRecognised({}));
  Experts e;
  e.is_input = true;
  EXPECT_TRUE(IsRecognised(e));
  e.stored = DType::kBF16;  // each run would widen all matrices
  EXPECT_FALSE(IsRecognised(e));
  e = Experts();
  e.other_use = true;  // it is copied in any case
  EXPECT_FALSE(IsRecognised(e));
  e = Experts();
  e.vectors = {5, 32, 2};  // several vectors
  EXPECT_FALSE(IsRecognised(e));
  e = Experts();
  e.vectors = {1, 32, 1};  // one for all
  EXPECT_FALSE(IsRecognised(e));
  e = Experts();
  e.axis = 1;
  e.table = {5, 8, 32};
  EXPECT_FALSE(IsRecognised(e));
  e = Experts();
  e.table = {8, 31, 32};  // small
  EXPECT_FALSE(IsRecognised(e));
}

TEST(RecogniseGatherMatmulTest, AnOpenNumberOfVectors) {
  FunctionBuilder b;
  const Dim n = Dim::Symbol("n");
  VarPtr x = b.Param("x", ir::TensorType{DType::kF32, {n, 2, 32, 1}});
  VarPtr which = b.Param("which", ir::TensorType{DType::kI64, {n, 2}});
  VarPtr matrices = b.Call("gather", {Weight({8, 40, 32}, "w"), which}, {{"axis", int64_t{0}}});
  b.Return({b.Call("matmul", {matrices, x})});
  const std::string text = BodyAfter(b, RecogniseGatherMatmul());
  EXPECT_NE(text.find("f32[2*n, 40] = gather_matmul("), std::string::npos) << text;
}

}  // namespace
}  // namespace inlay::passes
