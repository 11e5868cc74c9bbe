// What the daemon and a measuring process both say of a MeasureAction.
#ifndef INLAY_SERVER_MEASURING_ACTION_CHECKS_H_
#define INLAY_SERVER_MEASURING_ACTION_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/worker.pb.h"

namespace inlay::server {

// INVALID_ARGUMENT where the action makes no sense, FAILED_PRECONDITION where it holds a client's code.
inline absl::Status CheckMeasureAction(const proto::MeasureAction& action) {
  if (action.subjects_size() == 0) return absl::InvalidArgumentError("nothing to measure");
  if (action.reference() < -1 || action.reference() >= action.subjects_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("reference ", action.reference(), " of ", action.subjects_size(), " subjects"));
  }
  if (action.num_threads() < 0) return absl::InvalidArgumentError("num_threads is negative");
  if (!(action.rtol() >= 0 && action.atol() >= 0)) return absl::InvalidArgumentError("rtol and atol: not negative");
  for (const auto& subject : action.subjects()) {
    if (!(subject.rtol() >= 0 && subject.atol() >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat("'", subject.name(), "': rtol and atol: not negative"));
    }
    // Searches measure no code of a client's; whoever asks for it all the same is refused here.
    for (const proto::StaticLibrary& library : subject.libraries()) {
      if (!library.manifest().has_client_code()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("'", subject.name(), "' holds C kernels of a client's, which are not measured"));
    }
  }
  return absl::OkStatus();
}

// For a call whose reference subject cannot be run.
inline absl::Status ReferenceError(absl::string_view name, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the reference subject '", name, "' cannot be measured, so nothing can be checked: ", why));
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_ACTION_CHECKS_H_
