#include "core/target/target.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/target/target_kinds.h"
#include "core/target/x86_cpus.h"
#include "nlohmann/json.hpp"

namespace inlay::target {
namespace {

constexpr size_t kMaxTextSize = 64 << 10;
constexpr char kDefaultCpu[] = "x86-64-v3";

absl::Status CheckWord(absl::string_view word, absl::string_view what) {
  auto fine = [](char ch) { return absl::ascii_isalnum(ch) || ch == '-' || ch == '_' || ch == '.'; };
  if (!word.empty() && word[0] != '-' && std::all_of(word.begin(), word.end(), fine)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("target: '", word.substr(0, 64), "' is no ", what,
                                                 "; it consists of letters, digits, '-', '_', '.'"));
}

absl::Status CheckTarget(const Target& target) {
  INLAY_RETURN_IF_ERROR(CheckWord(target.kind, "kind"));
  for (const auto& [name, value] : target.attrs) INLAY_RETURN_IF_ERROR(CheckWord(name, "attribute name"));
  const TargetKind* kind = FindTargetKind(target.kind);  // any other is a backend's, which checks its attributes itself
  if (kind == nullptr) return absl::OkStatus();
  return CheckAttrs(target.attrs, kind->attrs, absl::StrCat("target: the kind '", target.kind, "'"));
}

absl::StatusOr<Target> ParseJson(absl::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("target: the text begins with '{' but is no JSON object");
  Target target;
  for (const auto& [name, value] : json.items()) {
    std::string s;
    if (value.is_string()) {
      s = value.get<std::string>();
    } else if (value.is_number_integer()) {
      s = absl::StrCat(value.get<int64_t>());
    } else if (value.is_boolean()) {
      s = value.get<bool>() ? "1" : "0";
    } else if (value.is_array() && std::all_of(value.begin(), value.end(), [](auto& e) { return e.is_string(); })) {
      s = absl::StrJoin(value.get<std::vector<std::string>>(), ",");
    } else {
      return absl::InvalidArgumentError(absl::StrCat("target: '", name, "' must be a string or an integer"));
    }
    (name == "kind" ? target.kind : target.attrs[name]) = s;
  }
  return target;
}

// "x86_64-linux-gnu" and "x86_64-pc-linux-gnu" are one machine: one spelling, so that they are one key.
absl::StatusOr<std::string> CanonicalTriple(absl::string_view triple) {
  if (triple.empty()) return std::string("x86_64-unknown-linux-gnu");
  std::vector<std::string> parts = absl::StrSplit(triple, '-');
  if (parts[0] == "amd64") parts[0] = "x86_64";
  if (parts[0] == "arm64") parts[0] = "aarch64";
  if (parts[0] != "x86_64" && parts[0] != "aarch64" && parts[0] != "riscv64") {
    return absl::InvalidArgumentError(
        absl::StrCat("target: the architecture of mtriple=", triple, " is not known; known: x86_64, aarch64, riscv64"));
  }
  if (parts.size() == 1) parts = {parts[0], "unknown", "linux", "gnu"};
  if (parts.size() == 3 && parts[1] == "linux") parts.insert(parts.begin() + 1, "unknown");
  if (parts.size() == 4 && parts[1] == "pc") parts[1] = "unknown";
  if (parts.size() != 4 || parts[2] != "linux") {
    return absl::InvalidArgumentError(absl::StrCat("target: mtriple=", triple, " is not supported; Linux is, as in ",
                                                   parts[0], "-unknown-linux-gnu"));
  }
  return absl::StrJoin(parts, "-");
}

struct SignedFeature {
  bool enable;
  std::string name;
};

absl::StatusOr<std::vector<SignedFeature>> SplitFeatures(absl::string_view mattr) {
  std::vector<SignedFeature> features;
  for (absl::string_view word : absl::StrSplit(mattr, ',', absl::SkipWhitespace())) {
    word = absl::StripAsciiWhitespace(word);
    if (word.size() < 2 || (word[0] != '+' && word[0] != '-')) {
      return absl::InvalidArgumentError(absl::StrCat("target: mattr holds '", word, "'; write +feature or -feature"));
    }
    INLAY_RETURN_IF_ERROR(CheckWord(word.substr(1), "feature"));
    features.push_back({word[0] == '+', std::string(word.substr(1))});
  }
  return features;
}

absl::Status CompleteX86(Target* target) {
  std::string& cpu = target->attrs["mcpu"];
  if (cpu.empty()) cpu = kDefaultCpu;
  if (cpu == "generic") cpu = "x86-64";
  if (cpu == "native") {
    return absl::InvalidArgumentError(
        "target: mcpu=native must be resolved by the client; only it knows whose machine is meant");
  }
  const Features* base = X86CpuFeatures(cpu);
  if (base == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("target: unknown mcpu '", cpu, "'; known: ", absl::StrJoin(X86CpuNames(), " ")));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<SignedFeature> words, SplitFeatures(target->attr("mattr")));
  Features features = *base;
  for (const SignedFeature& word : words) {
    if (IsX86SystemFeature(word.name)) continue;
    if (!IsX86Feature(word.name)) {
      return absl::InvalidArgumentError(absl::StrCat("target: unknown x86 feature '", word.name,
                                                     "' in mattr; known: ", absl::StrJoin(X86FeatureNames(), " ")));
    }
    (word.enable ? EnableX86Feature : DisableX86Feature)(word.name, &features);
  }
  if (features.count("avx512f") == 0) features.erase("evex512");  // it came with it
  if (features.count("sse2") == 0) {
    return absl::InvalidArgumentError("target: x86_64 code passes floats in SSE registers; sse2 can't be disabled");
  }
  std::string mattr;
  for (const std::string& f : *base) {
    if (features.count(f) == 0) absl::StrAppend(&mattr, mattr.empty() ? "" : ",", "-", f);
  }
  for (const std::string& f : features) absl::StrAppend(&mattr, mattr.empty() ? "" : ",", "+", f);
  target->attrs["mattr"] = mattr;
  return absl::OkStatus();
}

// Other architectures: the features are taken as given; the last mention of one counts.
absl::Status CompleteOther(absl::string_view arch, Target* target) {
  std::string& cpu = target->attrs["mcpu"];
  if (cpu.empty()) cpu = arch == "riscv64" ? "generic-rv64" : "generic";
  if (cpu == "native") return absl::InvalidArgumentError("target: mcpu=native must be resolved by the client");
  INLAY_RETURN_IF_ERROR(CheckWord(cpu, "CPU name"));
  INLAY_ASSIGN_OR_RETURN(std::vector<SignedFeature> words, SplitFeatures(target->attr("mattr")));
  std::map<std::string, bool> last;
  // rv64gc, which Linux distributions are made for: LLVM's generic CPU has not even multiplication.
  if (arch == "riscv64") {
    for (const char* feature : {"m", "a", "f", "d", "c"}) last[feature] = true;
  }
  for (const SignedFeature& word : words) last[word.name] = word.enable;
  std::string mattr;
  for (const auto& [name, enable] : last) {
    absl::StrAppend(&mattr, mattr.empty() ? "" : ",", enable ? "+" : "-", name);
  }
  target->attrs["mattr"] = mattr;
  return absl::OkStatus();
}

// The words of a text, quoted as in a shell: 'a b', "a \"b\"", a\ b.
absl::StatusOr<std::vector<std::string>> SplitWords(absl::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char ch = text[i];
    if (quote == 0 && absl::ascii_isspace(ch)) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote == 0 && (ch == '\'' || ch == '"')) {
      quote = ch;
    } else if (quote != 0 && ch == quote) {
      quote = 0;
    } else if (ch == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += ch;
    }
  }
  if (quote != 0) return absl::InvalidArgumentError("target: a quotation mark is not closed");
  return words;
}

std::string Quoted(absl::string_view word) {
  auto plain = [](char ch) {
    return absl::ascii_isalnum(ch) || absl::string_view("@%+=:,./-_").find(ch) != std::string::npos;
  };
  if (std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\"'\"'"}}), "'");
}

}  // namespace

absl::StatusOr<Target> Target::Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() > kMaxTextSize) return absl::InvalidArgumentError("target: the text is longer than 64 KiB");
  Target target;
  if (absl::StartsWith(text, "{")) {
    INLAY_ASSIGN_OR_RETURN(target, ParseJson(text));
  } else {
    INLAY_ASSIGN_OR_RETURN(const std::vector<std::string> words, SplitWords(text));
    if (words.empty()) return absl::InvalidArgumentError("target: the text is empty; write for example 'llvm'");
    target.kind = words[0];
    for (size_t i = 1; i < words.size(); ++i) {
      absl::string_view word = words[i];
      absl::ConsumePrefix(&word, "-");
      absl::ConsumePrefix(&word, "-");
      const size_t equals = word.find('=');
      if (equals == absl::string_view::npos || words[i][0] != '-') {
        return absl::InvalidArgumentError(absl::StrCat("target: can't read '", words[i], "'; write -name=value"));
      }
      target.attrs[std::string(word.substr(0, equals))] = std::string(word.substr(equals + 1));
    }
  }
  INLAY_RETURN_IF_ERROR(CheckTarget(target));
  return target;
}

std::string Target::ToString() const {
  std::string text = kind;
  for (const auto& [name, value] : attrs) absl::StrAppend(&text, " ", Quoted(absl::StrCat("-", name, "=", value)));
  return text;
}

std::string Target::ToJson() const {
  nlohmann::json json = {{"kind", kind}};
  for (const auto& [name, value] : attrs) json[name] = value;
  return json.dump();
}

std::string Target::attr(absl::string_view name, absl::string_view fallback) const {
  auto it = attrs.find(std::string(name));
  return it == attrs.end() ? std::string(fallback) : it->second;
}

absl::StatusOr<Target> Target::Completed() const {
  INLAY_RETURN_IF_ERROR(CheckTarget(*this));
  if (kind != "llvm") return *this;
  Target target = *this;
  INLAY_ASSIGN_OR_RETURN(target.attrs["mtriple"], CanonicalTriple(attr("mtriple")));
  const std::string arch = target.attrs["mtriple"].substr(0, target.attrs["mtriple"].find('-'));
  INLAY_RETURN_IF_ERROR(arch == "x86_64" ? CompleteX86(&target) : CompleteOther(arch, &target));
  return target;
}

bool Target::HasFeature(absl::string_view feature) const {
  auto it = attrs.find("mattr");
  if (it == attrs.end()) return false;
  bool found = false;
  for (absl::string_view word : absl::StrSplit(it->second, ',')) {
    if (word.size() > 1 && word.substr(1) == feature) found = word[0] == '+';
  }
  return found;
}

}  // namespace inlay::target
