// SPDX-License-Identifier: Apache-2.0
#include "base/host.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/shared_file.hpp"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same number on every architecture
#endif

namespace tutti {
namespace {

constexpr const char* kBootIdPath = "/proc/sys/kernel/random/boot_id";

// The first bytes of a small file of /proc or /sys without the trailing newline; empty if there is
// none.
std::string read_small_file(const std::string& path) {
  std::array<char, 4096> buffer;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  std::string text(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

// Forked children start from 0 and so draw a number of their own. Relaxed: the number is all there
// is to see.
std::atomic<std::uint64_t> process_random{0};

std::uint64_t draw_random() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof(value), GRND_NONBLOCK) == sizeof(value)) return value;
  const std::int64_t seed[] = {now_ns(), ::getpid()};  // early boot: no entropy yet
  return hash_bytes({reinterpret_cast<const char*>(seed), sizeof(seed)});
}

int affinity_cpus() {
  // Machines beyond 1024 CPUs refuse the short mask.
  for (std::size_t cpus = CPU_SETSIZE; cpus <= (1u << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t set_bytes = CPU_ALLOC_SIZE(cpus);
    const int failed = ::sched_getaffinity(0, set_bytes, set);
    const int count = failed == 0 ? CPU_COUNT_S(set_bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
    if (errno != EINVAL) break;
  }
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

// CPUs of a quota of `quota_us` each `period_us`, rounded up; no limit if either makes no sense.
int quota_cpus(std::optional<std::int64_t> quota_us, std::optional<std::int64_t> period_us) {
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return kNoLimit;
  const std::int64_t cpus = *quota_us / *period_us + (*quota_us % *period_us != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(cpus, kNoLimit));
}

// The tightest CPU quota of this process's control groups (v2: its group and all above; v1: root).
int control_group_cpus() {
  int cpus = quota_cpus(parse_integer(read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")),
                        parse_integer(read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  const std::string groups = fmt::format("\n{}", read_small_file("/proc/self/cgroup"));
  const std::size_t v2 = groups.find("\n0::/");
  if (v2 == std::string::npos) return cpus;
  std::string path = groups.substr(v2 + 4, groups.find('\n', v2 + 1) - (v2 + 4));
  if (path == "/") path.clear();
  for (;;) {
    const std::string limit = read_small_file("/sys/fs/cgroup" + path + "/cpu.max");
    const std::size_t space = limit.find(' ');  // "max 100000" or "150000 100000"
    if (space != std::string::npos)
      cpus = std::min(cpus, quota_cpus(parse_integer(limit),
                                       parse_integer(std::string_view(limit).substr(space + 1))));
    if (path.empty()) return cpus;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// sysfs first: glibc's sysconf reports the sum over the package's level 3 caches on AMD (384 MiB
// where one core complex, and so one thread, has 32 MiB).
std::size_t cache_bytes(int level, int sysconf_name) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    if (parse_integer(read_small_file(folder + "level")) != level) continue;
    const std::string text = read_small_file(folder + "size");  // "1024K"
    const std::int64_t count = parse_integer(text).value_or(0);
    if (count <= 0) continue;
    const std::int64_t unit = text.back() == 'K' ? 1024 : text.back() == 'M' ? 1024 * 1024 : 1;
    return static_cast<std::size_t>(count * unit);
  }
  const long known = ::sysconf(sysconf_name);
  return known > 0 ? static_cast<std::size_t>(known) : 0;
}

bool try_pidfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!fd) return false;
  pollfd poll_fd{fd.get(), POLLIN, 0};
  int ready = ::poll(&poll_fd, 1, 0);
  while (ready < 0 && errno == EINTR) ready = ::poll(&poll_fd, 1, 0);
  return ready == 0;  // this process lives: nothing to read
}

bool try_memfd() {
  constexpr std::size_t kProbeBytes = 4096;
  const UniqueFd fd(::memfd_create("tutti-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !check_file_limit("probe", kProbeBytes) || ::ftruncate(fd.get(), kProbeBytes) != 0)
    return false;
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return false;
  void* map = ::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return false;
  ::munmap(map, kProbeBytes);
  return true;
}

// A child reads its parent, not the parent its child: a security module that lets only ancestors
// read (Yama's scope 1) refuses this as it would refuse two ranks. The child has no exit signal, so
// no handler or wait of the program notices it, and does nothing but system calls.
bool try_cross_memory_attach() {
  const volatile std::uint64_t expected = process_token();
  const pid_t parent = ::getpid();
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, 0, 0, 0, 0, 0));
  if (child < 0) return false;
  if (child == 0) {
    std::uint64_t read = 0;
    auto* remote_word = const_cast<std::uint64_t*>(&expected);
    const iovec local{&read, sizeof(read)}, remote{remote_word, sizeof(read)};
    const long count = ::syscall(SYS_process_vm_readv, parent, &local, 1, &remote, 1, 0);
    const int refused = count == sizeof(read) && read == expected ? 0 : 1;
    for (;;) ::syscall(SYS_exit_group, refused);
  }
  int status = -1;
  pid_t waited = 0;
  do waited = ::waitpid(child, &status, __WALL);
  while (waited < 0 && errno == EINTR);
  return waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char byte : bytes) {
    hash ^= static_cast<std::uint8_t>(byte);
    hash *= 0x100000001b3u;
  }
  // splitmix64's finalizer: FNV alone leaves the high bits of short texts alike.
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

std::uint64_t boot_identity() {
  const std::string boot_id = read_small_file(kBootIdPath);
  return boot_id.empty() ? 0 : std::max<std::uint64_t>(hash_bytes(boot_id), 1);
}

std::uint64_t host_identity(std::string_view override_text) {
  std::string identity = "override " + std::string(override_text);
  if (override_text.empty()) {
    struct stat network_namespace {};
    const std::string boot_id = read_small_file(kBootIdPath);
    if (boot_id.empty() || ::stat("/proc/self/ns/net", &network_namespace) != 0)
      identity = "name " + host_name();
    else
      identity = "boot " + boot_id + " net " + std::to_string(network_namespace.st_ino);
  }
  return std::max<std::uint64_t>(hash_bytes(identity), 1);
}

std::uint64_t process_token() {
  static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { process_random.store(0, std::memory_order_relaxed); });
  (void)registered;
  std::uint64_t random = process_random.load(std::memory_order_relaxed);
  if (random == 0) {
    const std::uint64_t drawn = std::max<std::uint64_t>(draw_random(), 1);
    if (process_random.compare_exchange_strong(random, drawn, std::memory_order_relaxed))
      random = drawn;
  }
  // The pid also tells apart children made without fork(), whose handlers did not run.
  const std::uint64_t mixed[] = {random, static_cast<std::uint64_t>(::getpid())};
  return std::max<std::uint64_t>(hash_bytes({reinterpret_cast<const char*>(mixed), sizeof(mixed)}),
                                 1);
}

std::uint64_t process_token_address() {
  static std::atomic<std::uint64_t> word;
  word.store(process_token(), std::memory_order_relaxed);
  return reinterpret_cast<std::uintptr_t>(&word);
}

bool has_pidfd() {
  static const bool has = try_pidfd();
  return has;
}

bool has_memfd() {
  static const bool has = try_memfd();
  return has;
}

bool has_cross_memory_attach() {
  static const bool has = try_cross_memory_attach();
  return has;
}

int machine_cpus() {
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(online, control_group_cpus()));
}

int usable_cpus() { return std::max(1, std::min(affinity_cpus(), control_group_cpus())); }

std::size_t l2_cache_bytes() { return cache_bytes(2, _SC_LEVEL2_CACHE_SIZE); }
std::size_t l3_cache_bytes() { return cache_bytes(3, _SC_LEVEL3_CACHE_SIZE); }

}  // namespace tutti
