// Every partition that a backend claims of every case: compiled, checked, loaded, run, compared.
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/artifact/static_library.h"
#include "core/backend/testing/conformance/object_check.h"
#include "core/backend/testing/conformance/suite.h"
#include "core/backend/testing/loaded_library.h"
#include "core/backend/testing/partitions.h"
#include "core/runtime/kernel_abi.h"
#include "gtest/gtest.h"

namespace inlay::backend::testing {
namespace {

struct Param {
  std::string backend;
  Case c;
};

void PrintTo(const Param& param, std::ostream* out) { *out << param.backend << " on " << param.c.name; }

std::vector<Param> AllParams() {
  std::vector<Param> params;
  for (const std::string& backend : BackendNames()) {
    for (const Case& c : AllCases()) params.push_back({backend, c});
  }
  return params;
}

void CheckManifest(const proto::StaticLibrary& library, const ir::Function& function, const std::string& backend) {
  const auto& manifest = library.manifest();
  EXPECT_EQ(manifest.format_version(), 1);
  EXPECT_EQ(manifest.kernel_abi_version(), INLAY_KERNEL_ABI_VERSION);
  EXPECT_EQ(manifest.backend(), backend);
  EXPECT_EQ(manifest.backend_version(), GetCodegen(backend).version());
  EXPECT_EQ(manifest.target_triple(), TestTarget().attr("mtriple"));
  EXPECT_NE(manifest.target_cpu(), "");
  for (const auto& required : manifest.required_libraries()) {
    EXPECT_NE(required.soname(), "");
    EXPECT_NE(required.package(), "") << required.soname();
  }
  ASSERT_EQ(manifest.functions_size(), 1);
  const auto& f = manifest.functions(0);
  EXPECT_EQ(f.symbol(), kSymbol);
  ASSERT_EQ(f.inputs_size(), static_cast<int>(function.params.size()));
  ASSERT_EQ(f.outputs_size(), static_cast<int>(function.body.results.size()));
  for (int i = 0; i < f.inputs_size(); ++i) {
    EXPECT_EQ(f.inputs(i).dtype(), static_cast<proto::DType>(function.params[i]->type.tensor().dtype));
    EXPECT_EQ(ByteSize(f.inputs(i)), function.params[i]->type.tensor().NumBytes());
  }
  for (int i = 0; i < f.outputs_size(); ++i) {
    EXPECT_EQ(ByteSize(f.outputs(i)), function.body.results[i].tensor_type().NumBytes());
  }
  const std::vector<int64_t> constants = function.attrs.IntsOr(kConstantParams, {});
  EXPECT_EQ(std::vector<int64_t>(f.constant_inputs().begin(), f.constant_inputs().end()), constants);
  for (int i : f.init_only_inputs()) EXPECT_TRUE(std::count(constants.begin(), constants.end(), i)) << i;
  EXPECT_GE(f.workspace_bytes(), 0);
}

void CheckObjects(const proto::StaticLibrary& library) {
  std::set<std::string> defined;
  for (const auto& object : library.objects()) {
    EXPECT_NE(object.name(), "");
    auto symbols = CheckObject(object.data());
    ASSERT_TRUE(symbols.ok()) << object.name() << ": " << symbols.status();
    for (const std::string& symbol : *symbols) EXPECT_TRUE(defined.insert(symbol).second) << symbol << " twice";
  }
  const auto& f = library.manifest().functions(0);
  EXPECT_TRUE(defined.count(f.symbol() + "_run"));
  EXPECT_EQ(defined.count(f.symbol() + "_init"), f.has_state());
  EXPECT_EQ(defined.count(f.symbol() + "_destroy"), f.has_state());
}

class PartitionConformance : public ::testing::TestWithParam<Param> {
 protected:
  const Case& c() const { return GetParam().c; }

  std::vector<TestPartition> Partitions() {
    return PartitionsOf(GetBackend(GetParam().backend), c().function, TestTarget(), &refusals_);
  }
  // nullptr after a failure was reported.
  std::unique_ptr<LoadedLibrary> Load(const TestPartition& p) {
    auto library = CompileOnce(GetParam().backend, p.function);
    EXPECT_TRUE(library.ok()) << "its rules claim it, but: " << library.status();
    if (!library.ok()) return nullptr;
    library_ = *library;
    auto loaded = LoadedLibrary::Load(library_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }
  std::unique_ptr<LoadedFunction> Init(const LoadedLibrary& loaded, const std::vector<std::string>& inputs,
                                       int num_threads) {
    auto function = LoadedFunction::Init(loaded, library_.manifest().functions(0), inputs, num_threads);
    EXPECT_TRUE(function.ok()) << function.status();
    return function.ok() ? *std::move(function) : nullptr;
  }

  std::vector<std::string> refusals_;
  proto::StaticLibrary library_;
};

TEST_P(PartitionConformance, IsComplete) {
  for (const TestPartition& p : Partitions()) {
    SCOPED_TRACE(p.name);
    auto library = CompileOnce(GetParam().backend, p.function), again = Compile(GetParam().backend, p.function);
    ASSERT_TRUE(library.ok() && again.ok()) << library.status();
    EXPECT_EQ(library->SerializeAsString(), again->SerializeAsString()) << "codegen is not deterministic";
    CheckManifest(*library, p.function, GetParam().backend);
    CheckObjects(*library);
    // And as the linker and the JIT will look at it.
    absl::Status loadable = artifact::CheckStaticLibrary(*library);
    EXPECT_TRUE(loadable.ok()) << loadable;
  }
}

TEST_P(PartitionConformance, ComputesWhatTheReferenceComputes) {
  for (const TestPartition& p : Partitions()) {
    SCOPED_TRACE(p.name);
    auto loaded = Load(p);
    ASSERT_NE(loaded, nullptr);
    const auto inputs = MakeInputs(p.function, c(), 1);
    std::vector<std::string> of_one_thread;
    for (int threads : {1, 2}) {
      auto function = Init(*loaded, inputs, threads);
      ASSERT_NE(function, nullptr);
      auto outputs = function->Run(inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(Compare(p.function, c(), inputs, *outputs), "") << threads << " threads";
      if (threads == 1) continue;
      // Made for two threads, allowed one.
      auto alone = function->Run(inputs, 1);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(Compare(p.function, c(), inputs, *alone), "") << "made for 2 threads, run with 1";
    }
  }
}

// [N, C, S...] as [N, S..., C], or back.
std::string Transposed(const ir::TensorType& type, const std::string& bytes, bool back) {
  const int64_t batch = type.dims[0].value(), channels = type.dims[1].value();
  const int64_t pixels = type.NumElements() / batch / channels;
  const size_t size = bytes.size() / type.NumElements();
  std::string result(bytes.size(), 0);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p) {
        const size_t first = ((n * channels + c) * pixels + p) * size, last = ((n * pixels + p) * channels + c) * size;
        std::memcpy(&result[back ? first : last], &bytes[back ? last : first], size);
      }
    }
  }
  return result;
}

// Whatever part of what it prefers is granted.
TEST_P(PartitionConformance, TakesTheLayoutsThatItPrefers) {
  for (TestPartition& p : Partitions()) {
    const ChannelsLast preferred = GetBackend(GetParam().backend).PrefersChannelsLast(p.function, TestTarget());
    if (preferred.params.empty() && preferred.results.empty()) continue;
    SCOPED_TRACE(p.name);
    ASSERT_TRUE(GetCodegen(GetParam().backend).takes_channels_last());
    const auto inputs = MakeInputs(p.function, c(), 1);
    for (int granted : {1, 2, 3}) {
      TestPartition granting = p;
      const auto params = granted & 1 ? preferred.params : std::vector<int64_t>();
      const auto results = granted & 2 ? preferred.results : std::vector<int64_t>();
      granting.function.attrs.Set(kChannelsLastParams, params);
      granting.function.attrs.Set(kChannelsLastResults, results);
      auto loaded = Load(granting);
      ASSERT_NE(loaded, nullptr);
      auto lying = inputs;
      for (int64_t i : params) {
        lying[i] = Transposed(p.function.params[i]->type.tensor(), inputs[i], false);
      }
      for (int threads : {1, 2}) {
        auto function = Init(*loaded, lying, threads);
        ASSERT_NE(function, nullptr);
        auto outputs = function->Run(lying);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        for (int64_t i : results) {
          (*outputs)[i] = Transposed(p.function.body.results[i].tensor_type(), (*outputs)[i], true);
        }
        EXPECT_EQ(Compare(p.function, c(), inputs, *outputs), "") << "granted " << granted << ", threads " << threads;
      }
    }
  }
}

// Else the test above tests nothing.
TEST(ChannelsLastTest, WhoTakesThemPrefersThemInSomeCase) {
  for (const std::string& backend : BackendNames()) {
    int preferring = 0;
    for (const Case& c : AllCases()) {
      std::vector<std::string> refusals;
      for (const TestPartition& p : PartitionsOf(GetBackend(backend), c.function, TestTarget(), &refusals)) {
        const ChannelsLast preferred = GetBackend(backend).PrefersChannelsLast(p.function, TestTarget());
        preferring += !preferred.params.empty() && !preferred.results.empty();
      }
    }
    RecordProperty("preferring_" + backend, preferring);
    EXPECT_EQ(preferring > 0, GetCodegen(backend).takes_channels_last()) << backend;
  }
}

// One state, two threads, different arguments.
TEST_P(PartitionConformance, RunsFromTwoThreadsAtOnce) {
  for (const TestPartition& p : Partitions()) {
    SCOPED_TRACE(p.name);
    auto loaded = Load(p);
    ASSERT_NE(loaded, nullptr);
    auto inputs = MakeInputs(p.function, c(), 1);
    auto function = Init(*loaded, inputs, 1);
    ASSERT_NE(function, nullptr);
    std::string errors[2];
    auto work = [&](int which) {
      auto mine = MakeInputs(p.function, c(), 2 + which);
      for (int64_t i : p.function.attrs.IntsOr(kConstantParams, {})) mine[i] = inputs[i];
      auto call = function->Prepare(mine);
      for (int round = 0; round < 8 && errors[which].empty(); ++round) {
        absl::Status status = call->Run();
        errors[which] = status.ok() ? "" : status.ToString();
      }
      if (errors[which].empty()) errors[which] = Compare(p.function, c(), mine, call->Outputs());
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    EXPECT_EQ(errors[0], "");
    EXPECT_EQ(errors[1], "");
  }
}

// Bytes of the heap that are in use. Short-lived nodes of a library's own don't show; what a run keeps does.
int64_t HeapInUse() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// What a batch of calls adds to the heap, the least of some: malloc's own caches of free blocks count as in use, and
// come and go; what is kept comes with every batch. Ends early where a batch adds less than `enough`.
template <typename Batch>
int64_t LeastGrowth(int64_t enough, Batch batch) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 6 && least >= enough; ++i) {
    const int64_t before = HeapInUse();
    batch();
    least = std::min(least, HeapInUse() - before);
  }
  return least;
}

TEST_P(PartitionConformance, KeepsNoMemory) {
  for (const TestPartition& p : Partitions()) {
    SCOPED_TRACE(p.name);
    auto loaded = Load(p);
    ASSERT_NE(loaded, nullptr);
    const auto inputs = MakeInputs(p.function, c(), 1);
    {
      auto function = Init(*loaded, inputs, 1);
      ASSERT_NE(function, nullptr);
      auto call = function->Prepare(inputs);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(call->Run().ok());
      bool ok = true;
      const auto runs = [&] {
        for (int i = 0; i < 100; ++i) ok &= call->Run().ok();
      };
      EXPECT_LT(LeastGrowth(800, runs), 800) << "a run keeps memory";  // less than one word a run
      EXPECT_TRUE(ok);
    }
    // Init and destroy, over and over. A library may cache what it compiled, but not without end.
    for (int i = 0; i < 3; ++i) ASSERT_NE(Init(*loaded, inputs, 1), nullptr);
    bool ok = true;
    const auto inits = [&] {
      for (int i = 0; i < 50; ++i) ok &= Init(*loaded, inputs, 1) != nullptr;
    };
    EXPECT_LT(LeastGrowth(1200, inits), 1200) << "destroy leaves memory behind";  // less than a block each
    EXPECT_TRUE(ok);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartitionConformance, ::testing::ValuesIn(AllParams()),
                         [](const auto& info) { return info.param.backend + "_" + info.param.c.name; });

}  // namespace
}  // namespace inlay::backend::testing
