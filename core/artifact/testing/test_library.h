// StaticLibraries made of C while a test runs: real objects by gcc, that follow core/runtime/kernel_abi.h.
#ifndef INLAY_CORE_ARTIFACT_TESTING_TEST_LIBRARY_H_
#define INLAY_CORE_ARTIFACT_TESTING_TEST_LIBRARY_H_

#include <string>
#include <vector>

#include "core/artifact/testing/module_builder.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact::testing {

inline constexpr int kSize = 1000;  // the functions below work on f32[kSize]
ir::TensorType Vector();

// y = a + b, split over the threads.
Signature AddSignature(std::string symbol = "t_add");
std::string AddSource(const std::string& symbol = "t_add");
// y = x * 2w, with 2w packed by init; w is init-only. Has a workspace, uses expf (y *= expf(0)) from libm.
Signature ScaleSignature(std::string symbol = "t_scale");
std::string ScaleSource(const std::string& symbol = "t_scale");
// y = x, or the error "the second element is too big" where x[1] > 100.
Signature FailSignature(std::string symbol = "t_fail");
std::string FailSource(const std::string& symbol = "t_fail");

// Aborts the test where gcc does.
std::string CompileC(const std::string& source, std::vector<std::string> flags = {});

// One object of all the sources; a manifest that fits this machine.
proto::StaticLibrary MakeLibrary(const std::string& source, const std::vector<Signature>& functions,
                                 std::vector<std::string> flags = {});

// main(x) = fail?(scale(add(x, w2), w)), x; w2 = add(w, w) at load. So y = (x + 2w) * 2w.
struct TestModel {
  ModuleBuilder builder;
  std::vector<proto::StaticLibrary> libraries;
  std::vector<float> w;  // the data of the weight
  explicit TestModel(bool with_fail = false);
  std::vector<const proto::StaticLibrary*> library_pointers() const;
  std::vector<proto::StaticLibraryManifest> manifests() const;
  // Of what Run(x) must give as first output.
  std::vector<float> Expected(const std::vector<float>& x) const;
  std::string weight_bytes() const;
};

}  // namespace inlay::artifact::testing

#endif  // INLAY_CORE_ARTIFACT_TESTING_TEST_LIBRARY_H_
