#include "server/service/run_here.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/jit/loaded_module.h"

namespace inlay::server {

compiler::RunHereFn RunInThisProcess(cache::BlobStore* blobs) {
  return
      [blobs](const proto::Executable& executable,
              const std::vector<compiler::CompiledPartition>& partitions) -> absl::StatusOr<std::vector<std::string>> {
        std::vector<const proto::StaticLibrary*> libraries;
        for (const compiler::CompiledPartition& partition : partitions) libraries.push_back(partition.library.get());
        auto get_param = [blobs](const Digest& digest) -> absl::StatusOr<jit::ParamBytes> {
          INLAY_ASSIGN_OR_RETURN(cache::Blob blob, blobs->Get(digest));
          auto owner = std::make_shared<cache::Blob>(blob);
          return jit::ParamBytes{owner->view(), owner};
        };
        const std::vector<proto::ParamRef> params(executable.params().begin(), executable.params().end());
        INLAY_ASSIGN_OR_RETURN(std::unique_ptr<jit::LoadedModule> module,
                               jit::LoadedModule::Load(executable.plan_json(), libraries, params, get_param, {}));
        std::vector<std::string> results;
        for (const runtime::NamedTensor& output : module->outputs()) results.emplace_back(output.type.NumBytes(), '\0');
        std::vector<void*> pointers;
        for (std::string& result : results) pointers.push_back(result.data());
        INLAY_RETURN_IF_ERROR(module->Run({}, pointers));
        return results;
      };
}

}  // namespace inlay::server
