// inlayd: reads the configuration and wires the parts; what the parts do is elsewhere.
#include <google/protobuf/stubs/common.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <signal.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/daemon.h"
#include "server/server_config.h"
#include "server/signals.h"

ABSL_FLAG(std::string, config, "", "configuration file (proto/server_config.proto, text format)");
ABSL_FLAG(std::string, worker_binary, "", "inlay_worker (default: beside this program)");
ABSL_FLAG(std::string, measurer_binary, "", "inlay_measurer (default: beside this program)");
ABSL_FLAG(std::vector<std::string>, runtime_dir, {},
          "directories of the runtime archives that artifacts are linked with");
ABSL_FLAG(std::vector<std::string>, library_dir, {}, "directories of the shared libraries that artifacts need");

namespace inlay::server {
namespace {

absl::Status SetUpLog(const proto::ServerConfig& config) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    logger = config.log_file().empty() ? spdlog::stderr_logger_mt("inlayd")
                                       : spdlog::basic_logger_mt("inlayd", config.log_file());
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(absl::StrCat("log_file: ", error.what()));
  }
  spdlog::set_default_logger(logger);
  // JSON lines; %v is a sentence of key=value words, so only quotes and backslashes would need escaping: see JsonSafe.
  spdlog::set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","pid":%P,"message":"%v"})");
  const spdlog::level::level_enum level = spdlog::level::from_str(config.log_level());
  if (level == spdlog::level::off) {
    return absl::InvalidArgumentError(
        absl::StrCat("log_level '", config.log_level(), "': trace, debug, info, warn, error or critical"));
  }
  spdlog::set_level(level);
  spdlog::flush_on(spdlog::level::info);
  return absl::OkStatus();
}

absl::Status Main() {
  proto::ServerConfig config;
  if (std::string path = absl::GetFlag(FLAGS_config); !path.empty()) {
    auto read = ReadServerConfig(path);
    if (!read.ok()) return read.status();
    config = *std::move(read);
  }
  ApplyFlags(&config);
  auto complete = CompleteServerConfig(std::move(config), static_cast<int>(std::thread::hardware_concurrency()));
  if (!complete.ok()) return complete.status();
  if (absl::Status log = SetUpLog(*complete); !log.ok()) return log;

  Daemon::Paths paths;
  paths.worker_binary = absl::GetFlag(FLAGS_worker_binary);
  paths.measurer_binary = absl::GetFlag(FLAGS_measurer_binary);
  paths.runtime_dirs = absl::GetFlag(FLAGS_runtime_dir);
  paths.library_dirs = absl::GetFlag(FLAGS_library_dir);
  auto daemon = Daemon::Start(*complete, paths);
  if (!daemon.ok()) return daemon.status();
  // One line for whoever started us: where we listen (a port may have been chosen by the kernel).
  for (const std::string& address : (*daemon)->addresses()) std::printf("inlayd listening on %s\n", address.c_str());
  std::fflush(stdout);
  (*daemon)->RunUntilStopped();
  return absl::OkStatus();
}

}  // namespace
}  // namespace inlay::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "inlayd: the compile server of inlay. Options are those of proto/server_config.proto, from --config and flags.");
  absl::ParseCommandLine(argc, argv);
  inlay::server::BlockStopSignals();  // before the first thread, so that all inherit it
  absl::Status status = inlay::server::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "inlayd: %s\n", status.ToString().c_str());
  return 1;
}
