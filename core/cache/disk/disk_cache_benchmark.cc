// What a DiskCache costs: puts (each durable: two fsyncs), verified reads, lookups, and all of them against each other.
//   bazel run //core/cache/disk:disk_cache_benchmark
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "core/cache/completeness_checking_action_cache.h"
#include "core/cache/disk/disk_cache.h"
#include "core/cache/memory_blob_store.h"
#include "core/cache/tiered_blob_store.h"

namespace inlay::cache {
namespace {

struct World {
  TempDir dir = TempDir::Create("disk_cache_benchmark").value();
  metrics::Registry registry;
  std::unique_ptr<DiskCache> cache = [this] {
    DiskCacheOptions options;
    options.directory = dir.path();
    return DiskCache::Open(options, &registry).value();
  }();
  std::vector<Digest> Fill(int count, size_t size) {
    std::vector<Digest> digests;
    for (int i = 0; i < count; ++i) {
      std::string bytes = absl::StrCat(i, " ");
      bytes.resize(size, 'x');
      digests.push_back(cache->blobs().Put(bytes).value());
      cache->actions().Update(digests.back(), {{digests.back()}, "manifest"}).IgnoreError();
    }
    return digests;
  }
};

void Put(benchmark::State& state) {
  World world;
  std::string bytes(state.range(0), 'x');
  int64_t i = 0;
  for (auto _ : state) {
    const std::string head = absl::StrCat(i++);
    bytes.replace(0, head.size(), head);
    if (!world.cache->blobs().Put(bytes).ok()) state.SkipWithError("put");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Put)->Arg(4 << 10)->Arg(100 << 10)->Arg(4 << 20)->UseRealTime();

void Get(benchmark::State& state) {
  World world;
  const std::vector<Digest> digests = world.Fill(64, state.range(0));
  size_t i = 0;
  for (auto _ : state) {
    if (!world.cache->blobs().Get(digests[i++ % digests.size()]).ok()) state.SkipWithError("get");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Get)->Arg(4 << 10)->Arg(100 << 10)->Arg(4 << 20);

void GetThroughMemory(benchmark::State& state) {
  World world;
  MemoryBlobStore memory(64 << 20);
  TieredBlobStore tiered(&memory, &world.cache->blobs());
  const std::vector<Digest> digests = world.Fill(64, state.range(0));
  size_t i = 0;
  for (auto _ : state) {
    if (!tiered.Get(digests[i++ % digests.size()]).ok()) state.SkipWithError("get");
  }
}
BENCHMARK(GetThroughMemory)->Arg(100 << 10);

void Lookup(benchmark::State& state) {
  World world;
  const std::vector<Digest> digests = world.Fill(64, 4096);
  CompletenessCheckingActionCache checking(&world.cache->actions(), &world.cache->blobs(), &world.registry);
  size_t i = 0;
  for (auto _ : state) {
    if (!checking.Lookup(digests[i++ % digests.size()]).ok()) state.SkipWithError("lookup");
  }
}
BENCHMARK(Lookup);

// The cache's share of a warm compile of ResNet-50: 60 lookups with completeness, 60 libraries of 100 KiB read.
void WarmCompile(benchmark::State& state) {
  World world;
  MemoryBlobStore memory(64 << 20);
  TieredBlobStore tiered(&memory, &world.cache->blobs());
  BlobStore& blobs = state.range(0) ? static_cast<BlobStore&>(tiered) : world.cache->blobs();
  const std::vector<Digest> digests = world.Fill(60, 100 << 10);
  CompletenessCheckingActionCache checking(&world.cache->actions(), &blobs, &world.registry);
  for (auto _ : state) {
    for (const Digest& digest : digests) {
      auto result = checking.Lookup(digest);
      if (!result.ok() || !blobs.Get(result->blobs[0]).ok()) state.SkipWithError("miss");
    }
  }
}
BENCHMARK(WarmCompile)->ArgName("memory_tier")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// Readers beside one writer: the read path takes no lock that a put holds for long.
void GetWhilePutting(benchmark::State& state) {
  static World* world = nullptr;
  static std::vector<Digest>* digests = nullptr;
  if (state.thread_index() == 0) {
    world = new World;
    digests = new std::vector<Digest>(world->Fill(64, 4096));
  }
  int64_t i = 0;
  for (auto _ : state) {
    if (state.thread_index() == 0) {
      if (!world->cache->blobs().Put(absl::StrCat("new", i++)).ok()) state.SkipWithError("put");
    } else if (!world->cache->blobs().Get((*digests)[i++ % 64]).ok()) {
      state.SkipWithError("get");
    }
  }
  if (state.thread_index() == 0) {
    delete world;
    delete digests;
  }
}
BENCHMARK(GetWhilePutting)->Threads(2)->UseRealTime();

void ParallelPut(benchmark::State& state) {
  static World* world = nullptr;
  if (state.thread_index() == 0) world = new World;
  std::string bytes(100 << 10, 'x');
  int64_t i = 0;
  for (auto _ : state) {
    const std::string head = absl::StrCat(state.thread_index(), ".", i++);
    bytes.replace(0, head.size(), head);
    if (!world->cache->blobs().Put(bytes).ok()) state.SkipWithError("put");
  }
  if (state.thread_index() == 0) delete world;
}
BENCHMARK(ParallelPut)->Threads(1)->Threads(8)->UseRealTime();

void OpenClose(benchmark::State& state) {
  World world;
  world.Fill(100, 100);
  DiskCacheOptions options;
  options.directory = world.dir.path();
  for (auto _ : state) {
    metrics::Registry registry;
    benchmark::DoNotOptimize(DiskCache::Open(options, &registry).value());
  }
}
BENCHMARK(OpenClose)->Unit(benchmark::kMillisecond);

void KeyValueGet(benchmark::State& state) {
  World world;
  auto table = world.cache->Table("costs");
  for (int i = 0; i < 1000; ++i) table->PutIfAbsent(Digest::Of(absl::StrCat(i)), "12.5").IgnoreError();
  int i = 0;
  std::vector<Digest> keys;
  for (int k = 0; k < 1000; ++k) keys.push_back(Digest::Of(absl::StrCat(k)));
  for (auto _ : state) {
    if (!table->Get(keys[i++ % 1000]).ok()) state.SkipWithError("get");
  }
}
BENCHMARK(KeyValueGet);

}  // namespace
}  // namespace inlay::cache
