// Where the daemon finds what it was installed with: the workers, the runtime archives, the shared libraries.
#ifndef INLAY_SERVER_INSTALL_PATHS_H_
#define INLAY_SERVER_INSTALL_PATHS_H_

#include <string>
#include <vector>

namespace inlay::server {

// The directory of this process's executable, symbolic links resolved.
std::string ExecutableDir();

// Installed layout (deploy/setup.sh): DIR/inlayd, DIR/inlay_worker, DIR/inlay_measurer, DIR/inlay_run, DIR/*.a,
// DIR/lib/*.so. Bazel's: bazel-bin/server/inlayd, bazel-bin/server/worker/inlay_worker,
// bazel-bin/server/measuring/inlay_measurer, the archives in their packages. Empty where not found.
std::string FindWorkerBinary();
std::string FindMeasurerBinary();
std::string FindRunProgram();  // of bundles
std::vector<std::string> DefaultRuntimeDirs();
std::vector<std::string> DefaultLibraryDirs();

}  // namespace inlay::server

#endif  // INLAY_SERVER_INSTALL_PATHS_H_
