// Rows of the cost table: protobuf messages under digests of what they depend on. The table is a cache: what can't be
// read is not there, what can't be kept is measured again.
#ifndef INLAY_CORE_COMPILER_COST_ROWS_H_
#define INLAY_CORE_COMPILER_COST_ROWS_H_

#include <google/protobuf/message_lite.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/digest.h"
#include "core/base/proto_bytes.h"
#include "core/cache/key_value_table.h"

namespace inlay::compiler {

template <typename Row>
std::optional<Row> FindRow(const Digest& key, cache::KeyValueTable* costs) {
  const absl::StatusOr<std::string> bytes = costs->Get(key);
  Row row;
  if (!bytes.ok() || !row.ParseFromString(*bytes)) return std::nullopt;
  return row;
}

// Unless there is one.
inline void KeepRow(const Digest& key, const google::protobuf::MessageLite& row, cache::KeyValueTable* costs) {
  costs->PutIfAbsent(key, DeterministicBytes(row)).IgnoreError();
}

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_COST_ROWS_H_
