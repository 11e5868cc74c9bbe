// The whole compiler in one process, with the real backends and a cache in memory.
#ifndef INLAY_TESTS_INTEGRATION_PIPELINE_FIXTURE_H_
#define INLAY_TESTS_INTEGRATION_PIPELINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/file_system.h"
#include "core/cache/memory_action_cache.h"
#include "core/cache/memory_blob_store.h"
#include "core/cache/memory_key_value_table.h"
#include "core/compiler/in_process_compiler.h"
#include "core/compiler/pipeline.h"
#include "core/ir/proto_conversion.h"
#include "core/jit/loaded_module.h"

namespace inlay {

inline ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

inline std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

inline std::vector<float> Ramp(int64_t count, float scale) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>((i * 37) % 23 - 11);
  return values;
}

// Rows are read as `damage` makes them.
class DamagedTable : public cache::MemoryKeyValueTable {
 public:
  absl::StatusOr<std::string> Get(const Digest& key) override {
    absl::StatusOr<std::string> row = MemoryKeyValueTable::Get(key);
    if (row.ok() && damage) *row = damage(*row);
    return row;
  }
  std::function<std::string(const std::string& row)> damage;
};

class PipelineFixture : public ::testing::Test {
 protected:
  explicit PipelineFixture(std::unique_ptr<compiler::InProcessCompiler> workers = nullptr,
                           compiler::Measurer* measurer = nullptr)
      : scratch_(*TempDir::Create("pipeline_test")),
        workers_(workers != nullptr ? std::move(workers)
                                    : std::make_unique<compiler::InProcessCompiler>(scratch_.path())),
        caching_(workers_.get(), &blobs_, &actions_, &explanations_),
        pipeline_(&caching_, measurer, {&published_, &plans_, &costs_}, "test") {}

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
  DamagedTable costs_;
  std::unique_ptr<compiler::InProcessCompiler> workers_;
  compiler::CachingCompiler caching_;
  compiler::Pipeline pipeline_;
};

}  // namespace inlay

#endif  // INLAY_TESTS_INTEGRATION_PIPELINE_FIXTURE_H_
