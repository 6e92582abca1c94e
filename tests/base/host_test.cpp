// SPDX-License-Identifier: Apache-2.0
// Identities are stable where they must be and differ where they must; probes give the answer that
// the system call itself gives.
#include "base/host.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <thread>
#include <vector>

namespace tutti {
namespace {

// What a forked child computes.
template <typename Function>
std::uint64_t in_child(Function function) {
  std::array<int, 2> pipe_fds{};
  EXPECT_EQ(::pipe(pipe_fds.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t value = function();
    const ssize_t written = ::write(pipe_fds[1], &value, sizeof(value));
    ::_exit(written == sizeof(value) ? 0 : 1);
  }
  std::uint64_t value = 0;
  EXPECT_EQ(::read(pipe_fds[0], &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return value;
}

TEST(Host, HasAName) { EXPECT_FALSE(host_name().empty()); }

TEST(Host, IdentityIsTheSameInEveryProcessOfTheHost) {
  const std::uint64_t mine = host_identity("");
  EXPECT_NE(mine, 0u);
  EXPECT_EQ(mine, host_identity(""));
  EXPECT_EQ(mine, in_child([] { return host_identity(""); }));
}

TEST(Host, IdentityCanBeOverridden) {
  EXPECT_EQ(host_identity("a"), host_identity("a"));
  EXPECT_NE(host_identity("a"), host_identity("b"));
  EXPECT_NE(host_identity("a"), host_identity(""));
}

TEST(Host, ProcessTokenIsOnePerProcess) {
  const std::uint64_t mine = process_token();
  EXPECT_NE(mine, 0u);
  std::vector<std::uint64_t> tokens(4);
  std::vector<std::thread> threads;
  for (std::uint64_t& token : tokens) threads.emplace_back([&token] { token = process_token(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t token : tokens) EXPECT_EQ(token, mine);
  std::set<std::uint64_t> all{mine};
  for (int i = 0; i < 8; ++i) all.insert(in_child([] { return process_token(); }));
  EXPECT_EQ(all.size(), 9u);
  // A grandchild differs from its parent, which had drawn a token already.
  EXPECT_EQ(in_child([] {
              const std::uint64_t child = process_token();
              return std::uint64_t{in_child([] { return process_token(); }) != child};
            }),
            1u);
  EXPECT_EQ(process_token(), mine);
}

// Known values: the hash travels between hosts and must never change.
TEST(Host, HashIsStable) {
  EXPECT_EQ(hash_bytes(""), hash_bytes({}));
  EXPECT_NE(hash_bytes("a"), hash_bytes("b"));
  EXPECT_NE(hash_bytes("a"), hash_bytes("a", 1));
  EXPECT_EQ(hash_bytes("tutti"), 0x205d660851bbc0b1u);
}

TEST(Host, ProbesAnswerTheSameEachTime) {
  EXPECT_EQ(has_pidfd(), has_pidfd());
  EXPECT_EQ(has_memfd(), has_memfd());
  const bool attach = has_cross_memory_attach();
  EXPECT_EQ(attach, has_cross_memory_attach());
  // No child is left behind, visible or not.
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL | WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Host, MemfdProbeAgreesWithTheSystemCall) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(has_memfd(), fd >= 0);
  if (fd >= 0) ::close(fd);
}

TEST(Host, UsableCpusFollowTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Host, CachesGrowWithTheirLevel) {
  if (l2_cache_bytes() == 0 || l3_cache_bytes() == 0) GTEST_SKIP() << "cache sizes are hidden here";
  EXPECT_GE(l2_cache_bytes(), 64u << 10);
  EXPECT_GE(l3_cache_bytes(), l2_cache_bytes());
}

}  // namespace
}  // namespace tutti
