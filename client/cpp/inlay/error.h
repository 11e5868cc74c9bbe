// Errors. Every call that can fail returns absl::Status: its code is the server's (gRPC's), its message one line that
// says what happened, where, and what to do. KindOf says which sort of failure it was, ServerText what the server
// itself said.
//
// Functions of a loaded model are tvm-ffi's and throw tvm::ffi::Error; inlay::Call and Module::Run give a Status
// instead.
#ifndef INLAY_ERROR_H_
#define INLAY_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace inlay {

// As the Python package's exceptions.
enum class ErrorKind {
  kNone,               // OK, or a Status that is not inlay's
  kCompile,            // the module or its configuration is at fault, or a backend failed on it
  kUnsupported,        // asked for something that this version does not do
  kServerUnavailable,  // no server answers at the address, or it is shutting down
  kServerBusy,         // full for as long as the client was willing to retry
  kDeadlineExceeded,   // the time given was over; the server stopped working on it
  kCancelled,
  kNotFound,  // a handle or an executable is not (or no longer) on the server
  kRun,       // a module failed while it ran, or was given wrong inputs
  kServer,    // the server refused
  kModule,    // a module can't be run, exported or compiled
  kLoad,      // an exported library can't be loaded on this machine
};

ErrorKind KindOf(const absl::Status& status);
// The server's own message; "" where the error arose on this side.
std::string ServerText(const absl::Status& status);

}  // namespace inlay

#endif  // INLAY_ERROR_H_
