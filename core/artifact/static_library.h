// Checks of a StaticLibrary before it is linked or loaded: that its objects are what its manifest says.
//
// Objects come from workers and caches, so anything may be in them: a damaged ELF file is an error, never a crash.
#ifndef INLAY_CORE_ARTIFACT_STATIC_LIBRARY_H_
#define INLAY_CORE_ARTIFACT_STATIC_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

inline constexpr int kStaticLibraryFormatVersion = 1;

// FAILED_PRECONDITION, naming function, symbol or object:
//  - the manifest is incomplete or of another format or kernel ABI version;
//  - an object is not a whole relocatable ELF file of the manifest's architecture;
//  - a function's symbols are missing or defined twice;
//  - thread-local storage, static constructors, writable-and-executable sections;
//  - an undefined symbol that no one provides: allowed are the C and math functions of IsAllowedExternal, and
//    inlay_<component>_* of the manifest's runtime_components.
absl::Status CheckStaticLibrary(const proto::StaticLibrary& library);

// CheckStaticLibrary on each, and no symbol defined by two of them.
absl::Status CheckStaticLibraries(absl::Span<const proto::StaticLibrary* const> libraries);

// Letters, digits and "_-.+", beginning with none of "-.": names that become parts of paths and of programs' arguments.
bool IsPlainName(absl::string_view name);

// libc's memory functions, libm, and the compiler's helpers that core/runtime carries.
bool IsAllowedExternal(absl::string_view symbol);
std::vector<absl::string_view> AllowedExternals();

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_STATIC_LIBRARY_H_
