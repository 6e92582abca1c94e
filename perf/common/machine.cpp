// SPDX-License-Identifier: Apache-2.0
#include "common/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>

namespace tutti::perf {
namespace {

// The kB value of `key` in a file of "Key:   123 kB" lines, in bytes.
std::optional<std::uint64_t> kilobyte_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::uint64_t kilobytes = 0;
    if (std::istringstream(line.substr(key.size() + 1)) >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  const std::string text = name.data();
  return text.substr(0, text.find('.'));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Processor")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

std::optional<std::uint64_t> available_memory_bytes() {
  auto available = kilobyte_field("/proc/meminfo", "MemAvailable");
  // A container sees its own control group at the mount point; "max" reads as no number.
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    const std::uint64_t rest = *limit > *used ? *limit - *used : 0;
    available = std::min(available.value_or(std::numeric_limits<std::uint64_t>::max()), rest);
  }
  return available;
}

std::optional<MemoryUse> memory_use() {
  constexpr const char* kPath = "/proc/self/smaps_rollup";
  const auto anonymous = kilobyte_field(kPath, "Anonymous");
  const auto shared = kilobyte_field(kPath, "Pss_Shmem");
  if (!anonymous || !shared) return std::nullopt;
  return MemoryUse{*anonymous, *shared};
}

}  // namespace tutti::perf
