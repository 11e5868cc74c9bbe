// What an IRModule says that a run's open sizes must be. How expressions are read and printed is core/ir/dim_expr.h's.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/src/ir_module_impl.h"
#include "core/base/extents.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"
#include "inlay/ir_module.h"

namespace inlay {
namespace {

constexpr char kRequiredExtents[] = "required_extents";  // core/ir/required_extents.h

std::string Quoted(const std::string& text) { return absl::StrCat("'", text, "'"); }

// Of main's inputs.
std::set<std::string> Symbols(const proto::Function& main) {
  std::set<std::string> symbols;
  for (const int index : main.params()) {
    if (index < 0 || index >= main.vars_size()) continue;
    for (const proto::Dim& dim : main.vars(index).type().tensor().dims()) {
      if (dim.symbol().empty()) continue;
      for (std::string& name : ir::PlainNames(ir::CanonicalDim(dim.symbol()))) symbols.insert(std::move(name));
    }
  }
  return symbols;
}

absl::Status CheckSymbol(const std::string& symbol, const std::set<std::string>& known) {
  if (known.count(symbol) > 0) return absl::OkStatus();
  const std::string has =
      absl::StrJoin(known, ", ", [](std::string* out, const std::string& name) { absl::StrAppend(out, Quoted(name)); });
  return absl::InvalidArgumentError(
      absl::StrCat("no input has the symbol ", Quoted(symbol), "; main has ", has.empty() ? "none" : has));
}

// coefficient * symbol + number.
struct Line {
  std::string symbol;
  int64_t coefficient = 0, number = 0;
};

// nullopt: it is not one of a single symbol.
std::optional<Line> LinearInOne(const ir::Dim& dim) {
  Line line;
  for (const ir::DimTerm& term : ir::DimTerms(dim)) {
    if (term.names.empty()) {
      line.number = term.coefficient;
      continue;
    }
    if (term.names.size() > 1 || line.coefficient != 0 || ir::ParseOpaque(term.names[0]).has_value()) {
      return std::nullopt;
    }
    line.symbol = term.names[0];
    line.coefficient = term.coefficient;
  }
  if (line.coefficient == 0) return std::nullopt;
  return line;
}

// Tightens the symbol's bounds to where the line is 0 or more.
void Apply(const Line& line, Bounds* bounds) {
  if (line.coefficient > 0) {
    const int64_t floor = FloorDivExtent(line.number, line.coefficient);
    const int64_t least = floor == INT64_MIN ? INT64_MAX : -floor;
    bounds->least = std::max(least, bounds->least.value_or(least));
  } else {
    const int64_t most =
        line.coefficient == INT64_MIN ? (line.number < 0 ? -1 : 0) : FloorDivExtent(line.number, -line.coefficient);
    bounds->most = std::min(most, bounds->most.value_or(most));
  }
}

}  // namespace

std::vector<std::string> IRModule::required_extents() const {
  const proto::Function& main = impl_->proto.functions().at("main");
  const auto given = main.attrs().find(kRequiredExtents);
  std::vector<std::string> required;
  if (given == main.attrs().end()) return required;
  for (const std::string& text : given->second.strings().v()) required.push_back(ir::CanonicalDim(text).ToString());
  return required;
}

absl::StatusOr<IRModule> IRModule::WithRequiredExtents(const std::vector<std::string>& expressions) const {
  const std::set<std::string> known = Symbols(impl_->proto.functions().at("main"));
  std::vector<std::string> required;
  for (const std::string& text : expressions) {
    if (text.empty()) return absl::InvalidArgumentError("an expression is empty");
    const ir::Dim dim = ir::CanonicalDim(text);
    if (dim.is_static()) {
      if (dim.value() >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is ", dim.value(), ", and must be 0 or more"));
    }
    for (const std::string& name : ir::PlainNames(dim)) INLAY_RETURN_IF_ERROR(CheckSymbol(name, known));
    if (std::count(required.begin(), required.end(), dim.symbol()) == 0) required.push_back(dim.symbol());
  }
  proto::IRModule copy = impl_->proto;
  auto* attrs = copy.mutable_functions()->at("main").mutable_attrs();
  attrs->erase(kRequiredExtents);
  if (!required.empty()) (*attrs)[kRequiredExtents] = ToProto(AttrValue(required));
  return MakeIRModule(std::move(copy), impl_->weights);
}

std::map<std::string, Bounds> IRModule::bounds() const {
  std::map<std::string, Bounds> bounds;
  for (const std::string& expression : required_extents()) {
    if (const std::optional<Line> line = LinearInOne(ir::CanonicalDim(expression))) Apply(*line, &bounds[line->symbol]);
  }
  return bounds;
}

absl::StatusOr<IRModule> IRModule::WithBounds(const std::map<std::string, Bounds>& bounds) const {
  const std::set<std::string> known = Symbols(impl_->proto.functions().at("main"));
  std::vector<std::string> required;
  for (const auto& [symbol, range] : bounds) {
    INLAY_RETURN_IF_ERROR(CheckSymbol(symbol, known));
    const int64_t least = range.least.value_or(0);
    if (range.most.has_value() && *range.most < std::max<int64_t>(0, least)) {
      return absl::InvalidArgumentError(
          absl::StrCat("no size of ", Quoted(symbol), " is within its bounds, ", least, " to ", *range.most));
    }
    const ir::Dim size = ir::Dim::Symbol(symbol);
    if (range.least.has_value()) {
      INLAY_ASSIGN_OR_RETURN(const ir::Dim negated, ir::MulDims(least, -1));
      INLAY_ASSIGN_OR_RETURN(const ir::Dim above, ir::AddDims(size, negated));
      required.push_back(above.ToString());
    }
    if (range.most.has_value()) {
      INLAY_ASSIGN_OR_RETURN(const ir::Dim negated, ir::MulDims(size, -1));
      INLAY_ASSIGN_OR_RETURN(const ir::Dim below, ir::AddDims(negated, *range.most));
      required.push_back(below.ToString());
    }
  }
  // Those of one symbol first: the first that a run breaks is what it says.
  for (std::string& other : required_extents()) {
    if (!LinearInOne(ir::CanonicalDim(other)).has_value()) required.push_back(std::move(other));
  }
  return WithRequiredExtents(required);
}

}  // namespace inlay
