#include "core/backends/csource/op.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::csource {
namespace {

// Literals are written out in the source; one of this size is no longer readable, nor quick to compile.
constexpr int64_t kMaxLiteral = 1 << 16;

absl::Status CheckTensor(const ir::Type& type, bool literal) {
  if (type.is_tuple()) {
    for (const ir::Type& field : type.tuple().fields) INLAY_RETURN_IF_ERROR(CheckTensor(field, false));
    return absl::OkStatus();
  }
  const ir::TensorType& t = type.tensor();
  if (!t.is_static()) {
    return absl::UnimplementedError(absl::StrCat("dimension '", t.FirstSymbol(), "' is symbolic, C needs numbers"));
  }
  if (t.NumElements() == 0) return absl::UnimplementedError(absl::StrCat("a tensor without elements: ", t.ToString()));
  if (literal && t.NumElements() > kMaxLiteral) {
    return absl::UnimplementedError(
        absl::StrCat("a literal of ", t.NumElements(), " elements; at most ", kMaxLiteral, " go into a source"));
  }
  return absl::OkStatus();
}

}  // namespace

const OpTable& Ops() {
  static const auto* const ops = [] {
    auto* table = new OpTable;
    AddElementwise(table);
    AddMovement(table);
    AddReductions(table);
    AddNormalisation(table);
    AddPooling(table);
    AddSampling(table);
    AddContractions(table);
    return table;
  }();
  return *ops;
}

const Op* FindOp(const std::string& name) {
  auto found = Ops().find(name);
  return found == Ops().end() ? nullptr : &found->second;
}

absl::Status CheckCall(const ir::Binding& call) {
  if (call.kind != ir::Binding::Kind::kCall) return absl::UnimplementedError("not a call of an operator");
  const Op* op = FindOp(call.callee);
  if (op == nullptr) return absl::UnimplementedError(absl::StrCat("csource does not know '", call.callee, "'"));
  for (const ir::Operand& arg : call.args) INLAY_RETURN_IF_ERROR(CheckTensor(arg.type(), arg.is_literal()));
  INLAY_RETURN_IF_ERROR(CheckTensor(call.var->type, false));
  return op->check ? op->check(call) : absl::OkStatus();
}

}  // namespace inlay::csource
