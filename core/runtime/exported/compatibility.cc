#include "core/runtime/exported/compatibility.h"

#include <nlohmann/json.hpp>
#include <string>

#include "core/runtime/cpu_features.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::runtime {

Status CheckMachine(const nlohmann::json& manifest) {
  const int format = manifest.at("inlay_library").get<int>();
  const int abi = manifest.at("kernel_abi").get<int>();
  if (format != kLibraryFormatVersion || abi != INLAY_KERNEL_ABI_VERSION) {
    return FailedPrecondition("library of format " + std::to_string(format) + " with kernel ABI " +
                              std::to_string(abi) + "; its runtime has " + std::to_string(kLibraryFormatVersion) +
                              " and " + std::to_string(INLAY_KERNEL_ABI_VERSION));
  }
  const auto& target = manifest.at("target");
  return CheckCpu(target.at("triple").get<std::string>(), target.at("features").get<std::string>());
}

std::vector<Dependency> DependenciesOf(const nlohmann::json& manifest) {
  std::vector<Dependency> dependencies;
  for (const auto& library : manifest.at("required_libraries")) {
    Dependency dependency;
    dependency.soname = library.at("soname").get<std::string>();
    dependency.package = library.at("package").get<std::string>();
    dependency.backends = library.at("backends").get<std::vector<std::string>>();
    dependency.functions = library.at("functions").get<std::vector<std::string>>();
    dependencies.push_back(std::move(dependency));
  }
  return dependencies;
}

}  // namespace inlay::runtime
