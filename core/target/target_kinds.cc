#include "core/target/target_kinds.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.h"
#include "proto/config.pb.h"

namespace inlay::target {
namespace {

using Type = AttrSpec::Type;

AttrSpec SpecOf(const google::protobuf::FieldDescriptor& field) {
  const proto::OptionSpec& option = field.options().GetExtension(proto::spec);
  AttrSpec spec;
  spec.name = absl::StrReplaceAll(field.name(), {{"_", "-"}});
  spec.default_value = option.default_value();
  spec.help = option.help();
  spec.choices.assign(option.choices().begin(), option.choices().end());
  spec.min = option.min();
  spec.max = option.max();
  if (field.cpp_type() == field.CPPTYPE_INT32) spec.type = Type::kInt;
  if (field.cpp_type() == field.CPPTYPE_BOOL) spec.type = Type::kBool;
  if (field.enum_type() != nullptr) {
    for (int i = 0; i < field.enum_type()->value_count(); ++i) {
      const auto& value = *field.enum_type()->value(i);
      if (value.number() != 0) spec.choices.push_back(absl::AsciiStrToLower(value.name()));
    }
  }
  if (!spec.choices.empty()) spec.type = Type::kChoice;
  return spec;
}

std::vector<TargetKind>* MakeKinds() {
  auto* kinds = new std::vector<TargetKind>;
  const google::protobuf::Descriptor& all = *proto::TargetKinds::descriptor();
  for (int i = 0; i < all.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& kind = *all.field(i);
    TargetKind& added = kinds->emplace_back();
    added.name = kind.name();
    added.help = kind.options().GetExtension(proto::spec).help();
    for (int k = 0; k < kind.message_type()->field_count(); ++k) {
      added.attrs.push_back(SpecOf(*kind.message_type()->field(k)));
    }
  }
  return kinds;
}

absl::Status CheckValue(const AttrSpec& spec, const std::string& value, absl::string_view whose) {
  std::string wanted;
  int64_t n;
  switch (spec.type) {
    case Type::kString:
      return absl::OkStatus();
    case Type::kInt:
      if (absl::SimpleAtoi(value, &n) && ((spec.min == 0 && spec.max == 0) || (n >= spec.min && n <= spec.max))) {
        return absl::OkStatus();
      }
      wanted = spec.min == 0 && spec.max == 0 ? "a number" : absl::StrCat("a number from ", spec.min, " to ", spec.max);
      break;
    case Type::kBool:
      if (value == "0" || value == "1") return absl::OkStatus();
      wanted = "0 or 1";
      break;
    case Type::kChoice:
      if (std::find(spec.choices.begin(), spec.choices.end(), value) != spec.choices.end()) return absl::OkStatus();
      wanted = absl::StrCat("one of ", absl::StrJoin(spec.choices, ", "));
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(whose, ": ", spec.name, "=", value, " must be ", wanted));
}

}  // namespace

const char* TypeName(AttrSpec::Type type) {
  switch (type) {
    case Type::kString:
      return "string";
    case Type::kInt:
      return "int";
    case Type::kBool:
      return "bool";
    case Type::kChoice:
      return "choice";
  }
  return "";
}

const std::vector<TargetKind>& TargetKinds() {
  static const std::vector<TargetKind>* kinds = MakeKinds();
  return *kinds;
}

const TargetKind* FindTargetKind(absl::string_view name) {
  for (const TargetKind& kind : TargetKinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::vector<AttrSpec> OptionsOf(const google::protobuf::Descriptor& message, absl::string_view kind) {
  std::vector<AttrSpec> options;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    if (!field.options().HasExtension(proto::spec)) continue;
    const std::string& of_kind = field.options().GetExtension(proto::spec).of_kind();
    if (of_kind.empty() || of_kind == kind) options.push_back(SpecOf(field));
  }
  return options;
}

absl::Status CheckAttrs(const std::map<std::string, std::string>& attrs, const std::vector<AttrSpec>& specs,
                        absl::string_view whose) {
  for (const auto& [name, value] : attrs) {
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&name = name](const AttrSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      std::vector<std::string> names;
      for (const AttrSpec& s : specs) names.push_back(s.name);
      return absl::InvalidArgumentError(absl::StrCat(whose, " has no attribute '", name, "'; it has ",
                                                     names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    if (absl::Status status = CheckValue(*spec, value, whose); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace inlay::target
