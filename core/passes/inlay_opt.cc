// inlay-opt: reads a serialized IRModule, normalises it, prints it. For those who work on passes and importers.
//
//   inlay_opt MODULE.pb            the normalised module as text
//   inlay_opt --before MODULE.pb   as it came, verified
//   inlay_opt --timing MODULE.pb   milliseconds of each pass
//   inlay_opt --opt_level=1 --verify_each --proto_out=OUT.pb MODULE.pb
//                                  the normalised module as a proto, every pass checked
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/ir/printer.h"
#include "core/ir/proto_conversion.h"
#include "core/passes/pass_manager.h"
#include "proto/ir.pb.h"

ABSL_FLAG(bool, before, false, "print the module as it came");
ABSL_FLAG(bool, timing, false, "print the time of each pass instead of the module");

ABSL_FLAG(int, opt_level, -1, "the optimisation level; -1: the module's own");
ABSL_FLAG(bool, verify_each, false, "verify the module after each pass");
ABSL_FLAG(std::string, proto_out, "", "write the normalised module there instead of printing it");

namespace inlay {
namespace {

absl::Status Main(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  proto::IRModule proto;
  if (!proto.ParseFromString(bytes)) return absl::InvalidArgumentError(absl::StrCat(path, ": not an IRModule"));
  INLAY_ASSIGN_OR_RETURN(ir::IRModule module, ir::FromProto(proto));
  target::CompilationConfig config = module.config();
  if (absl::GetFlag(FLAGS_opt_level) >= 0) config.opt_level = absl::GetFlag(FLAGS_opt_level);
  passes::PassManager manager = passes::BuildNormalisePipeline(config);
  manager.set_verify_each(absl::GetFlag(FLAGS_verify_each));
  if (!absl::GetFlag(FLAGS_before)) {
    INLAY_ASSIGN_OR_RETURN(module, manager.Run(std::move(module)));
  }
  if (absl::GetFlag(FLAGS_timing)) {
    for (const auto& [pass, time] : manager.timings()) {
      std::printf("%9.3f ms  %s\n", time, pass.c_str());
    }
    return absl::OkStatus();
  }
  if (const std::string out = absl::GetFlag(FLAGS_proto_out); !out.empty()) {
    return WriteFileAtomically(out, ir::ToProto(module).SerializeAsString());
  }
  std::fputs(ir::Print(module).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace inlay

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("inlay_opt [--before] [--timing] MODULE.pb: normalises an IRModule and prints it.");
  std::vector<char*> args = absl::ParseCommandLine(argc, argv);
  if (args.size() != 2) {
    std::fprintf(stderr, "usage: inlay_opt [--before] [--timing] MODULE.pb\n");
    return 2;
  }
  absl::Status status = inlay::Main(args[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "inlay_opt: %s\n", status.ToString().c_str());
  return 1;
}
