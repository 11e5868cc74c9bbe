#include "core/artifact/function_table.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"
#include "core/ir/open_symbols.h"

namespace inlay::artifact {
namespace {

absl::Status CheckEntry(const proto::PrimitiveFunction& f) {
  auto bad = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("function ", f.symbol(), ": the manifest ", what));
  };
  if (f.symbol().empty()) return absl::FailedPreconditionError("a manifest has a function without a symbol");
  if (f.outputs().empty()) return bad("says that it has no outputs");
  if (f.workspace_bytes() < 0) return bad("says that its workspace is negative");
  const std::set<std::string> symbols(f.symbols().begin(), f.symbols().end());
  if (static_cast<int>(symbols.size()) != f.symbols_size() || symbols.count("") > 0) {
    return bad("lists a symbol twice, or one without a name");
  }
  if (!f.workspace_expr().empty()) {
    if (f.workspace_bytes() > 0) return bad("gives its workspace's size twice");
    const std::vector<std::string> names = ir::SymbolNames(ir::CanonicalDim(f.workspace_expr()));
    if (names.empty()) return bad("gives a number as workspace_expr; that is workspace_bytes");
    for (const std::string& name : names) {
      if (symbols.count(name) == 0) return bad(absl::StrCat("has '", name, "' in workspace_expr but not in symbols"));
    }
  }
  std::set<int> constant;
  for (int i : f.constant_inputs()) {
    if (i < 0 || i >= f.inputs_size()) return bad(absl::StrCat("calls input ", i, " constant, which it has not"));
    constant.insert(i);
  }
  for (int i : f.init_only_inputs()) {
    if (constant.count(i) == 0) return bad(absl::StrCat("calls input ", i, " init-only, which is not constant"));
    if (!f.has_state()) return bad("has init-only inputs but no state");
  }
  if (f.in_place_size() != 0 && f.in_place_size() != f.outputs_size()) return bad("has no in_place for each output");
  for (int o = 0; o < f.in_place_size(); ++o) {
    const int i = f.in_place(o);
    if (i == -1) continue;
    if (i < -1 || i >= f.inputs_size() || constant.count(i) > 0 ||
        std::count(f.in_place().begin(), f.in_place().end(), i) > 1) {
      return bad(absl::StrCat("makes output ", o, " in input ", i, ", which it may not"));
    }
  }
  return absl::OkStatus();
}

bool SameType(const proto::TensorType& proto, const ir::TensorType& type) {
  if (static_cast<int>(proto.dtype()) != static_cast<int>(type.dtype) || proto.dims_size() != type.rank()) return false;
  for (int i = 0; i < type.rank(); ++i) {
    const bool open = proto.dims(i).kind_case() == proto::Dim::kSymbol;
    if (open == type.dims[i].is_static()) return false;
    if (open ? proto.dims(i).symbol() != type.dims[i].symbol() : proto.dims(i).value() != type.dims[i].value()) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<FunctionTable> FunctionTable::Make(absl::Span<const proto::StaticLibraryManifest> manifests) {
  FunctionTable table;
  for (const proto::StaticLibraryManifest& manifest : manifests) {
    for (const proto::PrimitiveFunction& function : manifest.functions()) {
      INLAY_RETURN_IF_ERROR(CheckEntry(function));
      const auto [it, fresh] = table.entries_.insert({function.symbol(), {&function, &manifest}});
      if (!fresh) {
        return absl::FailedPreconditionError(absl::StrCat("function ", function.symbol(), " is implemented twice: by ",
                                                          it->second.manifest->backend(), " and by ",
                                                          manifest.backend()));
      }
    }
  }
  return table;
}

absl::StatusOr<const proto::PrimitiveFunction*> FunctionTable::Find(const std::string& symbol,
                                                                    const ir::Function& partition) const {
  const auto it = entries_.find(symbol);
  if (it == entries_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("function ", symbol, " is implemented by no StaticLibrary"));
  }
  const proto::PrimitiveFunction& function = *it->second.function;
  auto other = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("function ", symbol, ", implemented by ",
                                                      it->second.manifest->backend(), ", has other ", what,
                                                      " than the partition that calls it"));
  };
  if (function.inputs_size() != static_cast<int>(partition.params.size())) return other("inputs");
  for (int i = 0; i < function.inputs_size(); ++i) {
    if (!partition.params[i]->type.is_tensor() || !SameType(function.inputs(i), partition.params[i]->type.tensor())) {
      return other("inputs");
    }
  }
  if (function.outputs_size() != static_cast<int>(partition.body.results.size())) return other("outputs");
  for (int i = 0; i < function.outputs_size(); ++i) {
    const ir::Type type = partition.body.results[i].type();
    if (!type.is_tensor() || !SameType(function.outputs(i), type.tensor())) return other("outputs");
  }
  const std::vector<std::string> symbols = ir::OpenSymbols(partition);
  if (!std::equal(symbols.begin(), symbols.end(), function.symbols().begin(), function.symbols().end())) {
    return other("symbols");
  }
  return &function;
}

}  // namespace inlay::artifact
