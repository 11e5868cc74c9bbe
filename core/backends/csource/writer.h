// Lines of C with their indentation; a Block closes itself.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_WRITER_H_
#define INLAY_CORE_BACKENDS_CSOURCE_WRITER_H_

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/backends/csource/expr.h"

namespace inlay::csource {

class Writer {
 public:
  explicit Writer(int indent = 0) : indent_(indent) {}

  template <typename... T>
  void Line(const T&... parts) {
    text_.append(2 * indent_, ' ');
    absl::StrAppend(&text_, parts...);
    text_ += '\n';
  }
  void Append(const std::string& lines) { text_ += lines; }

  // "header { ... }"
  void Block(const std::string& header, const std::function<void()>& body) {
    Line(header, header.empty() ? "{" : " {");
    ++indent_;
    body();
    --indent_;
    Line("}");
  }

  const std::string& text() const { return text_; }

 private:
  int indent_;
  std::string text_;
};

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_WRITER_H_
