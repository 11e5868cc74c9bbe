// XNNPACK in our own programs (daemon, worker, measurer), which must start on a machine that lacks it: they link no
// libXNNPACK. Here is a jump for each of its functions that the shim calls, whose target LoadLibrary fills in. Exported
// libraries don't have this: they link XNNPACK, and their manifests name it.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_LOADED_LIBRARY_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_LOADED_LIBRARY_H_

#include <string>

namespace inlay::xnnpack {

inline constexpr char kSoname[] = "libXNNPACK.so.0";
inline constexpr char kPackage[] = "libxnnpack0 (Debian, apt)";

// Loads XNNPACK once. "", or why it can't be used; until then, and without it, each of its functions answers
// xnn_status_uninitialized. Any thread.
const std::string& LoadLibrary();

// The same of a named file, each time; for LoadLibrary and tests.
std::string LoadLibraryFrom(const char* file);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_LOADED_LIBRARY_H_
