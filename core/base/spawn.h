// The system calls that start a child; see subprocess.h, the only user.
#ifndef INLAY_CORE_BASE_SPAWN_H_
#define INLAY_CORE_BASE_SPAWN_H_

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace inlay {
struct SubprocessOptions;
namespace internal {

struct SpawnedChild {
  pid_t pid = -1;
  // This process's, close-on-exec, the pipes' non-blocking; -1 where not asked for. Owned by the caller.
  int pidfd = -1, stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;
};

// The child runs, or an error says why the program could not be executed.
absl::StatusOr<SpawnedChild> Spawn(const SubprocessOptions& options);

}  // namespace internal
}  // namespace inlay

#endif  // INLAY_CORE_BASE_SPAWN_H_
