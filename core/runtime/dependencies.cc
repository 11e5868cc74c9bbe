#include "core/runtime/dependencies.h"

#include <dlfcn.h>

namespace inlay::runtime {
namespace {

std::string Who(const std::vector<std::string>& backends) {
  std::string names;
  for (const std::string& name : backends) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "" : " (for " + names + ")";
}

std::string Remedy(const Dependency& dependency) {
  if (dependency.package.empty()) return "";
  return "; it comes with " + dependency.package +
         ". Install it, put it beside the model, or export a bundle, which has it inside";
}

std::string LastError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

}  // namespace

Status LoadDependencies(const std::vector<Dependency>& dependencies, std::vector<void*>* addresses) {
  for (const Dependency& dependency : dependencies) {
    void* library = dlopen(dependency.soname.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return FailedPrecondition("needs " + dependency.soname + Who(dependency.backends) +
                                ", which can't be loaded: " + LastError() + Remedy(dependency));
    }
    for (const std::string& function : dependency.functions) {
      void* address = dlsym(library, function.c_str());
      if (address == nullptr) {
        return FailedPrecondition("needs " + function + " of " + dependency.soname + Who(dependency.backends) +
                                  "; the one that was found is another version: " + LastError() + Remedy(dependency));
      }
      addresses->push_back(address);
    }
  }
  return Status();
}

}  // namespace inlay::runtime
