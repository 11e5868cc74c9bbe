// Type inference of every operator: what it gives, what it refuses.
#include <set>

#include "absl/strings/str_cat.h"
#include "core/ir/op_registry.h"
#include "core/ir/required_extents.h"
#include "core/ir/testing.h"

namespace inlay::ir {
namespace {

using testing::IsInvalid;
using Ints = std::vector<int64_t>;

TensorType T(const std::string& text) {  // "f32[1,3,h]"
  TensorType type;
  const size_t open = text.find('[');
  type.dtype = *ParseDType(text.substr(0, open));
  std::string item;
  for (char c : text.substr(open + 1)) {
    if (c != ',' && c != ']') {
      item += c;
      continue;
    }
    if (item.empty()) continue;
    type.dims.push_back(isdigit(item[0]) ? Dim(atoll(item.c_str())) : Dim::Symbol(item));
    item.clear();
  }
  return type;
}

absl::StatusOr<Type> Infer(absl::string_view op, const std::vector<std::string>& args, Attrs attrs = {},
                           Attrs* canonical = nullptr) {
  std::vector<Operand> operands;
  for (const std::string& arg : args) operands.push_back(MakeVar("x", T(arg)));
  absl::StatusOr<Type> type = OpRegistry::Global().Infer(op, operands, &attrs);
  if (canonical != nullptr) *canonical = attrs;
  return type;
}

std::string Result(absl::string_view op, const std::vector<std::string>& args, Attrs attrs = {}) {
  absl::StatusOr<Type> type = Infer(op, args, std::move(attrs));
  return type.ok() ? type->ToString() : std::string(type.status().message());
}

absl::Status Error(absl::string_view op, const std::vector<std::string>& args, Attrs attrs = {}) {
  return Infer(op, args, std::move(attrs)).status();
}

TEST(OpsTest, CatalogueIsComplete) {
  // The rows of OPS.md.
  const std::set<std::string> expected = {"neg",
                                          "abs",
                                          "sign",
                                          "exp",
                                          "log",
                                          "sqrt",
                                          "rsqrt",
                                          "reciprocal",
                                          "sin",
                                          "cos",
                                          "tan",
                                          "asin",
                                          "acos",
                                          "atan",
                                          "sinh",
                                          "cosh",
                                          "tanh",
                                          "asinh",
                                          "acosh",
                                          "atanh",
                                          "erf",
                                          "sigmoid",
                                          "floor",
                                          "ceil",
                                          "round",
                                          "relu",
                                          "gelu",
                                          "silu",
                                          "softplus",
                                          "leaky_relu",
                                          "elu",
                                          "hard_sigmoid",
                                          "clip",
                                          "logical_not",
                                          "bitwise_not",
                                          "isnan",
                                          "isinf",
                                          "cast",
                                          "identity",
                                          "add",
                                          "sub",
                                          "mul",
                                          "minimum",
                                          "maximum",
                                          "div",
                                          "mod",
                                          "pow",
                                          "equal",
                                          "not_equal",
                                          "less",
                                          "less_equal",
                                          "greater",
                                          "greater_equal",
                                          "logical_and",
                                          "logical_or",
                                          "logical_xor",
                                          "bitwise_and",
                                          "bitwise_or",
                                          "bitwise_xor",
                                          "shift_left",
                                          "shift_right",
                                          "where",
                                          "reduce_sum",
                                          "reduce_mean",
                                          "reduce_prod",
                                          "reduce_max",
                                          "reduce_min",
                                          "argmax",
                                          "argmin",
                                          "cumsum",
                                          "cumprod",
                                          "cummax",
                                          "cummin",
                                          "logcumsumexp",
                                          "softmax",
                                          "log_softmax",
                                          "topk",
                                          "layer_norm",
                                          "batch_norm",
                                          "lrn",
                                          "matmul",
                                          "matmul_integer",
                                          "gather_matmul",
                                          "matmul_nbits",
                                          "conv",
                                          "conv_integer",
                                          "conv_transpose",
                                          "max_pool",
                                          "avg_pool",
                                          "reshape",
                                          "transpose",
                                          "concat",
                                          "split",
                                          "slice",
                                          "expand",
                                          "pad",
                                          "tile",
                                          "gather",
                                          "gather_elements",
                                          "gather_nd",
                                          "scatter_elements",
                                          "scatter_nd",
                                          "trilu",
                                          "full",
                                          "iota",
                                          "resize",
                                          "grid_sample",
                                          "reverse_sequence",
                                          "lstm",
                                          "gru",
                                          "rnn"};
  const std::vector<std::string> names = OpRegistry::Global().Names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

TEST(OpsTest, ArgumentsAndAttributesAreChecked) {
  EXPECT_THAT(Error("frobnicate", {}), IsInvalid("unknown operator 'frobnicate'"));
  EXPECT_THAT(Error("add", {"f32[2]"}), IsInvalid("takes 2 arguments, not 1"));
  EXPECT_THAT(Error("conv", {"f32[2]"}), IsInvalid("takes 2 to 3 arguments, not 1"));
  EXPECT_THAT(Error("concat", {}, {{"axis", int64_t{0}}}), IsInvalid("takes at least 1 arguments, not 0"));
  EXPECT_THAT(Error("relu", {"f32[2]"}, {{"alpha", 1.0}}),
              IsInvalid("unknown attribute 'alpha'; the operator has none"));
  EXPECT_THAT(Error("elu", {"f32[2]"}, {{"beta", 1.0}}), IsInvalid("unknown attribute 'beta'; known: alpha"));
  EXPECT_THAT(Error("cast", {"f32[2]"}), IsInvalid("attribute 'dtype' (dtype) is missing"));
  EXPECT_THAT(Error("reshape", {"f32[2]"}, {{"shape", int64_t{2}}}), IsInvalid("'shape' must be ints, not 2"));
  EXPECT_THAT(Error("gelu", {"f32[2]"}, {{"approximate", std::string("fast")}}), IsInvalid("it must be none, tanh"));
  Attrs attrs;
  ASSERT_TRUE(Infer("elu", {"f32[2]"}, {{"alpha", int64_t{2}}}, &attrs).ok());
  EXPECT_TRUE(attrs == (Attrs{{"alpha", 2.0}}));  // one meaning, one form
}

TEST(OpsTest, ElementwiseAndBroadcast) {
  EXPECT_EQ(Result("relu", {"i8[2,n]"}), "i8[2, n]");
  EXPECT_THAT(Error("exp", {"i32[2]"}), IsInvalid("it must be a float"));
  EXPECT_EQ(Result("isnan", {"f16[2]"}), "bool[2]");
  EXPECT_EQ(Result("cast", {"f16[2]"}, {{"dtype", DType::kI64}}), "i64[2]");
  EXPECT_EQ(Result("add", {"f32[4,1,3]", "f32[5,1]"}), "f32[4, 5, 3]");
  EXPECT_EQ(Result("add", {"f32[b,1]", "f32[b,7]"}), "f32[b, 7]");
  EXPECT_EQ(Result("add", {"f32[0]", "f32[1]"}), "f32[0]");
  EXPECT_THAT(Error("add", {"f32[b]", "f32[7]"}), IsInvalid("b against 7; a symbolic extent equals only itself"));
  EXPECT_THAT(Error("add", {"f32[2]", "f32[3]"}), IsInvalid("[2] and [3] don't broadcast"));
  EXPECT_THAT(Error("add", {"f32[2]", "f64[2]"}), IsInvalid("differ in dtype"));
  EXPECT_EQ(Result("less", {"i32[2]", "i32[1]"}), "bool[2]");
  EXPECT_EQ(Result("pow", {"f32[2]", "i64[2]"}), "f32[2]");
  EXPECT_EQ(Result("where", {"bool[2,1]", "i64[3]", "i64[]"}), "i64[2, 3]");
  EXPECT_THAT(Error("mod", {"f32[2]", "f32[2]"}), IsInvalid("must have fmod=true"));
  EXPECT_THAT(Error("logical_and", {"f32[2]", "f32[2]"}), IsInvalid("must be bool"));
}

TEST(OpsTest, Reductions) {
  EXPECT_EQ(Result("reduce_sum", {"f32[2,3,4]"}), "f32[]");
  EXPECT_EQ(Result("reduce_sum", {"f32[2,3,4]"}, {{"axes", Ints{-1, 0}}}), "f32[3]");
  EXPECT_EQ(Result("reduce_max", {"bool[2,n]"}, {{"axes", Ints{1}}, {"keepdims", true}}), "bool[2, 1]");
  EXPECT_THAT(Error("reduce_sum", {"f32[2]"}, {{"axes", Ints{1}}}), IsInvalid("holds 1; for rank 1"));
  EXPECT_THAT(Error("reduce_sum", {"f32[2,2]"}, {{"axes", Ints{0, -2}}}), IsInvalid("names an axis twice"));
  Attrs attrs;
  ASSERT_TRUE(Infer("reduce_sum", {"f32[2,3]"}, {{"axes", Ints{-1}}}, &attrs).ok());
  EXPECT_EQ(attrs.Ints("axes"), (Ints{1}));
  ASSERT_TRUE(Infer("reduce_sum", {"f32[2,3]"}, {}, &attrs).ok());
  EXPECT_EQ(attrs.Ints("axes"), (Ints{0, 1}));
  EXPECT_EQ(Result("argmax", {"f32[2,3]"}, {{"axis", int64_t{-1}}}), "i64[2]");
  EXPECT_THAT(Error("argmax", {"f32[2,0]"}, {{"axis", int64_t{1}}}), IsInvalid("no element"));
  EXPECT_EQ(Result("softmax", {"f32[2,3]"}), "f32[2, 3]");
  EXPECT_EQ(Result("topk", {"f32[2,5]"}, {{"k", int64_t{3}}}), "(f32[2, 3], i64[2, 3])");
  EXPECT_THAT(Error("topk", {"f32[2,5]"}, {{"k", int64_t{6}}}), IsInvalid("k is 6; axis 1 has 5"));
  EXPECT_THAT(Error("topk", {"f32[2,5]"}, {{"k", int64_t{-1}}}), IsInvalid("'k' is -1; it is an extent"));
  EXPECT_EQ(Result("cummax", {"bf16[2,n]"}, {{"axis", int64_t{-1}}}), "(bf16[2, n], i64[2, n])");
  EXPECT_THAT(Error("cummin", {"bool[2]"}, {{"axis", int64_t{0}}}), IsInvalid("must be a number"));
  EXPECT_EQ(Result("cumprod", {"i32[2,n]"}, {{"axis", int64_t{1}}}), "i32[2, n]");
  EXPECT_THAT(Error("logcumsumexp", {"i32[2]"}, {{"axis", int64_t{0}}}), IsInvalid("must be a float"));
}

TEST(OpsTest, TopKOfAnOpenAxis) {
  EXPECT_EQ(Result("topk", {"f32[2,n]"}, {{"k", int64_t{3}}}), "(f32[2, 3], i64[2, 3])");
  auto named = [](const std::string& k) { return Attrs{{"k", int64_t{-1}}, {"dims", std::vector<std::string>{k}}}; };
  EXPECT_EQ(Result("topk", {"f32[2,n]"}, named("n")), "(f32[2, n], i64[2, n])");
  EXPECT_EQ(Result("topk", {"f32[2,n+m]"}, named(" m*2")), "(f32[2, 2*m], i64[2, 2*m])");
  EXPECT_EQ(Result("topk", {"f32[2,5]"}, named("2+1")), "(f32[2, 3], i64[2, 3])");
  EXPECT_THAT(Error("topk", {"f32[2,n]"}, named("n+1")), IsInvalid("k is n+1; axis 1 has n elements"));
  EXPECT_THAT(Error("topk", {"f32[2,n]"}, named("")), IsInvalid("'dims' has 1 elements and 'k' is -1"));
  Attrs both = named("n");
  both.Set("k", int64_t{3});
  EXPECT_THAT(Error("topk", {"f32[2,n]"}, both), IsInvalid("'dims' has 1 elements and 'k' is 3; it must be -1"));
}

TEST(OpsTest, Normalisation) {
  EXPECT_EQ(Result("layer_norm", {"f32[b,4,8]", "f32[8]", "f32[8]"}), "f32[b, 4, 8]");
  EXPECT_EQ(Result("layer_norm", {"f32[2,4,8]", "f32[4,8]", "f32[8]"}, {{"axis", int64_t{1}}}), "f32[2, 4, 8]");
  EXPECT_THAT(Error("layer_norm", {"f32[2,8]", "f32[4]", "f32[8]"}), IsInvalid("scale f32[4] does not broadcast"));
  EXPECT_EQ(Result("batch_norm", {"f32[b,3,h]", "f32[3]", "f32[3]", "f32[3]", "f32[3]"}), "f32[b, 3, h]");
  EXPECT_THAT(Error("batch_norm", {"f32[1,3]", "f32[3]", "f32[3]", "f32[3]", "f32[4]"}), IsInvalid("argument 4"));
  EXPECT_EQ(Result("lrn", {"f32[1,3,4,4]"}, {{"size", int64_t{3}}}), "f32[1, 3, 4, 4]");
}

TEST(OpsTest, Matmul) {
  EXPECT_EQ(Result("matmul", {"f32[b,12,s,64]", "f32[b,12,64,s]"}), "f32[b, 12, s, s]");
  EXPECT_EQ(Result("matmul", {"f32[4]", "f32[4]"}), "f32[]");
  EXPECT_EQ(Result("matmul", {"f32[4]", "f32[7,4,5]"}), "f32[7, 5]");
  EXPECT_EQ(Result("matmul", {"f32[3,4]", "f32[4]"}), "f32[3]");
  EXPECT_EQ(Result("matmul", {"f32[3,4]", "f32[5,4]"}, {{"transpose_b", true}}), "f32[3, 5]");
  EXPECT_EQ(Result("matmul", {"f32[4,3]", "f32[5,4]"}, {{"transpose_a", true}, {"transpose_b", true}}), "f32[3, 5]");
  EXPECT_THAT(Error("matmul", {"f32[3,4]", "f32[5,6]"}), IsInvalid("4 of f32[3, 4] against 5 of f32[5, 6]"));
  EXPECT_THAT(Error("matmul", {"f32[]", "f32[5,6]"}), IsInvalid("rank 0"));
  EXPECT_THAT(Error("matmul", {"f32[4]", "f32[4,4]"}, {{"transpose_a", true}}), IsInvalid("a vector can't be"));
}

TEST(OpsTest, ProductsOfIntegers) {
  EXPECT_EQ(Result("matmul_integer", {"u8[b,12,s,64]", "i8[64,7]"}), "i32[b, 12, s, 7]");
  EXPECT_EQ(Result("matmul_integer", {"i8[3,4]", "i8[5,4]"}, {{"transpose_b", true}}), "i32[3, 5]");
  EXPECT_THAT(Error("matmul_integer", {"i8[3,4]", "i8[5,6]"}), IsInvalid("4 of i8[3, 4] against 5 of i8[5, 6]"));
  EXPECT_THAT(Error("matmul_integer", {"i8[3,4]", "i32[4,6]"}), IsInvalid("argument 1 is i32[4, 6]; its elements"));
  EXPECT_EQ(Result("conv_integer", {"u8[1,4,9]", "u8[8,2,3]"}, {{"groups", int64_t{2}}}), "i32[1, 8, 7]");
  EXPECT_THAT(Error("conv_integer", {"u8[1,4,9]", "u8[8,4,3]"}, {{"x_zero", int64_t{-1}}}),
              IsInvalid("x_zero is -1, which is no element of u8[1, 4, 9]"));
  EXPECT_THAT(Error("conv_integer", {"f32[1,4,9]", "u8[8,4,3]"}), IsInvalid("must be i8 or u8"));
  EXPECT_THAT(Error("conv_integer", {"i8[1,4,9]", "i8[8,4,3]", "i32[8]"}), IsInvalid("takes 2 arguments, not 3"));
}

TEST(OpsTest, ProductsByMatricesThatDataSays) {
  const char* op = "gather_matmul";
  EXPECT_EQ(Result(op, {"f32[b,32]", "f32[8,32,40]", "i64[b]"}), "f32[b, 40]");
  EXPECT_EQ(Result(op, {"bf16[5,32]", "bf16[8,40,32]", "i32[5]"}, {{"transpose_b", true}}), "bf16[5, 40]");
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[8,40,32]", "i64[5]"}),
              IsInvalid("32 of f32[5, 32] against 40 of f32[8, 40, 32]"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[8,32,40]", "i64[6]"}), IsInvalid("one value a row of a"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[8,32,40]", "f32[5]"}), IsInvalid("i32 or i64"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f16[8,32,40]", "i64[5]"}), IsInvalid("must be f32, as a's"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[0,32,40]", "i64[5]"}), IsInvalid("one matrix or more"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[e,32,40]", "i64[5]"}), IsInvalid("of a known shape"));
  EXPECT_THAT(Error(op, {"f32[5,32]", "f32[32,40]", "i64[5]"}), IsInvalid("rank"));
  EXPECT_THAT(Error(op, {"i32[5,32]", "i32[8,32,40]", "i64[5]"}), IsInvalid("i32[5, 32]"));
}

TEST(OpsTest, PlacesThatDataSays) {
  const char* op = "grid_sample";
  EXPECT_EQ(Result(op, {"f32[n,h,w,c]", "f32[n,5,q,2]"}), "f32[n, 5, q, c]");
  EXPECT_EQ(Result(op, {"f16[2,9,3]", "f16[2,1]"}), "f16[2, 3]");
  EXPECT_EQ(Result(op, {"f64[1,4,5,6,8]", "f64[1,7,3]"}, {{"mode", std::string("nearest")}}), "f64[1, 7, 8]");
  EXPECT_THAT(Error(op, {"f32[2,9,9,3]", "f32[2,5,3]"}), IsInvalid("it must be [2, ..., 2]"));
  EXPECT_THAT(Error(op, {"f32[2,9,9,3]", "f32[1,5,2]"}), IsInvalid("it must be [2, ..., 2]"));
  EXPECT_THAT(Error(op, {"f32[2,9,9,3]", "f32[2]"}), IsInvalid("it must be [2, ..., 2]"));
  EXPECT_THAT(Error(op, {"f32[2,3]", "f32[2,0]"}), IsInvalid("1 to 3 spatial axes"));
  EXPECT_THAT(Error(op, {"f32[2,1,1,1,1,3]", "f32[2,4]"}), IsInvalid("1 to 3 spatial axes"));
  EXPECT_THAT(Error(op, {"f32[2,0,9,3]", "f32[2,5,2]"}), IsInvalid("has no pixels"));
  EXPECT_THAT(Error(op, {"f32[2,9,9,3]", "f16[2,5,2]"}), IsInvalid("f16[2, 5, 2]"));
  EXPECT_THAT(Error(op, {"i32[2,9,9,3]", "i32[2,5,2]"}), IsInvalid("i32[2, 9, 9, 3]"));
  EXPECT_THAT(Error(op, {"f32[2,9,9,3]", "f32[2,5,2]"}, {{"padding", std::string("wrap")}}), IsInvalid("'padding'"));
}

TEST(OpsTest, ProductsOfFewBits) {
  const Attrs four = {{"bits", int64_t{4}}};
  EXPECT_EQ(Result("matmul_nbits", {"f32[b,s,100]", "u8[7,4,16]", "f32[7,4]"}, four), "f32[b, s, 7]");
  EXPECT_EQ(Result("matmul_nbits", {"f16[64]", "u8[7,2,16]", "f16[7,2]", "u8[7,2]"}, four), "f16[7]");
  EXPECT_EQ(Result("matmul_nbits", {"bf16[3,32]", "u8[7,2,16]", "bf16[7,2]", "bf16[7,2]"}, {{"bits", int64_t{8}}}),
            "bf16[3, 7]");
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,4,16]", "f32[7,4]"}, {{"bits", int64_t{3}}}),
              IsInvalid("bits is 3; it must be 2, 4 or 8"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,3,16]", "f32[7,3]"}, four),
              IsInvalid("has 3 blocks of 32 numbers for the 100 columns of f32[3, 100]"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,9,6]", "f32[7,9]"}, four),
              IsInvalid("has 6 bytes; it must be a multiple of 4"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,0]", "f32[7,4]"}, four), IsInvalid("rank"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "i8[7,4,16]", "f32[7,4]"}, four), IsInvalid("must be u8"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[n,4,16]", "f32[7,4]"}, four), IsInvalid("of a known shape"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,k]", "u8[7,4,16]", "f32[7,4]"}, four), IsInvalid("'k'"));
  EXPECT_THAT(Error("matmul_nbits", {"f64[3,100]", "u8[7,4,16]", "f64[7,4]"}, four), IsInvalid("f16, bf16 or f32"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,4,16]", "f16[7,4]"}, four), IsInvalid("must be f32"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,4,16]", "f32[7,4]", "i8[7,4]"}, four),
              IsInvalid("must be f32 or u8"));
  EXPECT_THAT(Error("matmul_nbits", {"f32[3,100]", "u8[7,4,16]", "f32[7,5]"}, four), IsInvalid("one value a block"));
}

TEST(OpsTest, Conv) {
  Attrs attrs;
  EXPECT_EQ(Infer("conv", {"f32[n,3,224,224]", "f32[64,3,7,7]", "f32[64]"},
                  {{"strides", Ints{2, 2}}, {"pads", Ints{3, 3, 3, 3}}}, &attrs)
                ->ToString(),
            "f32[n, 64, 112, 112]");
  EXPECT_EQ(attrs.Ints("dilations"), (Ints{1, 1}));
  EXPECT_EQ(Result("conv", {"f32[1,4,9]", "f32[8,2,3]"}, {{"groups", int64_t{2}}, {"dilations", Ints{2}}}),
            "f32[1, 8, 5]");
  EXPECT_EQ(Result("conv", {"f32[1,3,h,w]", "f32[8,3,3,3]"}, {{"strides", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 1}}}),
            "f32[1, 8, ((h+1)/2), w]");
  EXPECT_THAT(Error("conv", {"f32[1,3,4,4]", "f32[8,4,3,3]"}), IsInvalid("x has 3 channels and groups is 1"));
  EXPECT_THAT(Error("conv", {"f32[1,3,2,2]", "f32[8,3,3,3]"}), IsInvalid("the window spans 3 elements"));
  EXPECT_THAT(Error("conv", {"f32[1,c,4,4]", "f32[8,3,3,3]"}), IsInvalid("'c' is symbolic"));
  EXPECT_THAT(Error("conv", {"f32[1,3,4,4]", "f32[8,3,3,3]"}, {{"strides", Ints{0, 1}}}),
              IsInvalid("'strides' holds 0"));
  EXPECT_THAT(Error("conv", {"f32[1,3,4,4]", "f32[8,3,3,3]"}, {{"pads", Ints{1, 1}}}), IsInvalid("must have 4"));
  EXPECT_THAT(Error("conv", {"f32[1,3,4,4]", "f32[8,3,3,3]", "f32[7]"}), IsInvalid("argument 2 is f32[7]"));
  EXPECT_THAT(Error("conv", {"i32[1,3,4,4]", "i32[8,3,3,3]"}), IsInvalid("must be a float"));
  EXPECT_EQ(Result("conv_transpose", {"f32[1,4,5,5]", "f32[4,8,3,3]"},
                   {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}}),
            "f32[1, 8, 10, 10]");
}

TEST(OpsTest, Pooling) {
  EXPECT_EQ(Result("max_pool", {"f32[1,3,112,112]"},
                   {{"kernel", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}),
            "f32[1, 3, 56, 56]");
  EXPECT_EQ(Result("avg_pool", {"f32[1,3,6]"}, {{"kernel", Ints{3}}, {"strides", Ints{2}}, {"ceil_mode", true}}),
            "f32[1, 3, 3]");
  // The last window would start in the end padding: dropped.
  EXPECT_EQ(Result("max_pool", {"f32[1,1,4]"},
                   {{"kernel", Ints{2}}, {"strides", Ints{3}}, {"pads", Ints{0, 1}}, {"ceil_mode", true}}),
            "f32[1, 1, 2]");
  EXPECT_EQ(Result("max_pool", {"f32[1,1,3]"},
                   {{"kernel", Ints{2}}, {"strides", Ints{3}}, {"pads", Ints{0, 1}}, {"ceil_mode", true}}),
            "f32[1, 1, 1]");
  // Of a symbol: rounded up where the last window stays whatever it is, else a name of its own.
  EXPECT_EQ(Result("max_pool", {"f32[1,1,h]"}, {{"kernel", Ints{3}}, {"strides", Ints{2}}, {"ceil_mode", true}}),
            "f32[1, 1, ((h)/2)]");
  EXPECT_EQ(Result("max_pool", {"f32[1,1,h]"},
                   {{"kernel", Ints{2}}, {"strides", Ints{2}}, {"pads", Ints{0, 1}}, {"ceil_mode", true}}),
            "f32[1, 1, pool(h,2,2,0,1)]");
  EXPECT_THAT(Error("max_pool", {"f32[1,1,4]"}, {{"kernel", Ints{2}}, {"pads", Ints{2, 0}}}),
              IsInvalid("must be smaller than the window"));
  EXPECT_THAT(Error("max_pool", {"f32[1,1,4]"}, {{"kernel", Ints{2, 2}}}), IsInvalid("x has 1 spatial axes"));
}

TEST(OpsTest, ReshapeAndTranspose) {
  Attrs attrs;
  EXPECT_EQ(Infer("reshape", {"f32[2,3,4]"}, {{"shape", Ints{-1, 6}}}, &attrs)->ToString(), "f32[4, 6]");
  EXPECT_EQ(attrs.Ints("shape"), (Ints{4, 6}));
  EXPECT_EQ(Result("reshape", {"f32[b,12,64]"}, {{"shape", Ints{-1, 768}}}), "f32[b, 768]");
  EXPECT_EQ(Result("reshape", {"f32[b,128,64]"}, {{"shape", Ints{-1, 64}}}), "f32[128*b, 64]");
  EXPECT_EQ(Result("reshape", {"f32[0,3]"}, {{"shape", Ints{0}}}), "f32[0]");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Result("reshape", {"f32[b,s,768]"}, {{"shape", Ints{-1, -1, 12, 64}}, {"dims", Texts{"b", "s", "", ""}}}),
            "f32[b, s, 12, 64]");
  EXPECT_EQ(
      Result("reshape", {"f32[b,n-1,64]"}, {{"shape", Ints{-1, -1, -1, 16}}, {"dims", Texts{"b", "n-1", "", ""}}}),
      "f32[b, n-1, 4, 16]");
  EXPECT_EQ(Result("reshape", {"f32[b,s,768]"}, {{"shape", Ints{-1, -1, 64}}, {"dims", Texts{"s * b", "", ""}}}),
            "f32[b*s, 12, 64]");
  EXPECT_EQ(Result("expand", {"f32[1,s]"}, {{"shape", Ints{-1, 1}}, {"dims", Texts{"b", ""}}}), "f32[b, s]");
  EXPECT_EQ(
      Result("iota", {}, {{"shape", Ints{-1}}, {"dims", Texts{"2*s+1"}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}),
      "i64[2*s+1]");
  ASSERT_TRUE(Infer("reshape", {"f32[6]"}, {{"shape", Ints{-1, 2}}, {"dims", Texts{"7-4", ""}}}, &attrs).ok());
  EXPECT_EQ(attrs.Ints("shape"), (Ints{3, 2}));
  EXPECT_FALSE(attrs.Has("dims"));
  EXPECT_THAT(Error("reshape", {"f32[b,s]"}, {{"shape", Ints{-1, -1}}, {"dims", Texts{"b", "t"}}}),
              IsInvalid("don't fill"));
  EXPECT_THAT(Error("reshape", {"f32[b,s]"}, {{"shape", Ints{-1, 2}}, {"dims", Texts{"b", "s"}}}),
              IsInvalid("holds 2 where 'dims' has 's'"));
  EXPECT_THAT(Error("reshape", {"f32[b,s]"}, {{"shape", Ints{-1}}, {"dims", Texts{"b", "s"}}}),
              IsInvalid("'dims' has 2 elements and 'shape' 1"));
  EXPECT_THAT(Error("expand", {"f32[7]"}, {{"shape", Ints{-1}}, {"dims", Texts{"s"}}}), IsInvalid("7 against s"));
  EXPECT_EQ(Result("slice", {"f32[512,64]"}, {{"begins", Ints{1, 0}}, {"ends", Ints{0, 8}}, {"dims", Texts{"s", ""}}}),
            "f32[s, 8]");
  EXPECT_THAT(Error("slice", {"f32[8]"}, {{"begins", Ints{-1}}, {"ends", Ints{0}}, {"dims", Texts{"s"}}}),
              IsInvalid("axis 0 takes 's' elements: only"));
  EXPECT_THAT(Error("slice", {"f32[8]"}, {{"begins", Ints{0}}, {"ends", Ints{0}}, {"dims", Texts{"3"}}}),
              IsInvalid("only"));
  EXPECT_THAT(Error("slice", {"f32[8]"}, {{"begins", Ints{0}}, {"ends", Ints{0}}, {"dims", Texts{}}}),
              IsInvalid("'dims' has 0 elements"));
  EXPECT_THAT(Error("reshape", {"f32[2,3]"}, {{"shape", Ints{5}}}), IsInvalid("has 6 elements; they don't fill"));
  EXPECT_THAT(Error("reshape", {"f32[2,3]"}, {{"shape", Ints{-1, 4}}}), IsInvalid("don't fill"));
  EXPECT_THAT(Error("reshape", {"f32[2,3]"}, {{"shape", Ints{-1, -1}}}), IsInvalid("one may be -1"));
  EXPECT_THAT(Error("reshape", {"f32[2,3]"}, {{"shape", Ints{INT64_MAX, INT64_MAX}}}), IsInvalid("overflows"));
  EXPECT_THAT(Error("reshape", {"f32[0,3]"}, {{"shape", Ints{-1, 0}}}), IsInvalid("ambiguous"));
  EXPECT_EQ(Result("transpose", {"f32[2,3,n]"}, {{"perm", Ints{2, 0, -2}}}), "f32[n, 2, 3]");
  EXPECT_THAT(Error("transpose", {"f32[2,3]"}, {{"perm", Ints{0, 0}}}), IsInvalid("permutation of the 2 axes"));
  EXPECT_THAT(Error("transpose", {"f32[2,3]"}, {{"perm", Ints{0, 1, 2}}}), IsInvalid("permutation"));
}

TEST(OpsTest, ConcatSplitSlice) {
  EXPECT_EQ(Result("concat", {"f32[2,3]", "f32[2,n]"}, {{"axis", int64_t{-1}}}), "f32[2, n+3]");
  EXPECT_THAT(Error("concat", {"f32[2,3]", "f32[3,3]"}, {{"axis", int64_t{1}}}), IsInvalid("but for axis 1"));
  EXPECT_EQ(Result("split", {"f32[2,6]"}, {{"axis", int64_t{1}}, {"sizes", Ints{2, 4}}}), "(f32[2, 2], f32[2, 4])");
  EXPECT_THAT(Error("split", {"f32[6]"}, {{"axis", int64_t{0}}, {"sizes", Ints{2, 3}}}), IsInvalid("don't add up to"));
  EXPECT_THAT(Error("split", {"f32[6]"}, {{"axis", int64_t{0}}, {"sizes", Ints{-2, 8}}}), IsInvalid("don't add up"));
  Attrs attrs;
  auto slice = [&](int64_t begin, int64_t end, int64_t step) {
    absl::StatusOr<Type> type =
        Infer("slice", {"f32[10]"}, {{"begins", Ints{begin}}, {"ends", Ints{end}}, {"steps", Ints{step}}}, &attrs);
    Type again = *Infer("slice", {"f32[10]"}, attrs, &attrs);  // canonical attributes mean the same
    EXPECT_EQ(*type, again);
    return type->ToString();
  };
  EXPECT_EQ(slice(2, 8, 1), "f32[6]");
  EXPECT_EQ(slice(-3, INT64_MAX, 1), "f32[3]");
  EXPECT_EQ(attrs.Ints("begins"), (Ints{7}));
  EXPECT_EQ(attrs.Ints("ends"), (Ints{10}));
  EXPECT_EQ(slice(0, 10, 3), "f32[4]");
  EXPECT_EQ(slice(-1, INT64_MIN, -1), "f32[10]");
  EXPECT_EQ(attrs.Ints("ends"), (Ints{INT64_MIN}));
  EXPECT_EQ(slice(100, 2, -4), "f32[2]");
  EXPECT_EQ(slice(8, 2, 1), "f32[0]");
  EXPECT_EQ(slice(INT64_MIN, INT64_MAX, INT64_MAX), "f32[1]");
  EXPECT_EQ(slice(INT64_MAX, INT64_MIN, INT64_MIN), "f32[1]");
  EXPECT_THAT(Error("slice", {"f32[10]"}, {{"begins", Ints{0}}, {"ends", Ints{5}}, {"steps", Ints{0}}}),
              IsInvalid("the step of axis 0 is 0"));
  EXPECT_EQ(Result("slice", {"f32[n]"}, {{"begins", Ints{0}}, {"ends", Ints{INT64_MAX}}}), "f32[n]");
}

TEST(OpsTest, SlicesOfOpenExtents) {
  auto slice = [](std::string of, int64_t begin, int64_t end, int64_t step) {
    return Result("slice", {"f32[" + of + "]"}, {{"begins", Ints{begin}}, {"ends", Ints{end}}, {"steps", Ints{step}}});
  };
  // What is dropped at an end, divided or turned is told.
  EXPECT_EQ(slice("n", 1, INT64_MAX, 1), "f32[n-1]");
  EXPECT_EQ(slice("n", 0, -1, 1), "f32[n-1]");
  EXPECT_EQ(slice("n+4", 1, -3, 1), "f32[n]");
  EXPECT_EQ(slice("n", 1, INT64_MAX, 2), "f32[((n)/2)]");
  EXPECT_EQ(slice("n*2", 0, INT64_MAX, 2), "f32[n]");
  EXPECT_EQ(slice("n", -1, INT64_MIN, -1), "f32[n]");
  EXPECT_EQ(slice("n", 0, 1, 1), "f32[1]");
  EXPECT_EQ(slice("n", -1, INT64_MAX, 1), "f32[1]");
  EXPECT_EQ(slice("h*7", 0, 3, 1), "f32[3]");
  EXPECT_EQ(slice("h*8-8*(h/2)", -8, -2, 1), "f32[6]");
  // What takes as many as there are, at most, is not.
  EXPECT_EQ(slice("h+1", 0, 3, 1), "f32[slice(h+1,0,3,1)]");
  EXPECT_EQ(slice("n", 0, 5, 1), "f32[slice(n,0,5,1)]");
  EXPECT_EQ(slice("n", -3, INT64_MAX, 1), "f32[slice(n,-3,9223372036854775807,1)]");
  EXPECT_EQ(slice("n", 2, INT64_MAX, 2), "f32[slice(n,2,9223372036854775807,2)]");
  EXPECT_EQ(slice("n", INT64_MAX, 0, -1), "f32[slice(n,9223372036854775807,0,-1)]");
}

TEST(OpsTest, RequiredExtents) {
  auto required = [](absl::string_view op, std::vector<Dim> dims, Attrs attrs) {
    testing::FunctionBuilder b;
    b.Call(op, {b.Param("x", testing::F32(std::move(dims)))}, std::move(attrs));
    std::string text;
    const std::vector<Dim> extents = RequiredExtents(b.function.body.bindings[0]).value();
    for (const Dim& dim : extents) absl::StrAppend(&text, dim.ToString(), ";");
    return text;
  };
  const Dim n = Dim::Symbol("n"), m = Dim::Symbol("m");
  EXPECT_EQ(required("slice", {n, m, 3}, {{"begins", Ints{1, 0, 1}}, {"ends", Ints{-1, INT64_MAX, 3}}}), "n-2;m;");
  EXPECT_EQ(required("slice", {n, m}, {{"begins", Ints{-1, 0}}, {"ends", Ints{INT64_MAX, 5}}}), "n-1;");
  const Dim sevens = Dim::Symbol("7*n");
  EXPECT_EQ(required("slice", {sevens, sevens}, {{"begins", Ints{-5, 1}}, {"ends", Ints{-2, 5}}}), "7*n-5;7*n-5;");
  EXPECT_EQ(required("slice", {n}, {{"begins", Ints{INT64_MAX}}, {"ends", Ints{INT64_MIN}}, {"steps", Ints{-1}}}), "");
  EXPECT_EQ(required("slice", {9, n},
                     {{"begins", Ints{2, 1}},
                      {"ends", Ints{INT64_MAX, INT64_MAX}},
                      {"dims", std::vector<std::string>{"m", "m+1"}}}),
            "-m+7;-m+n-2;");
  for (const auto& [mode, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"reflect", "n-4;m-2;"}, {"wrap", "n-3;m-1;"}, {"edge", "n-1;m-1;"}, {"constant", ""}}) {
    EXPECT_EQ(required("pad", {n, m, 9}, {{"pads", Ints{1, 1, 2, 3, 0, 2}}, {"mode", mode}}), wanted);
  }
  EXPECT_EQ(required("pad", {n}, {{"pads", Ints{-2, 3}}, {"mode", std::string("reflect")}}), "n-6;");
  Attrs resize{{"sizes", Ints{-1, -1, 9}},
               {"dims", std::vector<std::string>{"2*n", "m", ""}},
               {"scales", std::vector<double>{2, 0, 3}},
               {"mode", std::string("nearest")},
               {"coordinate", std::string("asymmetric")}};
  EXPECT_EQ(required("resize", {n, m, 3}, resize), "-n+2147483647;");
  EXPECT_EQ(required("resize", {n, n, m}, resize), "-n+2147483647;n-1;-n+2147483647;m-1;-m+2147483647;");
  testing::FunctionBuilder sample;
  sample.Call("grid_sample",
              {sample.Param("x", testing::F32({2, n, 7, m})), sample.Param("grid", testing::F32({2, m, 2}))});
  const std::vector<Dim> pixels = RequiredExtents(sample.function.body.bindings[0]).value();
  ASSERT_EQ(pixels.size(), 1u);
  EXPECT_EQ(pixels[0].ToString(), "n-1");
  EXPECT_EQ(required("topk", {n, m}, {{"k", int64_t{5}}, {"axis", int64_t{0}}}), "n-5;");
  EXPECT_EQ(required("topk", {n, 9}, {{"k", int64_t{5}}}), "");
  EXPECT_EQ(required("topk", {n, m}, {{"k", int64_t{-1}}, {"dims", std::vector<std::string>{"m"}}}), "");
  EXPECT_EQ(required("topk", {n, m}, {{"k", int64_t{-1}}, {"dims", std::vector<std::string>{"n"}}}), "m-n;");
  EXPECT_EQ(required("relu", {n}, {}), "");
}

TEST(OpsTest, ExpandPadTile) {
  EXPECT_EQ(Result("expand", {"f32[b,1]"}, {{"shape", Ints{3, 1, 4}}}), "f32[3, b, 4]");
  EXPECT_EQ(Result("pad", {"f32[2,n]"}, {{"pads", Ints{1, 0, 2, 3}}}), "f32[5, n+3]");
  EXPECT_THAT(Error("pad", {"f32[2]"}, {{"pads", Ints{-2, -1}}}), IsInvalid("crop more than all"));
  EXPECT_THAT(Error("pad", {"f32[3]"}, {{"pads", Ints{3, 0}}, {"mode", std::string("reflect")}}),
              IsInvalid("at most 2"));
  EXPECT_EQ(Result("pad", {"f32[3]"}, {{"pads", Ints{2, 2}}, {"mode", std::string("reflect")}}), "f32[7]");
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    EXPECT_EQ(Result("pad", {"f32[h,w]"}, {{"pads", Ints{2, 0, 1, -1}}, {"mode", std::string(mode)}}), "f32[h+3, w-1]");
  }
  EXPECT_EQ(Result("tile", {"f32[2,n]"}, {{"repeats", Ints{3, 2}}}), "f32[6, 2*n]");
  EXPECT_EQ(Result("trilu", {"f32[2,2]"}), "f32[2, 2]");
}

TEST(OpsTest, Indexing) {
  EXPECT_EQ(Result("gather", {"f32[30522,384]", "i64[b,128]"}), "f32[b, 128, 384]");
  EXPECT_THAT(Error("gather", {"f32[3]", "f32[2]"}), IsInvalid("must be i32 or i64"));
  EXPECT_THAT(Error("gather", {"f32[0]", "i64[2]"}), IsInvalid("which is empty"));
  EXPECT_EQ(Result("gather_elements", {"f32[3,4]", "i64[2,4]"}), "f32[2, 4]");
  EXPECT_THAT(Error("gather_elements", {"f32[3,4]", "i64[2,5]"}), IsInvalid("reach beyond"));
  EXPECT_EQ(Result("gather_nd", {"f32[2,3,4]", "i64[5,2]"}), "f32[5, 4]");
  EXPECT_EQ(Result("gather_nd", {"f32[2,3,4]", "i64[2,1]"}, {{"batch_dims", int64_t{1}}}), "f32[2, 4]");
  EXPECT_THAT(Error("gather_nd", {"f32[2]", "i64[5,2]"}), IsInvalid("address 2 axes"));
  EXPECT_EQ(Result("scatter_elements", {"f32[3,4]", "i64[1,4]", "f32[1,4]"}), "f32[3, 4]");
  EXPECT_EQ(Result("scatter_nd", {"f32[8,4]", "i64[2,1]", "f32[2,4]"}), "f32[8, 4]");
  EXPECT_THAT(Error("scatter_nd", {"f32[8,4]", "i64[2,1]", "f32[2,5]"}), IsInvalid("one slice of x an index tuple"));
}

TEST(OpsTest, FullIotaResizeReverse) {
  Attrs attrs;
  ASSERT_TRUE(Infer("full", {}, {{"shape", Ints{2}}, {"value", 3.0}, {"dtype", DType::kI64}}, &attrs).ok());
  EXPECT_EQ(attrs.Int("value"), 3);
  EXPECT_THAT(Error("full", {}, {{"shape", Ints{2}}, {"value", 3.5}, {"dtype", DType::kI64}}), IsInvalid("is no i64"));
  EXPECT_THAT(Error("full", {}, {{"shape", Ints{1 << 30, 1 << 30}}, {"value", 0.0}, {"dtype", DType::kF32}}),
              IsInvalid("is too large"));
  EXPECT_EQ(Result("iota", {}, {{"shape", Ints{4}}, {"axis", int64_t{-1}}, {"dtype", DType::kI64}}), "i64[4]");
  Attrs resize{{"sizes", Ints{1, 3, 8, 8}},
               {"scales", std::vector<double>{1, 1, 2, 2}},
               {"mode", std::string("nearest")},
               {"coordinate", std::string("asymmetric")}};
  EXPECT_EQ(Result("resize", {"f32[1,3,4,4]"}, resize), "f32[1, 3, 8, 8]");
  resize.Set("scales", std::vector<double>{1, 1, 2, -1});
  EXPECT_THAT(Error("resize", {"f32[1,3,4,4]"}, resize), IsInvalid("can't go from 4 to 8 by the scale -1"));
  resize.Set("scales", std::vector<double>{1, 1, 2, 2});
  EXPECT_THAT(Error("resize", {"f32[1,3,0,4]"}, resize), IsInvalid("can't go from 0 to 8"));
  resize.Set("sizes", Ints{1, 3, 8, -1});
  EXPECT_THAT(Error("resize", {"f32[1,3,4,4]"}, resize), IsInvalid("its elements are extents"));
  EXPECT_EQ(Result("reverse_sequence", {"f32[5,2]", "i64[2]"}), "f32[5, 2]");
  EXPECT_THAT(Error("reverse_sequence", {"f32[5,2]", "i64[5]"}), IsInvalid("one length a batch element"));
}

TEST(OpsTest, ResizeOfOpenExtents) {
  using Texts = std::vector<std::string>;
  using ::testing::ElementsAre;
  Attrs attrs{{"sizes", Ints{-1, -1, -1, 8}},
              {"dims", Texts{"n", "2*h", "w", ""}},
              {"scales", std::vector<double>{0, 2, 0, 0}},
              {"mode", std::string("linear")},
              {"coordinate", std::string("half_pixel")}};
  EXPECT_EQ(Result("resize", {"f32[n,h,3,4]"}, attrs), "f32[n, 2*h, w, 8]");
  // A scale that follows from the extents is told; another one a run finds.
  auto scales = [&](std::string x) {
    Attrs canonical;
    EXPECT_TRUE(Infer("resize", {x}, attrs, &canonical).ok());
    return canonical.Floats("scales");
  };
  EXPECT_THAT(scales("f32[n,h,w,4]"), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(scales("f32[n*4,h,m,16]"), ElementsAre(0.25, 2, 0, 0.5));
  EXPECT_THAT(scales("f32[n+1,h,w*3,m]"), ElementsAre(0, 2, 1.0 / 3, 0));
  EXPECT_THAT(Error("resize", {"f32[n,h,0,4]"}, attrs), IsInvalid("axis 2 can't go from 0 to w"));
  attrs.Set("dims", Texts{"n", "h"});
  EXPECT_THAT(Error("resize", {"f32[n,h,3,4]"}, attrs), IsInvalid("'dims' has 2 elements and 'sizes' 4"));
}

TEST(OpsTest, Recurrent) {
  Attrs attrs{{"direction", std::string("bidirectional")}, {"hidden_size", int64_t{8}}};
  const std::vector<std::string> lstm = {"f32[s,b,4]", "f32[2,32,4]", "f32[2,32,8]",
                                         "f32[2,64]",  "f32[2,b,8]",  "f32[2,b,8]"};
  EXPECT_EQ(Result("lstm", lstm, attrs), "(f32[s, 2, b, 8], f32[2, b, 8], f32[2, b, 8])");
  std::vector<std::string> peepholes = lstm;
  peepholes.push_back("f32[2,24]");
  EXPECT_EQ(Result("lstm", peepholes, attrs), "(f32[s, 2, b, 8], f32[2, b, 8], f32[2, b, 8])");
  EXPECT_EQ(Result("gru", {"f32[s,b,4]", "f32[2,24,4]", "f32[2,24,8]", "f32[2,48]", "f32[2,b,8]"}, attrs),
            "(f32[s, 2, b, 8], f32[2, b, 8])");
  attrs.Set("direction", std::string("reverse"));
  EXPECT_THAT(Error("lstm", lstm, attrs), IsInvalid("argument 1 is f32[2, 32, 4]; it must be f32[1, 32, 4]"));
  EXPECT_EQ(Result("rnn", {"f32[s,b,4]", "f32[1,8,4]", "f32[1,8,8]", "f32[1,16]", "f32[1,b,8]"}, attrs),
            "(f32[s, 1, b, 8], f32[1, b, 8])");
}

}  // namespace
}  // namespace inlay::ir
