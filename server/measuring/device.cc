#include "server/measuring/device.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/file_system.h"

namespace inlay::server {
namespace {

std::string Line(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

// Model and number of the processors of /proc/cpuinfo.
std::vector<std::string> Processors(const std::string& root) {
  absl::StatusOr<std::string> text = ReadFile(JoinPath(root, "proc/cpuinfo"));
  if (!text.ok()) return {};
  std::map<std::string, std::string> first;
  int cpus = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    absl::StripAsciiWhitespace(&field.first);
    absl::StripAsciiWhitespace(&field.second);
    cpus += field.first == "processor";
    first.insert(std::move(field));
  }
  return {absl::StrCat(first["model name"], " family ", first["cpu family"], " model ", first["model"], " stepping ",
                       first["stepping"]),
          absl::StrCat(cpus, " CPUs")};
}

std::string Caches(const std::string& cpu) {
  std::vector<std::string> caches;
  for (int i = 0;; ++i) {
    const std::string index = absl::StrCat(cpu, "/cache/index", i, "/");
    const std::string level = Line(index + "level"), size = Line(index + "size"), type = Line(index + "type");
    if (level.empty()) break;
    caches.push_back(absl::StrCat("L", level, type == "Data" ? "d" : type == "Instruction" ? "i" : "", " ", size));
  }
  return absl::StrJoin(caches, ", ");
}

std::string Frequency(const std::string& cpu) {
  std::vector<std::string> parts;
  if (std::string khz = Line(cpu + "/cpufreq/cpuinfo_max_freq"); !khz.empty()) parts.push_back(khz + " kHz");
  if (std::string governor = Line(cpu + "/cpufreq/scaling_governor"); !governor.empty()) {
    parts.push_back("governor " + governor);
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string DescribeDevice(const std::string& root) {
  std::vector<std::string> parts = Processors(root);
  const std::string cpu = JoinPath(root, "sys/devices/system/cpu/cpu0");
  for (std::string part : {Caches(cpu), Frequency(cpu)}) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace inlay::server
