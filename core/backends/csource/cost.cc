#include "core/backends/csource/cost.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "core/ir/op_registry.h"
#include "core/ir/work.h"

namespace inlay::csource {
namespace {

bool IsOneOf(const std::string& op, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

double FlopsOf(const ir::Binding& call) {
  if (call.kind != ir::Binding::Kind::kCall || call.args.empty()) return 0;
  if (ir::IsContraction(call) || IsOneOf(call.callee, {"max_pool", "avg_pool"})) return ir::CountFlops(call);
  const double out = ir::CountElements(call.var->type), first = ir::CountElements(call.args[0].type());
  if (IsOneOf(call.callee,
              {"exp", "log", "tanh", "erf", "sigmoid", "gelu", "silu", "softplus", "elu", "softmax", "log_softmax"})) {
    return 20 * out;
  }
  return std::max(out, first);
}

// Of one lane a cycle, measured on a Zen 5 with AVX-512 (2026-11-21): contractions at half of two fused multiply-adds,
// pointwise chains and rows at 0.4, scalar loops not even at that of one lane.
double CyclesOf(const ir::Binding& call, double lanes) {
  const double flops = FlopsOf(call);
  if (ir::IsContraction(call)) return flops / (2 * 2 * lanes * 0.5);
  if (IsOneOf(call.callee, {"max_pool", "avg_pool", "transpose"})) return flops / 0.2;
  return flops / (0.4 * lanes);
}

}  // namespace

double CountFlops(const ir::Function& partition) {
  double flops = 0;
  for (const ir::Binding& binding : partition.body.bindings) flops += FlopsOf(binding);
  return flops;
}

double EstimateMicros(const ir::Function& partition, const target::Target& target) {
  constexpr double kCyclesPerMicro = 3e3, kBytesPerMicro = 15e3, kCall = 0.4;
  const double lanes = target.HasFeature("avx512f") ? 16 : target.HasFeature("avx2") ? 8 : 4;
  double cycles = 0, bytes = 0;
  for (const ir::Binding& binding : partition.body.bindings) cycles += CyclesOf(binding, lanes);
  for (const ir::VarPtr& param : partition.params) bytes += static_cast<double>(ir::CountBytes(param->type));
  for (const ir::Operand& result : partition.body.results) bytes += static_cast<double>(ir::CountBytes(result.type()));
  return kCall + std::max(cycles / kCyclesPerMicro, bytes / kBytesPerMicro);
}

}  // namespace inlay::csource
