// What the tests of passes share: run one pass, compare the text of main.
#ifndef INLAY_CORE_PASSES_PASS_TEST_UTIL_H_
#define INLAY_CORE_PASSES_PASS_TEST_UTIL_H_

#include <memory>
#include <string>

#include "core/ir/printer.h"
#include "core/ir/testing.h"
#include "core/ir/verifier.h"
#include "core/passes/pass_manager.h"
#include "core/passes/passes.h"

namespace inlay::passes {

using ir::Dim;
using ir::DType;
using ir::MakeScalar;
using ir::Operand;
using ir::VarPtr;
using ir::testing::F32;
using ir::testing::FloatLiteral;
using ir::testing::FunctionBuilder;
using ir::testing::I64;
using ir::testing::IntLiteral;
using ir::testing::Weight;
using Ints = std::vector<int64_t>;

// Runs the pass, then dead_code where `sweep`; verifies.
inline ir::IRModule RunPass(ir::IRModule module, std::unique_ptr<Pass> pass, bool sweep = true,
                            const target::CompilationConfig& config = target::CompilationConfig::Default()) {
  const absl::Status before = ir::Verify(module);
  EXPECT_TRUE(before.ok()) << "before: " << before;
  absl::StatusOr<ir::IRModule> result = pass->Run(std::move(module), config);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return ir::IRModule();
  const absl::Status after = ir::Verify(*result);
  EXPECT_TRUE(after.ok()) << "after: " << after << "\n" << Print(*result);
  if (sweep) result = DeadCode()->Run(*std::move(result), target::CompilationConfig::Default());
  return *result;
}

// The body of main, without its signature and the list of weights.
inline std::string Body(const ir::IRModule& module) {
  std::string text = ir::Print(module.functions.at("main"));
  const size_t begin = text.find("{\n", text.find("fn @main")) + 2;
  return text.substr(begin, text.rfind("}") - begin);
}

inline std::string BodyAfter(const FunctionBuilder& b, std::unique_ptr<Pass> pass) {
  return Body(RunPass(b.Module(), std::move(pass)));
}

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASS_TEST_UTIL_H_
