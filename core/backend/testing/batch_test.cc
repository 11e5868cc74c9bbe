// What WithBatch says of a partition is true by the reference: rows of the batch in, the same rows out.
#include "core/ir/batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "core/backend/testing/reference.h"
#include "core/ir/structural_hash.h"

namespace inlay::backend::testing {
namespace {

using Shape = CaseBuilder::Shape;

int64_t Batch(const ir::Function& function) {
  for (const ir::VarPtr& param : function.params) {
    if (param->type.tensor().rank() > 0) return param->type.tensor().Shape()[0];
  }
  return 0;
}

std::optional<ir::Rebatched> Fewer(const ir::Function& function, int64_t rows) {
  return ir::WithBatch(function, function.attrs.Ints(kConstantParams), Batch(function), rows);
}

RefTensor Random(const ir::TensorType& type, const Case& c, std::mt19937* rng) {
  RefTensor tensor{type, {}};
  std::uniform_real_distribution<double> real(c.low, c.high);
  for (int64_t i = 0; i < type.NumElements(); ++i) {
    const double value = real(*rng);
    tensor.values.push_back(ir::IsFloat(type.dtype) ? static_cast<float>(value) : std::round(value * 2));
  }
  return tensor;
}

RefTensor Rows(const RefTensor& whole, const ir::TensorType& part, int64_t first_element) {
  const auto begin = whole.values.begin() + first_element;
  return {part, {begin, begin + part.NumElements()}};
}

// Row by row (or by `rows`) gives what all rows at once give.
void ExpectSame(const Case& c, const ir::Rebatched& fewer, int64_t rows) {
  std::mt19937 rng(7);
  std::vector<RefTensor> inputs;
  for (const ir::VarPtr& param : c.function.params) inputs.push_back(Random(param->type.tensor(), c, &rng));
  const auto whole = Evaluate(c.function, inputs);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int64_t part = 0; part < Batch(c.function) / rows; ++part) {
    std::vector<RefTensor> taken;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::TensorType& type = fewer.function.params[i]->type.tensor();
      taken.push_back(fewer.batched_params[i] ? Rows(inputs[i], type, part * type.NumElements()) : inputs[i]);
    }
    const auto results = Evaluate(fewer.function, taken);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), whole->size());
    for (size_t r = 0; r < results->size(); ++r) {
      const RefTensor& result = (*results)[r];
      const RefTensor expected = Rows((*whole)[r], result.type, part * result.type.NumElements());
      for (size_t e = 0; e < expected.values.size(); ++e) {
        if (std::isnan(expected.values[e])) continue;
        ASSERT_NEAR(result.values[e], expected.values[e], 1e-5 + 1e-5 * std::abs(expected.values[e]))
            << "result " << r << " of part " << part << ", element " << e;
      }
    }
  }
}

TEST(Batch, EveryConformanceCaseThatItTakesApartGivesTheSameRows) {
  int taken = 0;
  for (const Case& c : AllCases()) {
    const int64_t batch = Batch(c.function);
    if (batch < 2 || batch > 64) continue;
    SCOPED_TRACE(c.name);
    for (int64_t rows : {int64_t{1}, batch / 2}) {
      if (rows < 1 || batch % rows != 0) continue;
      const std::optional<ir::Rebatched> fewer = Fewer(c.function, rows);
      if (!fewer.has_value()) continue;
      ++taken;
      ExpectSame(c, *fewer, rows);
    }
  }
  EXPECT_GE(taken, 50);
}

// One operator on x of 4 rows (and weights), as a function.
Case One(const std::string& op, const std::vector<Shape>& inputs, ir::Attrs attrs,
         const std::vector<Shape>& weights = {}) {
  CaseBuilder b;
  std::vector<ir::Operand> args;
  for (const Shape& shape : inputs) args.push_back(b.In(shape));
  for (const Shape& shape : weights) args.push_back(b.Weight(shape));
  return b.Done(op, {b.Op(op, args, std::move(attrs))});
}

using Ints = std::vector<int64_t>;

TEST(Batch, AVectorTimesAMatrixHasNoRows) {
  CaseBuilder b;
  std::vector<ir::Operand> args = {b.In({4}), b.Weight({4, 1, 16}, ir::DType::kU8), b.Weight({4, 1})};
  const Case c = b.Done("vector", {b.Op("matmul_nbits", args, {{"bits", int64_t{4}}})});
  EXPECT_FALSE(Fewer(c.function, 2).has_value());
}

TEST(Batch, RowsOfTheseAreTheirOwn) {
  const Case cases[] = {
      One("softmax", {{4, 6}}, {{"axis", int64_t{1}}}),
      One("reduce_mean", {{4, 6, 3}}, {{"axes", Ints{1, 2}}, {"keepdims", true}}),
      One("transpose", {{4, 6, 3}}, {{"perm", Ints{0, 2, 1}}}),
      One("reshape", {{4, 6, 3}}, {{"shape", Ints{4, 3, 6}}}),
      One("concat", {{4, 6}, {4, 2}}, {{"axis", int64_t{1}}}),
      One("slice", {{4, 6}}, {{"begins", Ints{0, 1}}, {"ends", Ints{INT64_MAX, 3}}, {"steps", Ints{1, 1}}}),
      One("pad", {{4, 6}}, {{"pads", Ints{0, 1, 0, 2}}}),
      One("expand", {{4, 1, 3}}, {{"shape", Ints{4, 6, 3}}}),
      One("add", {{4, 6}}, {}, {{6}}),
      One("add", {{4, 6}, {4, 6}}, {}),
      One("matmul", {{4, 6}}, {}, {{6, 5}}),
      One("matmul", {{4, 3, 6}, {4, 6, 5}}, {}),
      One("matmul", {{4, 3, 6}}, {}, {{6, 5}}),
      One("conv", {{4, 3, 5, 5}}, {}, {{2, 3, 3, 3}}),
      One("layer_norm", {{4, 6}}, {{"axis", int64_t{1}}}, {{6}, {6}}),
      One("relu", {{4, 6}}, {}),
      One("log_softmax", {{4, 6}}, {{"axis", int64_t{1}}}),
      One("reduce_prod", {{4, 6}}, {{"axes", Ints{1}}}),
      One("max_pool", {{4, 3, 6, 6}}, {{"kernel", Ints{2, 2}}}),
      One("avg_pool", {{4, 3, 6, 6}}, {{"kernel", Ints{2, 2}}}),
      One("batch_norm", {{4, 3, 6}}, {}, {{3}, {3}, {3}, {3}}),
      One("conv_transpose", {{4, 3, 5, 5}}, {}, {{3, 2, 3, 3}}),
  };
  for (const Case& c : cases) {
    for (int64_t rows : {1, 2}) {
      SCOPED_TRACE(c.name);
      const std::optional<ir::Rebatched> fewer = Fewer(c.function, rows);
      ASSERT_TRUE(fewer.has_value());
      ExpectSame(c, *fewer, rows);
    }
  }
}

// One operator on open rows (and weights of known sizes).
ir::Function Open(const std::string& op, std::vector<ir::TensorType> inputs, ir::Attrs attrs,
                  const std::vector<Shape>& weights = {}) {
  ir::Function function;
  ir::Builder b(&function);
  std::vector<ir::Operand> args;
  for (const ir::TensorType& type : inputs) args.push_back(b.Param("x", type));
  for (const Shape& shape : weights) args.push_back(b.Param("w", ir::MakeTensorType(ir::DType::kF32, shape)));
  b.Return({*b.Call(op, args, std::move(attrs))});
  return function;
}

TEST(Batch, AnOpenBatchIsTakenApartIntoWhatAKnownOneIs) {
  const ir::Dim n = ir::Dim::Symbol("n");
  const auto type = [](std::vector<ir::Dim> dims) { return ir::TensorType{ir::DType::kF32, std::move(dims)}; };
  const auto dims = [](std::vector<std::string> names) { return ir::AttrValue(std::move(names)); };
  const Ints slice_begins = {0, 1}, slice_ends = {INT64_MAX, 3}, ones = {1, 1};
  struct Pair {
    ir::Function open;
    Case known;
  };
  const Pair pairs[] = {
      {Open("relu", {type({n, 6})}, {}), One("relu", {{4, 6}}, {})},
      {Open("add", {type({n, 6}), type({n, 6})}, {}), One("add", {{4, 6}, {4, 6}}, {})},
      {Open("softmax", {type({n, 6})}, {{"axis", int64_t{1}}}), One("softmax", {{4, 6}}, {{"axis", int64_t{1}}})},
      {Open("reshape", {type({n, 6, 3})}, {{"shape", Ints{-1, 18}}, {"dims", dims({"n", ""})}}),
       One("reshape", {{4, 6, 3}}, {{"shape", Ints{4, 18}}})},
      {Open("reshape", {type({n, 6, 3})}, {{"shape", Ints{-1, 18}}}),
       One("reshape", {{4, 6, 3}}, {{"shape", Ints{4, 18}}})},
      {Open("expand", {type({n, 1, 3})}, {{"shape", Ints{-1, 6, 3}}, {"dims", dims({"n", "", ""})}}),
       One("expand", {{4, 1, 3}}, {{"shape", Ints{4, 6, 3}}})},
      {Open("slice", {type({n, 6})}, {{"begins", slice_begins}, {"ends", slice_ends}, {"steps", ones}}),
       One("slice", {{4, 6}}, {{"begins", slice_begins}, {"ends", slice_ends}, {"steps", ones}})},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.known.name);
    const auto open = ir::WithBatch(pair.open, {}, n, 1), known = Fewer(pair.known.function, 1);
    ASSERT_TRUE(open.has_value());
    ASSERT_TRUE(known.has_value());
    ir::Function expected = known->function;
    expected.attrs = open->function.attrs;
    EXPECT_EQ(ir::StructuralHash(open->function), ir::StructuralHash(expected));
    ExpectSame(pair.known, *open, 1);
  }
}

TEST(Batch, RowsThatMeetInAnOpenBatchAreNotTakenApart) {
  const ir::Dim n = ir::Dim::Symbol("n");
  const ir::TensorType x{ir::DType::kF32, {n, 6}}, square{ir::DType::kF32, {n, n}};
  const Ints zeros = {0, 0}, ones = {1, 1};
  const ir::Function functions[] = {
      Open("softmax", {x}, {{"axis", int64_t{0}}}),
      Open("reshape", {x}, {{"shape", Ints{6, -1}}}),
      Open("reshape", {x}, {{"shape", Ints{-1, 3}}}),
      Open("transpose", {square}, {{"perm", Ints{1, 0}}}),
      Open("slice", {x}, {{"begins", zeros}, {"ends", Ints{-1, 6}}, {"steps", ones}}),
      Open("slice", {x}, {{"begins", Ints{1, 0}}, {"ends", Ints{INT64_MAX, 6}}, {"steps", ones}}),
      Open("concat", {x, x}, {{"axis", int64_t{0}}}),
  };
  for (const ir::Function& function : functions) {
    EXPECT_FALSE(ir::WithBatch(function, {}, n, 1).has_value()) << ir::Describe(function.body.bindings[0]);
  }
}

TEST(Batch, RowsThatMeetAreNotTakenApart) {
  const Case cases[] = {
      One("softmax", {{4, 6}}, {{"axis", int64_t{0}}}),
      One("reduce_mean", {{4, 6}}, {{"axes", Ints{0}}, {"keepdims", true}}),
      One("transpose", {{4, 4}}, {{"perm", Ints{1, 0}}}),
      One("reshape", {{4, 6}}, {{"shape", Ints{2, 12}}}),
      One("concat", {{4, 6}, {4, 6}}, {{"axis", int64_t{0}}}),
      One("concat", {{4, 6}}, {{"axis", int64_t{1}}}, {{4, 2}}),  // weights that have as many rows
      One("slice", {{4, 6}}, {{"begins", Ints{1, 0}}, {"ends", Ints{4, 6}}, {"steps", Ints{1, 1}}}),
      One("slice", {{4, 6}}, {{"begins", Ints{3, 0}}, {"ends", Ints{-5, 6}}, {"steps", Ints{-1, 1}}}),
      One("pad", {{4, 6}}, {{"pads", Ints{1, 0, 0, 0}}}),
      One("add", {{4, 4}}, {}, {{4, 4}}),               // a weight a row
      One("add", {{4, 4}, {4}}, {}),                    // whose leading extent lies along the columns
      One("matmul", {{4, 4}, {4, 4}}, {}),              // each row meets all of the other's
      One("matmul", {{4, 3, 4}, {4, 5}}, {}),           // 4 is what is summed over
      One("cumsum", {{4, 6}}, {{"axis", int64_t{1}}}),  // not known not to
      One("layer_norm", {{4, 6}}, {{"axis", int64_t{0}}}, {{4, 6}, {4, 6}}),
  };
  for (const Case& c : cases) EXPECT_FALSE(Fewer(c.function, 1).has_value()) << c.name;
}

}  // namespace
}  // namespace inlay::backend::testing
