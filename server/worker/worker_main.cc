#include "server/worker/worker_main.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backend/external_compilers.h"
#include "core/backend/run_action.h"
#include "core/base/file_system.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "proto/worker.pb.h"
#include "server/worker/worker_loop.h"

ABSL_FLAG(std::string, scratch_dir, "", "where actions get their scratch directories (default: $TMPDIR)");
ABSL_FLAG(int64_t, memory_bytes, 0,
          "address space that actions may take over what the worker begins with; 0: no limit");
ABSL_FLAG(std::string, action, "", "a serialized CompileAction: run it alone");
ABSL_FLAG(bool, backends, false, "print the backends of this worker and their versions");
ABSL_FLAG(std::vector<std::string>, compilers, {}, "compilers that backends may call (default: gcc, clang, cc)");
ABSL_FLAG(std::string, out, "", "where its StaticLibrary is written");

namespace inlay::server {
namespace {

int Fail(const absl::Status& status) {
  fprintf(stderr, "inlay_worker: %s\n", status.ToString().c_str());
  return 1;
}

absl::StatusOr<proto::StaticLibrary> RunInScratch(const proto::CompileAction& action) {
  INLAY_ASSIGN_OR_RETURN(TempDir scratch, TempDir::Create("action", absl::GetFlag(FLAGS_scratch_dir)));
  return backend::RunAction(action, scratch.path());
}

int RunOne(const std::string& action_file, const std::string& out_file) {
  if (out_file.empty()) return Fail(absl::InvalidArgumentError("--action needs --out"));
  absl::StatusOr<std::string> bytes = ReadFile(action_file);
  if (!bytes.ok()) return Fail(bytes.status());
  proto::CompileAction action;
  if (!action.ParseFromString(*bytes)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(action_file, " is no CompileAction")));
  }
  absl::StatusOr<proto::StaticLibrary> library = RunInScratch(action);
  if (!library.ok()) return Fail(library.status());
  absl::Status written = WriteFileAtomically(out_file, DeterministicBytes(*library));
  return written.ok() ? 0 : Fail(written);
}

void FillBackends(proto::WorkerResponse* response) {
  for (const backend::BackendCodegen* codegen : backend::CodegenRegistry::Global().All()) {
    proto::BackendInfo* info = response->add_backends();
    info->set_name(codegen->name());
    info->set_version(codegen->version());
  }
}

int PrintBackends() {
  proto::WorkerResponse response;
  FillBackends(&response);
  for (const proto::BackendInfo& info : response.backends()) {
    // The executors' code generators are nobody's to choose.
    if (backend::BackendRegistry::Global().Find(info.name()) == nullptr) continue;
    printf("%s %s\n", info.name().c_str(), info.version().c_str());
  }
  return 0;
}

absl::Status Answer(const proto::WorkerRequest& request, proto::WorkerResponse* response) {
  if (request.has_compile()) {
    INLAY_ASSIGN_OR_RETURN(*response->mutable_library(), RunInScratch(request.compile()));
    return absl::OkStatus();
  }
  if (request.has_ping()) {
    FillBackends(response);
    return absl::OkStatus();
  }
  return absl::UnimplementedError("a request for work that this worker does not know");
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "inlay_worker: runs compile actions for inlayd (frames on standard input), or one from a file (--action, "
      "--out).");
  absl::ParseCommandLine(argc, argv);
  if (const std::vector<std::string> compilers = absl::GetFlag(FLAGS_compilers); !compilers.empty()) {
    const absl::Status set = backend::ExternalCompilers::Global().Set(compilers);
    if (!set.ok()) return Fail(set);
  }
  if (absl::GetFlag(FLAGS_backends)) return PrintBackends();
  if (!absl::GetFlag(FLAGS_action).empty()) {
    LimitMemory(absl::GetFlag(FLAGS_memory_bytes));
    return RunOne(absl::GetFlag(FLAGS_action), absl::GetFlag(FLAGS_out));
  }
  return ServeRequests(absl::GetFlag(FLAGS_memory_bytes), Answer);
}

}  // namespace inlay::server
