#include "server/server_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

ABSL_FLAG(std::vector<std::string>, listen, {}, "addresses: unix:/path or 127.0.0.1:port, comma separated");
ABSL_FLAG(absl::optional<std::string>, cache_dir, absl::nullopt, "where compiled partitions and weights are kept");
ABSL_FLAG(absl::optional<int64_t>, cache_max_bytes, absl::nullopt, "bound of the cache; oldest entries go first");
ABSL_FLAG(absl::optional<int32_t>, workers, absl::nullopt, "compile worker processes (default: cores)");
ABSL_FLAG(absl::optional<int64_t>, worker_memory_bytes, absl::nullopt, "memory that one action may take");
ABSL_FLAG(absl::optional<double>, action_timeout_s, absl::nullopt, "seconds that one action may take");
ABSL_FLAG(absl::optional<int32_t>, queue_limit, absl::nullopt, "requests under way at most");
ABSL_FLAG(absl::optional<int64_t>, max_message_bytes, absl::nullopt, "largest message accepted");
ABSL_FLAG(absl::optional<int64_t>, jit_memory_bytes, absl::nullopt, "bound of all loaded modules");
ABSL_FLAG(absl::optional<double>, jit_idle_expiry_s, absl::nullopt, "seconds until an unused handle goes");
ABSL_FLAG(absl::optional<bool>, trust_cache_for_jit, absl::nullopt, "load objects of the cache into this process");
ABSL_FLAG(std::vector<std::string>, compilers, {}, "C compilers that backends may call: /path or name=/path, or none");
ABSL_FLAG(absl::optional<bool>, trust_client_kernels, absl::nullopt, "run clients' own C kernels in this server");
ABSL_FLAG(absl::optional<std::string>, metrics_listen, absl::nullopt, "127.0.0.1:port of the Prometheus page");
ABSL_FLAG(absl::optional<std::string>, log_file, absl::nullopt, "where the log goes (default: stderr)");
ABSL_FLAG(absl::optional<std::string>, log_level, absl::nullopt, "debug, info, warn or error");
ABSL_FLAG(absl::optional<bool>, measure, absl::nullopt, "measure executables where a request asks for it");
ABSL_FLAG(absl::optional<double>, measure_step_timeout_s, absl::nullopt,
          "seconds that a load or a run may take when measured");
ABSL_FLAG(absl::optional<int64_t>, measure_memory_bytes, absl::nullopt,
          "memory that what is measured together may take (default: half of the machine's)");
ABSL_FLAG(absl::optional<std::string>, measure_lock, absl::nullopt,
          "file that daemons of this machine lock while they measure, or none");
ABSL_FLAG(absl::optional<double>, measure_lock_wait_s, absl::nullopt,
          "seconds that a measurement waits for those of other daemons");
ABSL_FLAG(absl::optional<double>, idle_exit_s, absl::nullopt, "leave after so long without a request (0: never)");

namespace inlay::server {
namespace {

std::string DefaultCacheDir() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && *xdg != '\0') return JoinPath(xdg, "inlay");
  const char* home = std::getenv("HOME");
  return JoinPath(home != nullptr ? home : "/tmp", ".cache/inlay");
}

class ErrorKeeper : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (first.empty()) first = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  std::string first;
};

absl::Status OutOfRange(absl::string_view field, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("server config: ", field, " must be ", accepted));
}

}  // namespace

absl::StatusOr<proto::ServerConfig> CompleteServerConfig(proto::ServerConfig config, int num_cores) {
  if (config.cache_dir().empty()) config.set_cache_dir(DefaultCacheDir());
  if (config.listen().empty()) config.add_listen(absl::StrCat("unix:", config.cache_dir(), "/inlayd.sock"));
  if (config.cache_max_bytes() == 0) config.set_cache_max_bytes(int64_t{10} << 30);
  if (config.workers() == 0) config.set_workers(num_cores);
  if (config.worker_memory_bytes() == 0) config.set_worker_memory_bytes(int64_t{4} << 30);
  if (config.action_timeout_s() == 0) config.set_action_timeout_s(300);
  if (config.queue_limit() == 0) config.set_queue_limit(128);
  if (config.max_message_bytes() == 0) config.set_max_message_bytes(64 << 20);
  if (config.jit_memory_bytes() == 0) config.set_jit_memory_bytes(int64_t{8} << 30);
  if (config.jit_idle_expiry_s() == 0) config.set_jit_idle_expiry_s(3600);
  if (config.log_level().empty()) config.set_log_level("info");
  if (!config.has_trust_cache_for_jit()) config.set_trust_cache_for_jit(true);
  if (!config.has_measure()) config.set_measure(true);
  if (config.measure_step_timeout_s() == 0) config.set_measure_step_timeout_s(30);
  if (config.measure_lock().empty()) config.set_measure_lock("/tmp/inlay-measuring.lock");
  if (config.measure_lock_wait_s() == 0) config.set_measure_lock_wait_s(30);
  if (config.measure_memory_bytes() == 0) {
    // Never below what one model takes, where the machine is small or does not say.
    config.set_measure_memory_bytes(
        std::max<int64_t>(int64_t{1} << 30, sysconf(_SC_PHYS_PAGES) / 2 * sysconf(_SC_PAGESIZE)));
  }

  if (config.cache_max_bytes() < (1 << 20)) return OutOfRange("cache_max_bytes", "at least 1 MiB");
  if (config.workers() < 1 || config.workers() > 1024) return OutOfRange("workers", "1 to 1024");
  if (config.worker_memory_bytes() < (64 << 20)) return OutOfRange("worker_memory_bytes", "at least 64 MiB");
  if (!(config.action_timeout_s() > 0)) return OutOfRange("action_timeout_s", "positive");
  if (config.queue_limit() < 1) return OutOfRange("queue_limit", "at least 1");
  if (config.max_message_bytes() < (1 << 16) || config.max_message_bytes() > INT32_MAX) {
    return OutOfRange("max_message_bytes", "64 KiB to 2 GiB");
  }
  if (config.jit_memory_bytes() < 0) return OutOfRange("jit_memory_bytes", "at least 0");
  if (!(config.jit_idle_expiry_s() > 0)) return OutOfRange("jit_idle_expiry_s", "positive");
  if (!(config.idle_exit_s() >= 0)) return OutOfRange("idle_exit_s", "0 (never) or positive");
  if (!(config.measure_step_timeout_s() > 0)) return OutOfRange("measure_step_timeout_s", "positive");
  if (!(config.measure_lock_wait_s() > 0)) return OutOfRange("measure_lock_wait_s", "positive");
  if (config.measure_memory_bytes() < (64 << 20)) return OutOfRange("measure_memory_bytes", "at least 64 MiB");
  for (const std::string& address : config.listen()) INLAY_RETURN_IF_ERROR(CheckListenAddress(address));
  if (!config.metrics_listen().empty()) INLAY_RETURN_IF_ERROR(CheckListenAddress(config.metrics_listen()));
  return config;
}

absl::StatusOr<proto::ServerConfig> ReadServerConfig(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  proto::ServerConfig config;
  google::protobuf::TextFormat::Parser parser;
  ErrorKeeper errors;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(text, &config)) return absl::InvalidArgumentError(absl::StrCat(path, ": ", errors.first));
  return config;
}

void ApplyFlags(proto::ServerConfig* config) {
  const std::vector<std::string> listen = absl::GetFlag(FLAGS_listen);
  if (!listen.empty()) config->clear_listen();
  for (const std::string& address : listen) config->add_listen(address);
  if (auto v = absl::GetFlag(FLAGS_cache_dir)) config->set_cache_dir(*v);
  if (auto v = absl::GetFlag(FLAGS_cache_max_bytes)) config->set_cache_max_bytes(*v);
  if (auto v = absl::GetFlag(FLAGS_workers)) config->set_workers(*v);
  if (auto v = absl::GetFlag(FLAGS_worker_memory_bytes)) config->set_worker_memory_bytes(*v);
  if (auto v = absl::GetFlag(FLAGS_action_timeout_s)) config->set_action_timeout_s(*v);
  if (auto v = absl::GetFlag(FLAGS_queue_limit)) config->set_queue_limit(*v);
  if (auto v = absl::GetFlag(FLAGS_max_message_bytes)) config->set_max_message_bytes(*v);
  if (auto v = absl::GetFlag(FLAGS_jit_memory_bytes)) config->set_jit_memory_bytes(*v);
  if (auto v = absl::GetFlag(FLAGS_jit_idle_expiry_s)) config->set_jit_idle_expiry_s(*v);
  if (auto v = absl::GetFlag(FLAGS_trust_cache_for_jit)) config->set_trust_cache_for_jit(*v);
  const std::vector<std::string> compilers = absl::GetFlag(FLAGS_compilers);
  if (!compilers.empty()) config->clear_compilers();
  for (const std::string& compiler : compilers) config->add_compilers(compiler);
  if (auto v = absl::GetFlag(FLAGS_trust_client_kernels)) config->set_trust_client_kernels(*v);
  if (auto v = absl::GetFlag(FLAGS_metrics_listen)) config->set_metrics_listen(*v);
  if (auto v = absl::GetFlag(FLAGS_log_file)) config->set_log_file(*v);
  if (auto v = absl::GetFlag(FLAGS_log_level)) config->set_log_level(*v);
  if (auto v = absl::GetFlag(FLAGS_idle_exit_s)) config->set_idle_exit_s(*v);
  if (auto v = absl::GetFlag(FLAGS_measure)) config->set_measure(*v);
  if (auto v = absl::GetFlag(FLAGS_measure_step_timeout_s)) config->set_measure_step_timeout_s(*v);
  if (auto v = absl::GetFlag(FLAGS_measure_lock)) config->set_measure_lock(*v);
  if (auto v = absl::GetFlag(FLAGS_measure_lock_wait_s)) config->set_measure_lock_wait_s(*v);
  if (auto v = absl::GetFlag(FLAGS_measure_memory_bytes)) config->set_measure_memory_bytes(*v);
}

absl::Status CheckListenAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) {
    // sockaddr_un holds 108 bytes, the terminating zero included.
    if (address.size() - 5 > 107) {
      return absl::InvalidArgumentError(absl::StrCat("socket path of ", address, " is longer than 107 bytes"));
    }
    if (address.size() > 5) return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  if (colon != std::string::npos) {
    const std::string host = address.substr(0, colon);
    int port = -1;
    const bool number = absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 && port <= 65535;
    if (number && (host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127."))) return absl::OkStatus();
    if (number) {
      return absl::InvalidArgumentError(absl::StrCat("will not listen on ", address,
                                                     ": without mTLS or a token the daemon binds loopback addresses "
                                                     "(127.0.0.1:PORT) and Unix sockets (unix:/PATH) only"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not an address: unix:/PATH or 127.0.0.1:PORT"));
}

}  // namespace inlay::server
