// The child of disk_cache_process_test: opens a DiskCache and puts seeded blobs and results for ever, and says on
// standard output what was acknowledged, one seed a line, after it was.
//   disk_cache_child DIRECTORY MAX_BYTES FIRST_SEED STEP COUNT
#include "core/cache/disk/disk_cache_child.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/cache/disk/disk_cache.h"

int main(int argc, char** argv) {
  using namespace inlay::cache;
  if (argc != 6) return 2;
  DiskCacheOptions options;
  options.directory = argv[1];
  options.max_bytes = atoll(argv[2]);
  options.flush_interval = absl::Milliseconds(20);
  inlay::metrics::Registry registry;
  auto cache = DiskCache::Open(options, &registry);
  if (!cache.ok()) {
    fprintf(stderr, "%s\n", cache.status().ToString().c_str());
    return 1;
  }
  auto table = (*cache)->Table("t");
  const int step = atoi(argv[4]);
  int seed = atoi(argv[3]);
  for (int i = 0; i < atoi(argv[5]); ++i, seed += step) {
    const std::string bytes = SeededBytes(seed);
    absl::StatusOr<inlay::Digest> digest = (*cache)->blobs().Put(bytes);
    absl::Status status = digest.status();
    if (status.ok()) status = (*cache)->actions().Update(SeededAction(seed), {{*digest}, std::to_string(seed)});
    if (status.ok()) status = table->PutIfAbsent(SeededAction(seed), std::to_string(seed)).status();
    if (!status.ok()) {
      fprintf(stderr, "seed %d: %s\n", seed, status.ToString().c_str());
      return 1;
    }
    // Straight to the descriptor: what stdio keeps is lost in a kill.
    const std::string line = std::to_string(seed) + "\n";
    if (write(1, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
    // And reads what the other process may be evicting or writing.
    absl::StatusOr<Blob> blob = (*cache)->blobs().Get(inlay::Digest::Of(SeededBytes(seed / 2)));
    if (!blob.ok() && !absl::IsNotFound(blob.status())) {
      fprintf(stderr, "read: %s\n", blob.status().ToString().c_str());
      return 1;
    }
  }
  return 0;
}
