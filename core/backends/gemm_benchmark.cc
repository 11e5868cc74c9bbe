// Matrix products and what is fused to them by every backend, interleaved round by round in one process and on one
// thread: GFLOP/s of the fastest and of the median round, by CPU time.
//
//   gemm_benchmark [TARGET [ROUNDS [backend,backend,...]]]     gemm_benchmark "llvm -mcpu=x86-64-v3" 60 native,libxsmm
//
// TARGET decides what native code is generated for; the libraries choose by CPUID: LIBXSMM_TARGET=hsw,
// ONEDNN_MAX_CPU_ISA=AVX2, OPENBLAS_CORETYPE=Haswell make them comparable.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "core/backend/testing/conformance/suite.h"
#include "core/backend/testing/loaded_library.h"

namespace inlay::backends {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;
using backend::testing::LoadedFunction;
using backend::testing::LoadedLibrary;
using Shape = std::vector<int64_t>;

// Copies of the weights, used in turn: as in a model, they come from memory (or L3), not from L2.
constexpr double kColdBytes = 64e6;

struct Problem {
  Case c;
  double flops, weight_bytes;
};

Problem Linear(int64_t m, int64_t k, int64_t n, const char* activation) {
  CaseBuilder b;
  auto y = b.Op("add", {b.Op("matmul", {b.In({m, k}), b.Weight({k, n})}), b.Weight({n})});
  if (activation != nullptr) y = b.Op(activation, {y});
  const std::string name = absl::StrCat(m, "x", k, "x", n, " bias", activation == nullptr ? "" : " ",
                                        activation == nullptr ? "" : activation);
  return {b.Done(name, {y}), 2.0 * m * n * k, 4.0 * n * k};
}

Problem Attention(int64_t heads, int64_t tokens, int64_t width, bool scores) {
  CaseBuilder b;
  auto a = b.In({heads, tokens, scores ? width : tokens});
  auto y = b.Op("matmul", {a, b.In({heads, tokens, width})}, {{"transpose_b", scores}});
  return {b.Done(absl::StrCat(heads, "x", tokens, "x", width, scores ? " QK^T" : " PV"), {y}),
          2.0 * heads * tokens * tokens * width, 0};
}

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// One backend's code for a problem, with as many states as make the weights cold.
struct Contender {
  std::string backend;
  std::unique_ptr<LoadedLibrary> library;
  std::vector<std::unique_ptr<LoadedFunction>> functions;
  std::vector<std::unique_ptr<LoadedFunction::Call>> calls;
  std::vector<double> seconds;

  void Round() {
    const double begin = Seconds();
    for (auto& call : calls) {
      if (!call->Run().ok()) std::abort();
    }
    seconds.push_back((Seconds() - begin) / static_cast<double>(calls.size()));
  }
};

absl::StatusOr<std::unique_ptr<Contender>> Load(const std::string& backend, const Problem& problem,
                                                const target::Target& target) {
  ir::IRModule module;
  module.functions["benchmarked"] = problem.c.function;
  target::Target codegen_target;
  codegen_target.kind = backend;
  absl::Status usable = backend::testing::GetBackend(backend).CheckTarget(target, codegen_target);
  if (!usable.ok()) return usable;
  auto library = backend::testing::GetCodegen(backend).Codegen({module, target, codegen_target, "/tmp"});
  if (!library.ok()) return library.status();
  auto contender = std::make_unique<Contender>();
  contender->backend = backend;
  auto loaded = LoadedLibrary::Load(*library);
  if (!loaded.ok()) return loaded.status();
  contender->library = *std::move(loaded);
  const auto inputs = backend::testing::MakeInputs(problem.c.function, problem.c, 1);
  const int copies = problem.weight_bytes == 0 ? 1 : static_cast<int>(kColdBytes / problem.weight_bytes) + 1;
  for (int i = 0; i < std::min(copies, 64); ++i) {
    auto function = LoadedFunction::Init(*contender->library, library->manifest().functions(0), inputs, 1);
    if (!function.ok()) return function.status();
    contender->functions.push_back(*std::move(function));
    contender->calls.push_back(contender->functions.back()->Prepare(inputs));
  }
  return contender;
}

void Measure(const Problem& problem, const target::Target& target, const std::vector<std::string>& backends,
             int rounds) {
  std::vector<std::unique_ptr<Contender>> contenders;
  std::printf("%-26s", problem.c.name.c_str());
  for (const std::string& backend : backends) {
    auto contender = Load(backend, problem, target);
    if (contender.ok()) {
      contenders.push_back(*std::move(contender));
    } else {
      std::printf("  %s: %s", backend.c_str(), std::string(contender.status().message()).c_str());
    }
  }
  for (int round = -1; round < rounds; ++round) {
    for (auto& contender : contenders) {
      contender->Round();
      if (round < 0) contender->seconds.clear();
    }
  }
  for (auto& contender : contenders) {
    std::sort(contender->seconds.begin(), contender->seconds.end());
    const double best = contender->seconds.front(), median = contender->seconds[contender->seconds.size() / 2];
    std::printf("  %s %.1f us %.0f (%.0f) GFLOP/s", contender->backend.c_str(), best * 1e6, problem.flops / best * 1e-9,
                problem.flops / median * 1e-9);
  }
  std::printf("\n");
}

int Main(int argc, char** argv) {
  auto target = argc > 1 ? target::Target::Parse(argv[1]) : target::HostTarget();
  if (target.ok()) target = target->Completed();
  if (!target.ok()) {
    std::fprintf(stderr, "%s\n", target.status().ToString().c_str());
    return 1;
  }
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 30;
  std::vector<std::string> backends = backend::testing::BackendNames();
  if (argc > 3) backends = absl::StrSplit(argv[3], ',');
  const std::vector<Problem> problems = {
      Linear(1, 256, 1024, nullptr),  Linear(1, 768, 768, nullptr),    Linear(1, 768, 3072, "gelu"),
      Linear(64, 256, 1024, nullptr), Linear(64, 1024, 1024, "relu"),  Linear(128, 768, 768, nullptr),
      Linear(128, 768, 3072, "gelu"), Linear(128, 3072, 768, nullptr), Linear(37, 501, 331, "relu"),
      Attention(12, 128, 64, true),   Attention(12, 128, 64, false)};
  for (const Problem& problem : problems) Measure(problem, *target, backends, rounds);
  return 0;
}

}  // namespace
}  // namespace inlay::backends

int main(int argc, char** argv) { return inlay::backends::Main(argc, argv); }
