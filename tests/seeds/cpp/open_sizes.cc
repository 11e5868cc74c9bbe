// Models whose sizes are open until a run, made by FunctionBuilder.
#include "support.h"

namespace seeds {
namespace {

using testing::HasSubstr;

class OpenSizes : public Seeds {};

inlay::CompilationConfig Config(const char* executor = "vm") {
  inlay::CompilationConfig config = inlay::config::Cpu();
  config.executor = executor;
  return config;
}

constexpr int64_t kIn = 24, kOut = 17;

float Weight(int64_t row, int64_t column) { return static_cast<float>((row * 7 + column * 3) % 11) - 5; }

// x [batch, steps, 24] times w [24, 17], rows of all steps joined, and a row of ones for each batch.
inlay::IRModule Product() {
  std::vector<float> weights;
  for (int64_t i = 0; i < kIn * kOut; ++i) weights.push_back(Weight(i / kOut, i % kOut));
  inlay::FunctionBuilder b;
  const auto w = b.Weight(Get(inlay::MakeTensor<float>({kIn, kOut}, weights)), "w");
  const auto y = b.Op("matmul", {b.Param("x", "f32", {"batch", "steps", kIn}), w});
  const auto rows = b.Op("reshape", {y}, {{"shape", inlay::Shape{"steps * batch", kOut}}});
  const auto ones =
      b.Op("full", {}, {{"shape", inlay::Shape{"2*batch"}}, {"value", 1.0}, {"dtype", inlay::DType{"f32"}}});
  return Get(b.Finish({rows, ones}, {"rows", "ones"}));
}

void ExpectProduct(const inlay::Module& module, int64_t batch, int64_t steps) {
  SCOPED_TRACE(module.kind() + std::to_string(batch) + "x" + std::to_string(steps));
  std::vector<float> x;
  for (int64_t i = 0; i < batch * steps * kIn; ++i) x.push_back(static_cast<float>(i * 5 % 13) - 6);
  const auto results = Get(module.Run({Get(inlay::MakeTensor<float>({batch, steps, kIn}, x))}));
  ASSERT_EQ(results.size(), 2u);
  ASSERT_EQ(results[0].ndim(), 2);
  EXPECT_EQ(results[0].size(0), batch * steps);
  EXPECT_EQ(results[0].size(1), kOut);
  const auto rows = inlay::Values<float>(results[0]);
  for (int64_t row = 0; row < batch * steps; ++row) {
    for (int64_t column = 0; column < kOut; ++column) {
      float want = 0;
      for (int64_t i = 0; i < kIn; ++i) want += x[row * kIn + i] * Weight(i, column);
      ASSERT_EQ(rows[row * kOut + column], want) << row << " " << column;  // whole numbers: exact in any order
    }
  }
  const auto ones = inlay::Values<float>(results[1]);
  EXPECT_EQ(std::vector<float>(ones.begin(), ones.end()), std::vector<float>(2 * batch, 1.0f));
}

// Compiled once; the results' shapes are the server's inference, in this process, in the daemon and of a library.
TEST_F(OpenSizes, OneArtifactRunsAtEverySize) {
  const inlay::Executable ex = Get(inlay::Build(Product(), Config()));
  ASSERT_TRUE(ex.ExportLibrary(File("open.so")).ok());
  for (const inlay::Module& module : {Get(ex.Jit()), Get(ex.RemoteJit()), Get(inlay::LoadLibrary(File("open.so")))}) {
    for (const inlay::Signature& signature : {ex.signature(), Get(module.signature())}) {
      EXPECT_EQ(signature.inputs[0].dims, inlay::Shape({"batch", "steps", kIn}));
      EXPECT_EQ(signature.inputs[0].shape, (std::vector<int64_t>{-1, -1, kIn}));
      EXPECT_EQ(signature.outputs[0].dims, inlay::Shape({"batch*steps", kOut}));
      EXPECT_EQ(signature.outputs[1].dims, inlay::Shape({"2*batch"}));
    }
    for (const auto& [batch, steps] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {2, 40}, {0, 4}}) {
      ExpectProduct(module, batch, steps);
    }
    const auto wrong = module.Run({Get(inlay::EmptyTensor("f32", {2, 3, kIn + 1}))});
    EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(OpenSizes, BoundsAndHints) {
  inlay::CompilationConfig config = Config();
  config.dim_hints = {{"steps", 384}};
  const inlay::IRModule module = Get(Product().WithBounds({{"steps", {2, 40}}}));
  const inlay::Module run = Get(Get(inlay::Build(Get(module.WithConfiguration(config)))).Jit());
  ExpectProduct(run, 2, 40);
  const auto refused = run.Run({Get(inlay::EmptyTensor("f32", {2, 41, kIn}))});
  EXPECT_THAT(Text(refused), HasSubstr("the model needs 'steps' to be 40 or less; it is 41 from input 'x'"));
  config.dim_hints = {{"steps", 0}};
  EXPECT_THAT(Text(inlay::Build(module, config)), HasSubstr("dim_hints: steps is 0"));
}

// What is no module of such sizes, or of that executor, is refused by the symbol's name.
TEST_F(OpenSizes, Refusals) {
  EXPECT_THAT(Text(inlay::Build(Product(), Config("graph"))),
              HasSubstr("%x: f32[batch, steps, 24] has the symbolic extent 'batch'"));
  inlay::FunctionBuilder b;
  b.SetLocation("here");
  const auto x = b.Param("x", "f32", {"n", 4}), y = b.Param("y", "f32", {"m", 4});
  const absl::Status status = inlay::Build(Get(b.Finish({b.Op("add", {x, y})}, {"z"})), Config()).status();
  EXPECT_THAT(Text(status), HasSubstr("at 'here': the shapes [n, 4] and [m, 4] don't broadcast: n against m"));
  inlay::FunctionBuilder c;
  const auto shape = inlay::Shape{"k", 4};
  const auto z = c.Op("reshape", {c.Param("x", "f32", {"n", 4})}, {{"shape", shape}});
  EXPECT_THAT(Text(inlay::Build(Get(c.Finish({z}, {"z"})), Config())),
              HasSubstr("f32[n, 4] has 4*n elements; they don't fill the shape f32[k, 4]"));
}

// What Python's builder makes of the same texts is the same module, to the byte.
TEST_F(OpenSizes, ModulesArePythons) {
  inlay::FunctionBuilder b;
  const inlay::IRModule module = Get(b.Finish({b.Op("tanh", {b.Param("x", "f32", {"rows", "columns"})})}, {"y"}));
  EXPECT_EQ(module.ToBytes(), Get(inlay::LoadModule((Data() / "open.inlay").string())).ToBytes());
}

// A function of this process whose result is as large as its argument.
TEST_F(OpenSizes, CallPacked) {
  ASSERT_TRUE(inlay::RegisterFunc("seeds.negated", inlay::Function::FromTyped([](inlay::Tensor x) {
                                    const auto values = inlay::Values<float>(x);
                                    std::vector<float> negated;
                                    for (const float v : values) negated.push_back(-v);
                                    return Get(inlay::MakeTensor<float>({x.size(0), 2}, negated));
                                  }),
                                  /*override=*/true)
                  .ok());
  inlay::FunctionBuilder b;
  const auto x = b.Param("x", "f32", {"n", 2});
  const auto y = b.Op("add", {b.CallPacked("seeds.negated", {x}, {"f32", {"n", 2}}), x});
  const inlay::Module run = Get(Get(inlay::Build(Get(b.Finish({y}, {"y"})), Config())).Jit());
  for (const int64_t n : {1, 6}) {
    const auto results = Get(run.Run({Get(inlay::MakeTensor<float>({n, 2}, std::vector<float>(2 * n, 3.0f)))}));
    EXPECT_EQ(results[0].size(0), n);
    EXPECT_EQ(inlay::Values<float>(results[0])[0], 0.0f);
  }
}

}  // namespace
}  // namespace seeds
