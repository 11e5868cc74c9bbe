// The whole compiler in one process: module -> Executable -> loaded with the JIT -> results, with the real backends,
// and what a second compile finds in the cache.
#include "core/compiler/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/file_system.h"
#include "core/cache/memory_action_cache.h"
#include "core/cache/memory_blob_store.h"
#include "core/cache/memory_key_value_table.h"
#include "core/compiler/in_process_compiler.h"
#include "core/ir/proto_conversion.h"
#include "core/jit/loaded_module.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> Ramp(int64_t count, float scale) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>((i * 37) % 23 - 11);
  return values;
}

class PipelineTest : public ::testing::Test {
 protected:
  PipelineTest()
      : scratch_(*TempDir::Create("pipeline_test")),
        workers_(scratch_.path()),
        caching_(&workers_, &blobs_, &actions_, &explanations_),
        pipeline_(&caching_, {&published_, &plans_}, "test") {}

  ir::ConstantPtr Weight(std::vector<int64_t> shape, float scale) {
    ir::TensorType type = F32(shape);
    return ir::MakeWeight(type, *blobs_.Put(Bytes(Ramp(type.NumElements(), scale))), "w");
  }

  // relu(x[m,k] @ w[k,n] + b[n]) then softmax.
  proto::IRModule Mlp(int64_t m, int64_t k, int64_t n, float weight_scale) {
    ir::IRModule module;
    ir::Builder builder(&module.functions["main"]);
    auto x = builder.Param("x", F32({m, k}));
    auto y = *builder.Call("matmul", {x, Weight({k, n}, weight_scale)}, {}, "fc (Gemm)");
    y = *builder.Call("add", {y, Weight({n}, 0.1f)});
    y = *builder.Call("relu", {y});
    builder.Return({*builder.Call("softmax", {y})});
    return ir::ToProto(module);
  }

  absl::StatusOr<compiler::CompileResult> Compile(const proto::IRModule& module) {
    CancelToken token;
    return pipeline_.Compile(module, &token, nullptr);
  }

  std::vector<float> Run(const proto::Executable& executable, const std::vector<float>& x, int64_t outputs) {
    std::vector<proto::StaticLibrary> libraries(executable.static_libraries_size());
    std::vector<const proto::StaticLibrary*> pointers;
    for (int i = 0; i < executable.static_libraries_size(); ++i) {
      auto blob = blobs_.Get(*Digest::FromBytes(executable.static_libraries(i)));
      EXPECT_TRUE(blob.ok() && libraries[i].ParseFromString(std::string(blob->view())));
      pointers.push_back(&libraries[i]);
    }
    auto get_param = [&](const Digest& digest) -> absl::StatusOr<jit::ParamBytes> {
      auto blob = std::make_shared<cache::Blob>(*blobs_.Get(digest));
      return jit::ParamBytes{blob->view(), blob};
    };
    const std::vector<proto::ParamRef> params(executable.params().begin(), executable.params().end());
    auto module = jit::LoadedModule::Load(executable.plan_json(), pointers, params, get_param, {});
    EXPECT_TRUE(module.ok()) << module.status();
    if (!module.ok()) return {};
    std::vector<float> y(outputs, NAN);
    const void* inputs[] = {x.data()};
    void* results[] = {y.data()};
    absl::Status status = (*module)->Run(inputs, results);
    EXPECT_TRUE(status.ok()) << status;
    return y;
  }

  static std::vector<float> MlpReference(const std::vector<float>& x, int64_t m, int64_t k, int64_t n, float scale) {
    std::vector<float> w = Ramp(k * n, scale), b = Ramp(n, 0.1f), y(m * n);
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0, max = 0;
      for (int64_t j = 0; j < n; ++j) {
        double value = b[j];
        for (int64_t p = 0; p < k; ++p) value += double{x[i * k + p]} * w[p * n + j];
        y[i * n + j] = std::max(value, 0.0);
        max = std::max<double>(max, y[i * n + j]);
      }
      for (int64_t j = 0; j < n; ++j) sum += std::exp(y[i * n + j] - max);
      for (int64_t j = 0; j < n; ++j) y[i * n + j] = std::exp(y[i * n + j] - max) / sum;
    }
    return y;
  }

  TempDir scratch_;
  cache::MemoryBlobStore blobs_;
  cache::MemoryActionCache actions_;
  cache::MemoryKeyValueTable explanations_, published_, plans_;
  compiler::InProcessCompiler workers_;
  compiler::CachingCompiler caching_;
  compiler::Pipeline pipeline_;
};

TEST_F(PipelineTest, CompilesAndRunsAsTheReference) {
  for (auto [m, k, n] : {std::tuple(1, 1, 1), std::tuple(3, 7, 13), std::tuple(16, 64, 33)}) {
    auto result = Compile(Mlp(m, k, n, 0.01f));
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<float> x = Ramp(m * k, 0.05f);
    std::vector<float> y = Run(result->executable, x, m * n), expected = MlpReference(x, m, k, n, 0.01f);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << m << "x" << k << "x" << n << " " << i;
  }
}

TEST_F(PipelineTest, SecondCompileRunsNothingAndNewWeightsHitEverything) {
  auto first = Compile(Mlp(4, 8, 16, 0.01f));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->report.actions_run(), 0);
  auto second = Compile(Mlp(4, 8, 16, 0.01f));
  EXPECT_EQ(second->report.actions_run(), 0);
  EXPECT_EQ(second->executable_digest, first->executable_digest);
  auto retrained = Compile(Mlp(4, 8, 16, 0.02f));
  EXPECT_EQ(retrained->report.actions_run(), 0) << retrained->report.DebugString();
  EXPECT_NE(retrained->executable_digest, first->executable_digest);
  std::vector<float> x = Ramp(32, 0.05f), expected = MlpReference(x, 4, 8, 16, 0.02f);
  std::vector<float> y = Run(retrained->executable, x, 64);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-5);
}

TEST_F(PipelineTest, PlanIsKeptRepeatedByWhoPinsItAndRenewedOnRequest) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  auto first = Compile(module);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->report.plan_source(), "search");
  auto second = Compile(Mlp(4, 8, 16, 0.02f));  // new weights, the same plan
  EXPECT_EQ(second->report.plan_source(), "plan cache");
  EXPECT_EQ(second->report.cover().SerializeAsString(), first->report.cover().SerializeAsString());
  module.mutable_config()->mutable_search()->set_replan(true);
  EXPECT_EQ(Compile(module)->report.plan_source(), "search");

  module = Mlp(4, 8, 16, 0.01f);
  *module.mutable_config()->mutable_search()->mutable_pinned() = first->report.cover();
  auto pinned = Compile(module);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->report.plan_source(), "pinned");
  EXPECT_EQ(pinned->executable_digest, first->executable_digest);
  module = Mlp(4, 8, 17, 0.01f);
  *module.mutable_config()->mutable_search()->mutable_pinned() = first->report.cover();
  auto other = Compile(module);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("config.search.pinned: the cover was made for another"));
}

TEST_F(PipelineTest, ChangedBackendMissesAndSaysWhy) {
  ASSERT_TRUE(Compile(Mlp(4, 8, 16, 0.01f)).ok());
  workers_.set_version_suffix("+changed");
  auto again = Compile(Mlp(4, 8, 16, 0.01f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->report.cache_hits(), 0);
  for (const auto& partition : again->report.partitions()) {
    EXPECT_THAT(partition.miss_reason(), HasSubstr("backend_version changed"));
  }
}

TEST_F(PipelineTest, ChangedShapeMissesOnlyWhereItIs) {
  auto first = Compile(Mlp(4, 8, 16, 0.01f));
  auto other = Compile(Mlp(4, 9, 16, 0.01f));  // the softmax after it keeps its shape
  ASSERT_TRUE(first.ok() && other.ok());
  for (const auto& partition : other->report.partitions()) {
    const bool has_matmul =
        std::find(partition.ops().begin(), partition.ops().end(), "matmul") != partition.ops().end();
    EXPECT_EQ(partition.cache_hit(), !has_matmul) << partition.DebugString();
    if (has_matmul) {
      EXPECT_THAT(partition.miss_reason(), HasSubstr("new structure"));
    }
  }
}

TEST_F(PipelineTest, MissingWeightIsNamed) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  module.mutable_constants(0)->set_digest(std::string(32, 'x'));
  module.mutable_constants(0)->set_name("fc.weight");
  auto result = Compile(module);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("'fc.weight'"));
}

TEST_F(PipelineTest, UnknownBackendIsRefusedWithThoseThereAre) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  module.mutable_config()->mutable_search()->add_backends("cudnn");
  auto result = Compile(module);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("cudnn"));
}

TEST_F(PipelineTest, CancelledBeforeItBegins) {
  CancelToken token;
  token.Cancel();
  EXPECT_EQ(pipeline_.Compile(Mlp(4, 8, 16, 0.01f), &token, nullptr).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace inlay
