#include "core/artifact/testing/many_functions.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace inlay::artifact::testing {

ManyFunctions::ManyFunctions(int n, int64_t weight_bytes) : weight(weight_bytes, 'w') {
  ModuleBuilder builder;
  std::vector<proto::StaticLibraryManifest> manifests;
  ir::VarPtr v = builder.Input("x", Vector());
  for (int i = 0; i < n; ++i) {
    const std::string symbol = absl::StrCat("f", i);
    builder.Declare(AddSignature(symbol));
    libraries.push_back(MakeLibrary(AddSource(symbol), {AddSignature(symbol)}));
    manifests.push_back(libraries.back().manifest());
    v = builder.Call(symbol, {v, v});
  }
  std::vector<ir::Operand> results = {v};
  if (weight_bytes > 0) {
    results.emplace_back(
        ir::MakeWeight(ir::MakeTensorType(ir::DType::kU8, {weight_bytes}), Digest::Of(weight), "weight"));
  }
  builder.Return(results, {});
  auto plan = BuildPlan(builder.module(), manifests);
  if (!plan.ok()) {
    std::cerr << plan.status() << std::endl;
    std::abort();
  }
  built = *std::move(plan);
  for (const auto& p : built.params) {
    params.emplace_back();
    params.back().set_digest(std::string(p->digest.bytes()));
  }
}

std::vector<const proto::StaticLibrary*> ManyFunctions::library_pointers() const {
  std::vector<const proto::StaticLibrary*> pointers;
  for (const proto::StaticLibrary& l : libraries) pointers.push_back(&l);
  return pointers;
}

}  // namespace inlay::artifact::testing
