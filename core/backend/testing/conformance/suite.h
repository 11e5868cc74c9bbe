// What the conformance tests share: backends under test, targets, compiling, inputs, comparing.
#ifndef INLAY_CORE_BACKEND_TESTING_CONFORMANCE_SUITE_H_
#define INLAY_CORE_BACKEND_TESTING_CONFORMANCE_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {

// Every backend that is linked into this test with both halves, hidden ones too.
std::vector<std::string> BackendNames();
const Backend& GetBackend(const std::string& name);
const BackendCodegen& GetCodegen(const std::string& name);

target::Target TestTarget();  // llvm, x86-64-v3, complete: what every machine that runs tests can execute

constexpr char kSymbol[] = "inlay_conformance";
absl::StatusOr<proto::StaticLibrary> Compile(const std::string& backend, const ir::Function& partition,
                                             const std::string& symbol = kSymbol);
// The same, of an earlier call where there was one: for tests of what the code does. Not thread-safe.
absl::StatusOr<proto::StaticLibrary> CompileOnce(const std::string& backend, const ir::Function& partition);

// Seeded data for every parameter.
std::vector<std::string> MakeInputs(const ir::Function& function, const Case& c, int seed);

// "" where they agree; else where they differ most.
std::string Compare(const ir::Function& function, const Case& c, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_CONFORMANCE_SUITE_H_
