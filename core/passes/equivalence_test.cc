// Random graphs of elementwise and data-moving operators mean the same before and after the pipeline, bit for bit, NaN,
// infinities and signed zeros included. Both are evaluated by binding the parameters to literals and folding.
#include <cmath>
#include <cstring>
#include <random>

#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

using Random = std::mt19937_64;

void Bind(ir::Block* block, const std::vector<VarPtr>& params, const std::vector<ir::ConstantPtr>& values) {
  auto bind = [&](Operand& operand) {
    for (size_t i = 0; i < params.size(); ++i) {
      if (operand.var == params[i]) {
        operand = Operand(values[i]);
        return;
      }
    }
  };
  for (ir::Binding& binding : block->bindings) {
    for (Operand& arg : binding.args) bind(arg);
  }
  for (Operand& result : block->results) bind(result);
}

std::vector<ir::ConstantPtr> Evaluate(ir::IRModule module, const std::vector<ir::ConstantPtr>& values) {
  ir::Function& main = module.functions["main"];
  Bind(&main.body, main.params, values);
  main.params.clear();
  absl::StatusOr<ir::IRModule> folded = FoldConstants()->Run(std::move(module), target::CompilationConfig::Default());
  EXPECT_TRUE(folded.ok()) << folded.status();
  std::vector<ir::ConstantPtr> results;
  for (const Operand& result : folded->functions["main"].body.results) {
    EXPECT_TRUE(result.is_literal()) << "not evaluated:\n" << Print(*folded);
    results.push_back(result.constant);
  }
  return results;
}

bool Same(const ir::Constant& a, const ir::Constant& b) {
  if (a.type != b.type) return false;
  for (int64_t i = 0; i < a.type.NumElements(); ++i) {
    const int64_t size = ir::ByteSize(a.type.dtype);
    if (std::memcmp(a.data.data() + i * size, b.data.data() + i * size, size) == 0) continue;
    if (ir::IsFloat(a.type.dtype) && std::isnan(ir::ElementAsDouble(a.type.dtype, a.data, i)) &&
        std::isnan(ir::ElementAsDouble(b.type.dtype, b.data, i))) {
      continue;
    }
    return false;
  }
  return true;
}

class Generator {
 public:
  Generator(uint64_t seed, DType dtype) : random_(seed), dtype_(dtype) {}

  ir::IRModule Run(std::vector<ir::ConstantPtr>* values) {
    for (const Ints& shape : {Ints{2, 3}, Ints{3}, Ints{2, 1}}) {
      const ir::TensorType type = ir::MakeTensorType(dtype_, shape);
      pool_.push_back(b_.Param("x", type));
      values->push_back(Literal(shape));
    }
    for (int i = 0; i < 12; ++i) pool_.push_back(Step());
    std::vector<Operand> results;
    for (size_t i = pool_.size() - 3; i < pool_.size(); ++i) results.push_back(pool_[i]);
    b_.Return(results);
    return b_.Module();
  }

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }

  ir::ConstantPtr Literal(const Ints& shape) {
    static const double kFloats[] = {0.0, -0.0, 1, -1, 2, 0.5, 3, 8, -0.125, 1e30, -1e-30, INFINITY, -INFINITY, NAN};
    static const double kInts[] = {0, 1, 2, -1, 3, 8, -128, 127, 1 << 30};
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    const bool splat = Pick(2) == 0;
    std::vector<double> elements(n);
    for (double& e : elements) e = ir::IsFloat(dtype_) ? kFloats[Pick(14)] : kInts[Pick(9)];
    if (splat) elements.assign(n, elements[0]);
    return FloatLiteral(shape, elements, dtype_);
  }

  VarPtr Any() { return pool_[Pick(pool_.size())]; }

  Operand AnyOrLiteral() {
    if (Pick(3) != 0) return Any();
    static const Ints kShapes[] = {{}, {3}, {2, 1}, {2, 3}, {1, 1}};
    return Literal(kShapes[Pick(5)]);
  }

  // Tries random calls until one has types that fit.
  VarPtr Step() {
    static const char* kUnary[] = {"neg", "abs", "relu", "sign", "identity"};
    static const char* kBinary[] = {"add", "sub", "mul", "div", "minimum", "maximum"};
    static const char* kCompare[] = {"less", "equal", "greater_equal", "not_equal"};
    for (;;) {
      VarPtr x = Any();
      const ir::TensorType& type = x->type.tensor();
      ir::Builder builder(&b_.function);
      absl::StatusOr<VarPtr> y;
      switch (Pick(12)) {
        case 0:
          y = builder.Call(kUnary[Pick(5)], {x});
          break;
        case 1:
        case 2:
        case 3:
        case 4:
          y = Pick(2) == 0 ? builder.Call(kBinary[Pick(6)], {x, AnyOrLiteral()})
                           : builder.Call(kBinary[Pick(6)], {AnyOrLiteral(), x});
          break;
        case 5: {
          y = builder.Call(kCompare[Pick(4)], {x, AnyOrLiteral()});
          if (y.ok()) y = builder.Call("where", {*y, AnyOrLiteral(), AnyOrLiteral()});
          break;
        }
        case 6: {
          Ints perm(type.rank());
          for (int i = 0; i < type.rank(); ++i) perm[i] = i;
          std::shuffle(perm.begin(), perm.end(), random_);
          y = builder.Call("transpose", {x}, {{"perm", perm}});
          break;
        }
        case 7:
          y = builder.Call("reshape", {x}, {{"shape", Pick(2) == 0 ? Ints{-1} : Ints{-1, Pick(2) == 0 ? 3 : 2}}});
          break;
        case 8: {
          Ints begins, ends, steps;
          for (int i = 0; i < type.rank(); ++i) {
            const bool back = Pick(2) == 0;
            begins.push_back(back ? -1 : static_cast<int64_t>(Pick(2)));
            ends.push_back(back ? INT64_MIN : INT64_MAX);
            steps.push_back(back ? -1 : 1);
          }
          y = builder.Call("slice", {x}, {{"begins", begins}, {"ends", ends}, {"steps", steps}});
          break;
        }
        case 9:
          y = builder.Call("expand", {x}, {{"shape", Pick(2) == 0 ? Ints{2, 3} : Ints{1}}});
          break;
        case 10:
          y = type.rank() == 0 ? absl::StatusOr<VarPtr>(x)
                               : builder.Call("gather", {x, IntLiteral({2}, {static_cast<int64_t>(Pick(2)), 1})});
          break;
        default:
          // 2 is what simplify rewrites; the square is exact before it is rounded, whichever way.
          y = ir::IsFloat(dtype_) ? builder.Call("pow", {x, MakeScalar(dtype_, Pick(2) == 0 ? 2 : 1)})
                                  : builder.Call("concat", {x, x}, {{"axis", int64_t{0}}});
          break;
      }
      if (y.ok() && (*y)->type.tensor().NumElements() <= 64) return *y;
    }
  }

  Random random_;
  const DType dtype_;
  FunctionBuilder b_;
  std::vector<VarPtr> pool_;
};

class EquivalenceTest : public ::testing::TestWithParam<DType> {};

TEST_P(EquivalenceTest, PipelineKeepsTheMeaning) {
  int smaller = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    std::vector<ir::ConstantPtr> values;
    const ir::IRModule before = Generator(seed, GetParam()).Run(&values);
    PassManager manager = BuildNormalisePipeline(target::CompilationConfig::Default());
    manager.set_verify_each(true);
    absl::StatusOr<ir::IRModule> after = manager.Run(before);
    ASSERT_TRUE(after.ok()) << "seed " << seed << ": " << after.status() << "\n" << Print(before);
    smaller += after->functions["main"].body.bindings.size() < before.functions.at("main").body.bindings.size();
    const std::vector<ir::ConstantPtr> a = Evaluate(before, values), b = Evaluate(*after, values);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(Same(*a[i], *b[i])) << "seed " << seed << ", result " << i << ": " << a[i]->type.ToString() << "\n"
                                      << Print(before) << "became\n"
                                      << Print(*after);
    }
  }
  EXPECT_GT(smaller, 1000);  // the passes had something to do
}

INSTANTIATE_TEST_SUITE_P(DTypes, EquivalenceTest,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kI8, DType::kU8, DType::kI64),
                         [](const auto& info) { return std::string(ir::Name(info.param)); });

}  // namespace
}  // namespace inlay::passes
