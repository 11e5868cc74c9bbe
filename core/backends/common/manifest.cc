#include "core/backends/common/manifest.h"

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backends {
namespace {

constexpr int kManifestFormatVersion = 1;  // core/artifact/FORMAT.md

absl::Status FillType(const ir::Type& type, proto::TensorType* proto) {
  if (!type.is_tensor() || !type.tensor().is_static()) {
    return absl::InvalidArgumentError(absl::StrCat("is ", type.ToString(), ", not a tensor of known shape"));
  }
  proto->set_dtype(static_cast<proto::DType>(type.tensor().dtype));
  for (const ir::Dim& dim : type.tensor().dims) proto->add_dims()->set_value(dim.value());
  return absl::OkStatus();
}

}  // namespace

absl::Status FillSignature(const std::string& symbol, const ir::Function& partition,
                           proto::PrimitiveFunction* primitive) {
  auto fail = [&](absl::string_view what, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("partition '", symbol, "': ", what, " ", why));
  };
  primitive->set_symbol(symbol);
  for (const ir::VarPtr& param : partition.params) {
    if (absl::Status s = FillType(param->type, primitive->add_inputs()); !s.ok()) {
      return fail(absl::StrCat("parameter '", param->name, "'"), s.message());
    }
  }
  for (const ir::Operand& result : partition.body.results) {
    if (absl::Status s = FillType(result.type(), primitive->add_outputs()); !s.ok())
      return fail("a result", s.message());
  }
  if (!partition.attrs.Has(backend::kConstantParams)) return fail("the attribute", "'constant_params' is missing");
  for (int64_t i : partition.attrs.IntsOr(backend::kConstantParams, {})) {
    if (i < 0 || i >= static_cast<int64_t>(partition.params.size())) {
      return fail("the attribute", absl::StrCat("'constant_params' names parameter ", i));
    }
    primitive->add_constant_inputs(static_cast<int32_t>(i));
  }
  return absl::OkStatus();
}

void FillManifest(const std::string& backend, const std::string& version, const target::Target& target,
                  proto::StaticLibraryManifest* manifest) {
  manifest->set_format_version(kManifestFormatVersion);
  manifest->set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
  manifest->set_backend(backend);
  manifest->set_backend_version(version);
  manifest->set_target_triple(target.attr("mtriple"));
  manifest->set_target_cpu(target.attr("mcpu"));
  manifest->set_target_features(target.attr("mattr"));
}

void RequireOpenMp(proto::StaticLibraryManifest* manifest) {
  auto* required = manifest->add_required_libraries();
  required->set_soname("libgomp.so.1");
  required->set_package("libgomp1 (Debian)");
}

}  // namespace inlay::backends
