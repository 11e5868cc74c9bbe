// Whether this machine can run an exported library: what its manifest (core/artifact/FORMAT.md) asks for, against what
// is here.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_COMPATIBILITY_H_
#define INLAY_CORE_RUNTIME_EXPORTED_COMPATIBILITY_H_

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/runtime/dependencies.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

inline constexpr int kLibraryFormatVersion = 1;

// Format, kernel ABI, architecture, the CPU's features. FAILED_PRECONDITION says what does not fit. Loads nothing;
// throws nlohmann's exceptions where the manifest is damaged.
Status CheckMachine(const nlohmann::json& manifest);

// `required_libraries`, for LoadDependencies. Throws likewise.
std::vector<Dependency> DependenciesOf(const nlohmann::json& manifest);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_COMPATIBILITY_H_
