// A bundle: an exported library with all that it needs besides glibc, and the program that runs it. deploy/README.md
// says what is in one and how it is used.
#ifndef INLAY_CORE_ARTIFACT_BUNDLE_H_
#define INLAY_CORE_ARTIFACT_BUNDLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/linker.h"

namespace inlay::artifact {

struct BundleRequest {
  std::string library;      // model.so; "": left out, for somebody who has it
  std::string params_path;  // its parameters, where they are not in it
  std::vector<proto::RequiredLibrary> required_libraries;
  std::vector<std::string> linked_packages;  // of StaticLibraries' manifests
  std::string run_program;                   // core/artifact/run
  std::string scratch_dir;                   // for files that are made here; they live as long as it does
};

struct BundleFile {
  std::string name;  // in the bundle: "lib/libdnnl.so.3"
  std::string path;  // where its bytes are
  bool executable = false;
};

// Sorted by name; the same inputs give the same files. Libraries are looked for where the linker looks, needed ones of
// needed ones too, and are made to find each other in their own folder. FAILED_PRECONDITION names a library that this
// machine lacks, and who needs it; INVALID_ARGUMENT a name that is none; NOT_FOUND a program that this needs
// (patchelf).
absl::StatusOr<std::vector<BundleFile>> AssembleBundle(const LinkToolchain& toolchain, const BundleRequest& request);

// What a shared library or a program names to the dynamic linker (DT_NEEDED).
absl::StatusOr<std::vector<std::string>> NeededSonames(const std::string& path);

// Whether a soname is one of glibc's own, which a bundle leaves to the machine that it runs on.
bool IsGlibc(const std::string& soname);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_BUNDLE_H_
