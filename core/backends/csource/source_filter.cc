#include "core/backends/csource/source_filter.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace inlay::csource {
namespace {

const std::set<absl::string_view>& Headers() {
  static const auto* headers = new std::set<absl::string_view>{"float.h",   "immintrin.h", "limits.h", "math.h",
                                                               "stdbool.h", "stddef.h",    "stdint.h", "string.h"};
  return *headers;
}

bool IsNameStart(char c) { return absl::ascii_isalpha(c) || c == '_' || c == '$'; }
bool IsNameChar(char c) { return IsNameStart(c) || absl::ascii_isdigit(c); }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// Without line splices and comments, as C's translation phases 2 and 3 leave it; line breaks stay, so that lines count.
class Scanner {
 public:
  explicit Scanner(absl::string_view source) : text_(source) {}

  absl::Status Run() {
    while (at_ < text_.size()) {
      if (absl::Status status = Step(); !status.ok()) return status;
    }
    return in_directive_ ? EndDirective() : absl::OkStatus();
  }

 private:
  absl::Status Refuse(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("its source, line ", line_, ": ", what));
  }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  absl::Status Step() {
    const char c = Peek();
    if (c == '\\') return Refuse("a backslash outside of a string");
    if (c == '\n') {
      ++at_;
      if (in_directive_) {
        if (absl::Status status = EndDirective(); !status.ok()) return status;
      }
      ++line_;
      line_is_blank_ = true;
      return absl::OkStatus();
    }
    if (IsBlank(c)) {
      ++at_;
      directive_ += ' ';
      return absl::OkStatus();
    }
    if (c == '/' && (Peek(1) == '/' || Peek(1) == '*')) return SkipComment();
    if (c == '"' || c == '\'') return SkipString(c);
    if (IsNameStart(c)) return Name();
    if (absl::ascii_isdigit(c) || (c == '.' && absl::ascii_isdigit(Peek(1)))) return SkipNumber();
    return Punctuation(c);
  }

  absl::Status SkipComment() {
    if (Peek(1) == '/') {
      while (at_ < text_.size() && Peek() != '\n') ++at_;
      return absl::OkStatus();
    }
    const size_t end = text_.find("*/", at_ + 2);
    if (end == text_.npos) return Refuse("a comment without an end");
    for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
    directive_ += ' ';
    return absl::OkStatus();
  }

  absl::Status SkipString(char quote) {
    const size_t begin = at_++;
    while (Peek() != quote) {
      if (at_ >= text_.size() || Peek() == '\n') return Refuse("a string without an end");
      if (Peek() == '\\' && !absl::ascii_isprint(Peek(1))) return Refuse("a string over several lines");
      if (Peek() == '\\' && IsBlank(Peek(1))) return Refuse("a blank behind a backslash in a string");
      at_ += Peek() == '\\' ? 2 : 1;
    }
    ++at_;
    line_is_blank_ = false;
    previous_ = quote;
    directive_ += std::string(text_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }

  absl::Status Name() {
    const size_t begin = at_;
    while (IsNameChar(Peek())) ++at_;
    const absl::string_view name = text_.substr(begin, at_ - begin);
    if (Peek() == '\\') return Refuse("a backslash within a name");
    if (Peek() == '"' && absl::EndsWith(name, "R")) return Refuse("a raw string");
    if (!IsAllowedName(name)) {
      return Refuse(absl::StrCat("the name '", name, "' is reserved for compilers and may not be used here"));
    }
    line_is_blank_ = false;
    previous_ = 'a';
    absl::StrAppend(&directive_, name);
    return absl::OkStatus();
  }

  absl::Status SkipNumber() {
    const size_t begin = at_;
    while (IsNameChar(Peek()) || Peek() == '.' || ((Peek() == '+' || Peek() == '-') && IsExponent(text_[at_ - 1])))
      ++at_;
    if (Peek() == '\\') return Refuse("a backslash within a number");
    line_is_blank_ = false;
    previous_ = '0';
    absl::StrAppend(&directive_, text_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }
  static bool IsExponent(char c) { return c == 'e' || c == 'E' || c == 'p' || c == 'P'; }

  absl::Status Punctuation(char c) {
    const char next = Peek(1);
    if (!absl::ascii_isprint(c)) return Refuse("a character that is not ASCII, outside of comments");
    if ((c == '%' && next == ':') || (c == '<' && (next == ':' || next == '%')) || (c == '?' && next == '?')) {
      return Refuse(absl::StrCat("the digraph or trigraph ", std::string(1, c), std::string(1, next)));
    }
    if (c == '#' && next == '#') return Refuse("## (names that are put together)");
    if (c == '[' && previous_ == '[') return Refuse("an attribute [[...]]");
    previous_ = c;
    ++at_;
    if (c == '#' && line_is_blank_) {
      in_directive_ = true;
      directive_.clear();
    } else {
      directive_ += c;
    }
    line_is_blank_ = false;
    return absl::OkStatus();
  }

  absl::Status EndDirective() {
    in_directive_ = false;
    const std::vector<std::string> words =
        absl::StrSplit(absl::StripAsciiWhitespace(directive_), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty()) return absl::OkStatus();
    static const std::set<std::string> plain = {"define", "undef", "if",    "ifdef", "ifndef",
                                                "else",   "elif",  "endif", "error"};
    // "#if(x)"
    const std::string name = words[0].substr(0, words[0].find_first_of("(<\"!"));
    if (plain.count(name) > 0) return absl::OkStatus();
    const std::string rest = absl::StrJoin(words.begin() + 1, words.end(), " ");
    if (name == "pragma") {
      if (absl::StartsWith(rest, "omp simd") || rest == "GCC ivdep" || absl::StartsWith(rest, "GCC unroll ")) {
        return absl::OkStatus();
      }
      return Refuse(absl::StrCat("#pragma ", rest, "; allowed are omp simd, GCC ivdep, GCC unroll"));
    }
    if (name == "include") {
      std::string header = absl::StrCat(words[0].substr(name.size()), rest);
      if (header.size() > 2 && header.front() == '<' && header.back() == '>' &&
          Headers().count(absl::string_view(header).substr(1, header.size() - 2)) > 0) {
        return absl::OkStatus();
      }
      return Refuse(
          absl::StrCat("#include ", header, "; a kernel may include <", absl::StrJoin(Headers(), ">, <"), ">"));
    }
    return Refuse(absl::StrCat("#", words[0], " may not be used in a kernel"));
  }

  const absl::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_is_blank_ = true, in_directive_ = false;
  char previous_ = '\0';  // punctuation before this one, whatever blanks lie between
  std::string directive_;
};

}  // namespace

bool IsAllowedName(absl::string_view name) {
  if (name == "asm" || absl::StrContains(name, "$")) return false;
  const bool reserved = name.size() > 1 && name[0] == '_' && (name[1] == '_' || absl::ascii_isupper(name[1]));
  if (!reserved) return true;
  static const std::set<absl::string_view> exact = {
      "_Bool",      "_Alignas",     "_Alignof",      "_Static_assert", "_Generic",    "_Noreturn", "_Float16",
      "__restrict", "__restrict__", "__inline",      "__inline__",     "__func__",    "__int128",  "__GNUC__",
      "__clang__",  "__x86_64__",   "__FAST_MATH__", "__bf16",         "__OPTIMIZE__"};
  if (exact.count(name) > 0) return true;
  for (const char* prefix : {"__builtin_", "_MM_", "_CMP_", "__m64", "__m128", "__m256", "__m512", "__mmask", "__AVX",
                             "__SSE", "__FMA__", "__F16C__", "__BMI", "__FLT_", "__DBL_", "__INT", "__UINT"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

absl::Status CheckKernelSource(absl::string_view source) {
  // Splices are taken out first: what is left has backslashes in strings only.
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\0') return absl::InvalidArgumentError("its source holds a zero byte");
    if (source[i] == '\\') {
      size_t end = i + 1;
      while (end < source.size() && IsBlank(source[end])) ++end;
      if (end < source.size() && source[end] == '\n') {
        i = end;
        continue;
      }
    }
    text += source[i];
  }
  return Scanner(text).Run();
}

}  // namespace inlay::csource
