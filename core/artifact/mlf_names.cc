#include "core/artifact/mlf_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay::artifact {
namespace {

constexpr size_t kMaxName = 48;

bool IsKeyword(const std::string& word) {
  // Of C and of C++, whose programs include the header too.
  static const auto* const words = new std::set<std::string>{
      "alignas", "alignof",  "and",       "asm",      "auto",     "bool",      "break",   "case",   "catch",
      "char",    "class",    "const",     "continue", "default",  "delete",    "do",      "double", "else",
      "enum",    "explicit", "export",    "extern",   "false",    "float",     "for",     "friend", "goto",
      "if",      "inline",   "int",       "long",     "mutable",  "namespace", "new",     "not",    "operator",
      "or",      "private",  "protected", "public",   "register", "restrict",  "return",  "short",  "signed",
      "sizeof",  "static",   "struct",    "switch",   "template", "this",      "throw",   "true",   "try",
      "typedef", "typeid",   "typename",  "union",    "unsigned", "using",     "virtual", "void",   "volatile",
      "while",   "xor"};
  return words->count(word) > 0;
}

std::string Identifier(const std::string& name, const std::string& fallback) {
  std::string result;
  for (char c : name.substr(0, kMaxName)) result += absl::ascii_isalnum(c) ? c : '_';
  if (result.empty() || !absl::ascii_isalpha(result[0])) result = absl::StrCat(fallback, result);
  if (IsKeyword(result)) result += '_';
  return result;
}

std::vector<std::string> Members(const std::vector<runtime::NamedTensor>& tensors, const std::string& fallback) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string name = Identifier(tensors[i].name, fallback);
    while (!seen.insert(name).second) absl::StrAppend(&name, "_", i);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

absl::StatusOr<MlfNames> MakeMlfNames(const runtime::ExecutionPlan& plan,
                                      const std::vector<const proto::StaticLibrary*>& libraries,
                                      const std::string& model_name) {
  const bool plain =
      std::all_of(model_name.begin(), model_name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
  if (model_name.empty() || model_name.size() > kMaxName || !plain) {
    return absl::InvalidArgumentError(absl::StrCat("the model's name '", model_name, "' must consist of 1 to ",
                                                   kMaxName, " letters, digits and '_': it becomes part of C names"));
  }
  MlfNames names;
  names.prefix = absl::StrCat("inlaygen_", model_name);
  names.upper = absl::AsciiStrToUpper(names.prefix);
  names.inputs = Members(plan.inputs, "input_");
  names.outputs = Members(plan.outputs, "output_");
  std::set<std::string> in_objects;
  for (const proto::StaticLibrary* library : libraries) {
    for (const proto::PrimitiveFunction& f : library->manifest().functions()) {
      names.functions[f.symbol()] = &f;
      if (!library->objects().empty()) in_objects.insert(f.symbol());
    }
  }
  for (size_t i = 0; i < plan.functions.size(); ++i) {
    const runtime::PlanFunction& f = plan.functions[i];
    if (names.functions.count(f.symbol) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("function ", f.symbol, " is implemented by no StaticLibrary"));
    }
    const std::string ops = Identifier(absl::StrJoin(f.info.ops, "_"), "kernel");
    names.kernels.push_back(absl::StrCat(names.prefix, "_", ops, "_", i));
    names.is_object.push_back(in_objects.count(f.symbol) > 0);
  }
  return names;
}

const char* CType(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::kF32:
      return "float";
    case runtime::DType::kF64:
      return "double";
    case runtime::DType::kF16:
    case runtime::DType::kBF16:
      return "uint16_t";
    case runtime::DType::kI8:
      return "int8_t";
    case runtime::DType::kU8:
    case runtime::DType::kBool:
      return "uint8_t";
    case runtime::DType::kI16:
      return "int16_t";
    case runtime::DType::kI32:
      return "int32_t";
    case runtime::DType::kI64:
      return "int64_t";
  }
  return "uint8_t";
}

}  // namespace inlay::artifact
