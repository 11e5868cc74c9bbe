// The bytes of an action's result on disk (FORMAT.md).
#ifndef INLAY_CORE_CACHE_DISK_ACTION_FILE_H_
#define INLAY_CORE_CACHE_DISK_ACTION_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/cache/action_cache.h"

namespace inlay::cache {

std::string EncodeActionFile(const Digest& action, const ActionResult& result);
// DATA_LOSS, saying what is wrong, for anything but what EncodeActionFile made for this action.
absl::StatusOr<ActionResult> DecodeActionFile(const Digest& action, absl::string_view file);

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_ACTION_FILE_H_
