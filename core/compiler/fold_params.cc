#include "core/compiler/fold_params.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::compiler {
namespace {

constexpr char kTransformParams[] = "transform_params";

using Replacements = std::unordered_map<const ir::Var*, ir::ConstantPtr>;

void Replace(const Replacements& by, std::vector<ir::Operand>* operands) {
  for (ir::Operand& operand : *operands) {
    const auto found = by.find(operand.var.get());
    if (operand.is_var() && found != by.end()) operand = found->second;
  }
}

void Replace(const Replacements& by, ir::Block* block) {
  for (ir::Binding& binding : block->bindings) {
    Replace(by, &binding.args);
    for (ir::Block& inner : binding.blocks) Replace(by, &inner);
  }
  Replace(by, &block->results);
}

}  // namespace

ir::IRModule TransformParamsAlone(const ir::IRModule& module) {
  ir::IRModule alone;
  alone.functions["main"] = module.functions.at(kTransformParams);
  const absl::StatusOr<target::Target> host = target::HostTarget().Completed();
  target::CompilationConfig config =
      host.ok() ? target::CompilationConfig::FromTarget(*host) : target::CompilationConfig::Default();
  config.search_mode = target::SearchMode::kNone;
  config.num_threads = 1;
  alone.set_config(std::move(config));
  return alone;
}

absl::StatusOr<ir::IRModule> FoldParams(ir::IRModule module, cache::BlobStore* blobs, const EvaluateFn& evaluate) {
  const auto transform = module.functions.find(kTransformParams);
  if (transform == module.functions.end()) return module;
  const size_t count = transform->second.body.results.size();
  ir::Function& main = module.functions.at("main");
  if (main.params.size() < count) return absl::InternalError("main has fewer parameters than transform_params results");
  INLAY_ASSIGN_OR_RETURN(std::vector<std::string> values,
                         Annotate(evaluate(TransformParamsAlone(module)), "the weights' own work (transform_params)"));
  if (values.size() != count) return absl::InternalError("transform_params gave another number of results");
  Replacements by;
  const size_t first = main.params.size() - count;
  for (size_t i = 0; i < count; ++i) {
    const ir::VarPtr& param = main.params[first + i];
    INLAY_ASSIGN_OR_RETURN(Digest digest, blobs->Put(values[i]));
    by[param.get()] = ir::MakeWeight(param->type.tensor(), digest, absl::StrCat("folded.", i));
  }
  main.params.resize(first);
  main.attrs.Set("num_lifted_params", int64_t{0});
  Replace(by, &main.body);
  module.functions.erase(transform);
  return module;
}

}  // namespace inlay::compiler
