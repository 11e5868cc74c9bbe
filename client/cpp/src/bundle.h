// Bundles as a server streams them, onto the disk.
#ifndef INLAY_CLIENT_CPP_SRC_BUNDLE_H_
#define INLAY_CLIENT_CPP_SRC_BUNDLE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/src/output_file.h"
#include "proto/compile_service.pb.h"

namespace inlay {

// Writes files one after the other, each announced by its name.
class BundleWriter {
 public:
  explicit BundleWriter(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Add(const proto::ExportLibraryChunk& chunk);
  absl::Status Clear();  // for a download that begins anew

 private:
  const std::string folder_;
  std::optional<OutputFile> file_;
};

// Makes a bundle by `fill`, beside its place, and puts it there when all has arrived.
absl::Status WriteBundle(const std::string& path, const std::function<absl::Status(BundleWriter*)>& fill);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_BUNDLE_H_
