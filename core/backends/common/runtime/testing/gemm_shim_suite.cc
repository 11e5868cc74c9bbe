#include "core/backends/common/runtime/testing/gemm_shim_suite.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace inlay::backends::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// C = A B + row; A and B as they lie.
struct Problem {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, constant = true;
  const char* dtype = "f32";

  GemmDescription Description() const {
    GemmDescription d;
    d.dtype = dtype;
    d.m = m, d.n = n, d.k = k;
    d.input_elements = {m * k, k * n, n};
    d.a = {0, 0, {}, transpose_a ? 1 : k, transpose_a ? m : 1};
    d.b = {1, 0, {}, transpose_b ? 1 : n, transpose_b ? k : 1};
    d.Normalise();
    d.b_constant = constant;
    d.steps = {{"add", true, 0, 0, false, false, {2, 0, {}, 0, 1}}};
    d.options = GemmShimUnderTest().options;
    d.workspace_bytes = GemmShimUnderTest().workspace_bytes(d);
    return d;
  }
};

std::string Name(const Problem& p) {
  return std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k) + (p.transpose_a ? " A^T" : "") +
         (p.transpose_b ? " B^T" : "") + (p.constant ? "" : " variable");
}

struct FreeDeleter {
  void operator()(void* block) const { std::free(block); }
};

// One state, and a pool of threads of its own: libraries must not count on whose threads call them.
class Loaded {
 public:
  Loaded(const std::string& description, int num_threads, void* const* args) : shim_(GemmShimUnderTest()) {
    ctx_.num_threads = num_threads;
    ctx_.pool = &ctx_;
    ctx_.owner = this;
    ctx_.alloc = [](void* owner, int64_t bytes) { return static_cast<Loaded*>(owner)->New(bytes); };
    ctx_.set_error = [](void* owner, int32_t, const char* message) { static_cast<Loaded*>(owner)->error = message; };
    ctx_.parallel_for = [](void* pool, int64_t n, InlayTask task, void* closure) {
      const int64_t threads = static_cast<InlayCallContext*>(pool)->num_threads;
      std::vector<std::thread> workers;
      for (int64_t i = 0; i < threads; ++i) {
        workers.emplace_back([=] { task(closure, n * i / threads, n * (i + 1) / threads, static_cast<int32_t>(i)); });
      }
      for (std::thread& worker : workers) worker.join();
    };
    code = shim_.init(&ctx_, args, &ctx_.state, description.data(), static_cast<int64_t>(description.size()));
  }
  ~Loaded() {
    if (code == INLAY_OK) shim_.destroy(ctx_.state);
  }
  int32_t Run(void* const* args, int64_t workspace_bytes) {
    std::unique_ptr<void, FreeDeleter> workspace(std::aligned_alloc(64, (workspace_bytes + 64) / 64 * 64));
    ctx_.workspace = workspace.get();
    return shim_.run(&ctx_, args);
  }
  int32_t code;
  std::string error;

 private:
  void* New(int64_t bytes) {
    blocks_.emplace_back(std::aligned_alloc(64, (bytes + 64) / 64 * 64));
    std::memset(blocks_.back().get(), 0, bytes);
    return blocks_.back().get();
  }
  GemmShim shim_;
  InlayCallContext ctx_ = {};
  std::vector<std::unique_ptr<void, FreeDeleter>> blocks_;
};

template <typename T>
struct Data {
  explicit Data(const Problem& p) : a(p.m * p.k), b(p.k * p.n), row(p.n), c(p.m * p.n, kNan) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(static_cast<int>(i * 7 % 13) - 6) / 4;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(static_cast<int>(i * 5 % 11) - 5) / 4;
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<T>(i % 3);
  }
  std::vector<T> a, b, row, c;  // c: NaN where nobody wrote, which no product may read
  std::vector<void*> args() { return {a.data(), b.data(), row.data(), c.data()}; }
};

template <typename T>
void RunOnce(const Problem& p, Data<T>* data, int num_threads) {
  const GemmDescription d = p.Description();
  const std::vector<void*> args = data->args();
  Loaded loaded(nlohmann::json(d).dump(), num_threads, args.data());
  ASSERT_EQ(loaded.code, INLAY_OK) << loaded.error;
  ASSERT_EQ(loaded.Run(args.data(), d.workspace_bytes), INLAY_OK) << loaded.error;
}

// Every product is a small multiple of 1/16: sums are exact in f32.
template <typename T = float>
void Check(const Problem& p, int num_threads) {
  SCOPED_TRACE(Name(p) + ", threads " + std::to_string(num_threads));
  Data<T> data(p);
  RunOnce(p, &data, num_threads);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = data.row[j];
      for (int64_t q = 0; q < p.k; ++q) {
        sum += static_cast<double>(data.a[p.transpose_a ? q * p.m + i : i * p.k + q]) *
               data.b[p.transpose_b ? j * p.k + q : q * p.n + j];
      }
      ASSERT_EQ(data.c[i * p.n + j], static_cast<T>(sum)) << "at " << i << ", " << j;
    }
  }
}

TEST(GemmShim, EveryShape) {
  for (int64_t m : {1, 2, 5, 31, 97}) {
    for (int64_t n : {1, 3, 16, 37, 64, 131}) {
      for (int64_t k : {1, 7, 64, 67, 129}) {
        Check({m, n, k}, 1);
        Check({m, n, k, false, true}, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(GemmShim, EveryWayRound) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      for (const bool constant : {false, true}) {
        for (int threads : {1, 2, 3}) {
          Check({1, 50, 30, a, b, constant}, threads);
          Check({45, 1, 30, a, b, constant}, threads);
          Check({193, 210, 70, a, b, constant}, threads);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GemmShim, F64) {
  if (!GemmShimUnderTest().f64) GTEST_SKIP() << "f32 alone";
  for (const bool transposed : {false, true}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 40}, {40, 1}, {37, 75}}) {
      Check<double>({m, n, 66, transposed, !transposed, true, "f64"}, 1);
      Check<double>({m, n, 66, false, false, false, "f64"}, 2);
    }
  }
}

// 0 times infinity is NaN, and nothing else of the result is touched: no kernel may skip a zero.
TEST(GemmShim, NanAndInfinity) {
  for (int64_t m : {1, 19}) {
    for (int64_t n : {1, 40}) {
      Problem p{m, n, 33};
      Data<float> data(p);
      std::fill(data.a.begin(), data.a.end(), 0.f);
      data.b[5 * n] = kInfinity;
      if (n > 1) data.b[7 * n + 1] = kNan;
      if (m > 1) data.a[3 * p.k] = -kInfinity;
      data.b[0] = 1;
      RunOnce(p, &data, 1);
      EXPECT_TRUE(std::isnan(data.c[0]));
      EXPECT_EQ(std::isnan(data.c[n > 1 ? 1 : 0]), true);
      for (int64_t j = 2; j < n; ++j) EXPECT_EQ(data.c[j], data.row[j]);
      if (m > 1 && n > 2) {
        EXPECT_EQ(data.c[3 * n + 2], -std::copysign(kInfinity, data.b[2]));
      }
    }
  }
}

TEST(GemmShim, DamagedDescriptionsAreErrors) {
  const Problem p{4, 5, 6};
  Data<float> data(p);
  const std::vector<void*> args = data.args();
  auto expect_error = [&](const std::string& bytes) {
    Loaded loaded(bytes, 1, args.data());
    EXPECT_NE(loaded.code, INLAY_OK) << bytes;
    EXPECT_NE(loaded.error, "");
  };
  expect_error("");
  expect_error("{}");
  expect_error(nlohmann::json(p.Description()).dump().substr(0, 100));
  const std::vector<void (*)(GemmDescription*)> damages = {
      [](GemmDescription* d) { d->version = 99; },
      [](GemmDescription* d) { d->dtype = "i8"; },
      [](GemmDescription* d) { d->m = 0; },
      [](GemmDescription* d) { d->k = -3; },
      [](GemmDescription* d) { d->n = int64_t{1} << 40; },
      [](GemmDescription* d) { d->a.input = 7; },
      [](GemmDescription* d) { d->b.input = -1; },
      [](GemmDescription* d) { d->a.row_stride = 100; },
      [](GemmDescription* d) { d->batch = {2}; },
      [](GemmDescription* d) { d->batch = {3}, d->a.batch_strides = d->b.batch_strides = {1000}; },
      [](GemmDescription* d) { d->steps[0].op = "launch"; },
      [](GemmDescription* d) { d->steps[0].operand.row_stride = 9; },
      [](GemmDescription* d) { d->steps[0].operand.column_stride = -1; },
  };
  for (const auto& damage : damages) {
    GemmDescription d = p.Description();
    damage(&d);
    expect_error(nlohmann::json(d).dump());
  }
}

}  // namespace
}  // namespace inlay::backends::testing
