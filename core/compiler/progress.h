// Progress: how far a compile request is.
#ifndef INLAY_CORE_COMPILER_PROGRESS_H_
#define INLAY_CORE_COMPILER_PROGRESS_H_

#include <functional>
#include <string>

namespace inlay::compiler {

struct Progress {
  std::string phase;
  int done = 0;
  int total = 0;
  std::string detail;
};
// Called in the thread of the request, one at a time.
using ProgressFn = std::function<void(const Progress&)>;

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PROGRESS_H_
