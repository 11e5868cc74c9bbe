// What a Pipeline runs compiled code of its own with (compiler::RunHereFn): the daemon's JIT.
#ifndef INLAY_SERVER_SERVICE_RUN_HERE_H_
#define INLAY_SERVER_SERVICE_RUN_HERE_H_

#include "core/cache/blob_store.h"
#include "core/compiler/pipeline.h"

namespace inlay::server {

// Parameters come from `blobs`, which outlives it.
compiler::RunHereFn RunInThisProcess(cache::BlobStore* blobs);

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_RUN_HERE_H_
