// The parts of a manifest that are the same for every backend. Any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_MANIFEST_H_
#define INLAY_CORE_BACKENDS_COMMON_MANIFEST_H_

#include <string>

#include "absl/status/status.h"
#include "core/ir/ir_module.h"
#include "core/target/target.h"
#include "proto/artifact.pb.h"

namespace inlay::backends {

// Symbol, inputs, outputs and constant inputs of a partition function. INVALID_ARGUMENT: not one (no constant_params, a
// parameter or result that is no tensor of known shape); names function and parameter.
absl::Status FillSignature(const std::string& symbol, const ir::Function& partition,
                           proto::PrimitiveFunction* primitive);

// Format and ABI versions, backend, and the completed target's triple, CPU and features.
void FillManifest(const std::string& backend, const std::string& version, const target::Target& target,
                  proto::StaticLibraryManifest* manifest);

// Declares that a library of the runtime component uses OpenMP: libgomp's threads become the pool of the whole module.
void RequireOpenMp(proto::StaticLibraryManifest* manifest);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_MANIFEST_H_
