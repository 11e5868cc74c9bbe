// The kinds of device targets and the attributes that each has, as proto/config.proto (TargetKinds) has them. What a
// backend's codegen target has is the backend's own to say, in the same words.
//
// Read-only tables; any thread.
#ifndef INLAY_CORE_TARGET_TARGET_KINDS_H_
#define INLAY_CORE_TARGET_TARGET_KINDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class Descriptor;
}

namespace inlay::target {

struct AttrSpec {
  enum class Type { kString, kInt, kBool, kChoice };

  std::string name;
  Type type = Type::kString;
  std::string default_value;  // for people: what holds where the attribute is absent
  std::string help;
  std::vector<std::string> choices = {};  // kChoice
  int64_t min = 0, max = 0;               // kInt; both 0: any
};

const char* TypeName(AttrSpec::Type type);  // "string", "int", "bool", "choice"

struct TargetKind {
  std::string name;
  std::string help;
  std::vector<AttrSpec> attrs;
};

const std::vector<TargetKind>& TargetKinds();
// nullptr: none of inlay's own; then it is a backend's name, or nothing.
const TargetKind* FindTargetKind(absl::string_view name);

// The options of an executor or a runtime, the same way: fields of its message that carry (spec), and that `kind`
// ("aot") has. A text of a fixed set, an enum's too, is a choice.
std::vector<AttrSpec> OptionsOf(const google::protobuf::Descriptor& message, absl::string_view kind);

// INVALID_ARGUMENT names an attribute that `specs` does not have and those it has, or a value that is not of its type.
// `whose` begins the message: "the kind 'llvm'".
absl::Status CheckAttrs(const std::map<std::string, std::string>& attrs, const std::vector<AttrSpec>& specs,
                        absl::string_view whose);

}  // namespace inlay::target

#endif  // INLAY_CORE_TARGET_TARGET_KINDS_H_
