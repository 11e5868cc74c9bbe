// export_test_model RUNTIME_DIR TVM_FFI_DIR OUT_DIR: links the test model in the forms that the Python test loads.
#include <iostream>

#include "core/artifact/linker.h"
#include "core/artifact/planner.h"
#include "core/artifact/testing/test_library.h"

int main(int argc, char** argv) {
  using namespace inlay;  // NOLINT
  if (argc != 4) return 2;
  auto toolchain = artifact::FindLinkToolchain({argv[1]}, {argv[2]});
  if (!toolchain.ok()) {
    std::cerr << toolchain.status() << std::endl;
    return 1;
  }
  struct Form {
    const char* name;
    bool link_params, with_fail;
  };
  for (const Form& form : {Form{"inside", true, false}, Form{"beside", false, false}, Form{"checked", true, true}}) {
    artifact::testing::TestModel model(form.with_fail);
    auto built = artifact::BuildPlan(model.builder.module(), model.manifests());
    artifact::LinkRequest link;
    link.plan = &built->plan;
    link.libraries = model.library_pointers();
    for (const auto& p : built->params) {
      link.params.emplace_back();
      link.params.back().set_digest(std::string(p->digest.bytes()));
    }
    link.param_source = [&](const Digest&, const std::function<absl::Status(absl::string_view)>& sink) {
      return sink(model.weight_bytes());
    };
    link.link_params = form.link_params;
    link.output = std::string(argv[3]) + "/" + form.name + ".so";
    auto linked = artifact::LinkLibrary(*toolchain, link);
    if (!linked.ok()) {
      std::cerr << linked.status() << std::endl;
      return 1;
    }
  }
  return 0;
}
