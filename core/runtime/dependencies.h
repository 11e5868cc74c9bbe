// Shared libraries that compiled code needs and that are loaded when it is: a missing one is an error that names it,
// who needs it and where it is to be had.
#ifndef INLAY_CORE_RUNTIME_DEPENDENCIES_H_
#define INLAY_CORE_RUNTIME_DEPENDENCIES_H_

#include <string>
#include <vector>

#include "core/runtime/status.h"

namespace inlay::runtime {

struct Dependency {
  std::string soname;
  std::string package;                 // where a user gets it
  std::vector<std::string> backends;   // whose code needs it
  std::vector<std::string> functions;  // that it must have
};

// Loads each, in order: one may need those before it. Found where the dynamic linker looks for the caller's own: in its
// RUNPATH (an exported library's folder, and lib/ in it), LD_LIBRARY_PATH, the system's folders; or in the process
// already. The addresses of all functions are appended. FAILED_PRECONDITION. Nothing is unloaded: libraries that have
// threads must stay.
Status LoadDependencies(const std::vector<Dependency>& dependencies, std::vector<void*>* addresses);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_DEPENDENCIES_H_
