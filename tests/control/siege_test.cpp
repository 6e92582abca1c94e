// SPDX-License-Identifier: Apache-2.0
// How long eight ranks at two hosts take to join while strangers besiege their root, attack by
// attack, as a table. What is asserted is that they join; what a newcomer waits behind is counted
// in lobby_test. SIEGE_RUNS=5 repeats each line.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/tcp_socket.hpp"
#include "control/root.hpp"
#include "job.hpp"
#include "networks.hpp"
#include "tests/leaks.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

constexpr int kRanks = 8, kHosts = 2;
constexpr std::uint16_t kPort = 29500;  // in namespaces of our own: nobody else has it

struct Shared {
  std::atomic<bool> besieged{false};
  std::array<std::int64_t, kRanks> join_ns{};  // 0: has not joined
};

Shared& shared() {
  static auto* const page = new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  return *page;
}

enum class Kind { kNone, kIdle, kText, kHello, kGoneAtOnce, kOtherUser };
struct Attack {
  const char* name;
  Kind kind;
  int connections;
  std::string text{};
};

// A member's first packet but for the secret: address, job and rank are known to anybody.
std::string hello_of(const IdContent& content) {
  SessionKey guess = content.key;
  guess.secret.fill(std::byte{0});
  const Claim claim{.rank = 1, .peer = kRootRank, .ranks = kRanks};
  const std::vector<std::byte> hello = Initiator(guess, claim, make_nonce()).hello();
  std::string frame{static_cast<char>(hello.size()), '\0', '\0', '\0'};
  for (const std::byte byte : hello) frame.push_back(static_cast<char>(byte));
  return frame;
}

// Keeps so many connections open for as long as it lives, each with what it says at once.
[[noreturn]] void hold_connections(const TcpAddress& at, const Attack& attack,
                                   const IdContent& content) {
  std::vector<ProcessFd> sockets(static_cast<std::size_t>(attack.connections));
  std::vector<pollfd> polls(sockets.size());
  std::vector<bool> said(sockets.size(), false);
  for (int turn = 0;; ++turn) {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (!sockets[i]) {
        sockets[i] = tcp::start_connect(at);
        said[i] = false;
      }
      polls[i] = {.fd = sockets[i].get(),
                  .events = static_cast<short>(said[i] ? POLLIN : POLLOUT),
                  .revents = 0};
    }
    ::poll(polls.data(), polls.size(), 10);
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (polls[i].revents == 0) continue;
      if (said[i] || (polls[i].revents & (POLLERR | POLLHUP)) != 0) {
        std::array<char, 256> answer;
        const ssize_t got = ::recv(sockets[i].get(), answer.data(), answer.size(), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) sockets[i].reset();  // once more
        continue;
      }
      const std::string text = attack.kind == Kind::kHello ? hello_of(content) : attack.text;
      if (!text.empty())
        static_cast<void>(::send(sockets[i].get(), text.data(), text.size(), MSG_NOSIGNAL));
      said[i] = true;
    }
    if (turn >= 3 && std::ranges::count(said, true) * 10 >= attack.connections * 9)
      shared().besieged = true;
    if (turn == 200) shared().besieged = true;  // more are not to be had
  }
}

// Connects, says something and resets the connection, as fast as it can.
[[noreturn]] void flood(const TcpAddress& at, const Attack& attack) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  for (int done = 0;; ++done) {
    ProcessFd socket = tcp::start_connect(at);
    pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    if (socket && ::poll(&ready, 1, 100) == 1) {
      static_cast<void>(::send(socket.get(), attack.text.data(), attack.text.size(), MSG_NOSIGNAL));
      ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    if (done == 1000) shared().besieged = true;
  }
}

[[noreturn]] void flood_as_other_user(const std::string& address) {
  constexpr uid_t kNobody = 65534;
  if (::setuid(kNobody) != 0) std::_Exit(1);
  for (int done = 0;; ++done) {
    static_cast<void>(connect_to(address, -1, Deadline::in_ms(100)));
    if (done == 1000) shared().besieged = true;
  }
}

std::vector<pid_t> besiege(const Networks& networks, const IdContent& content,
                           const Attack& attack) {
  shared().besieged = attack.kind == Kind::kNone;
  std::vector<pid_t> pids;
  const bool floods = attack.kind == Kind::kGoneAtOnce || attack.kind == Kind::kOtherUser;
  const int processes = attack.kind == Kind::kNone ? 0 : floods ? attack.connections : 1;
  for (int i = 0; i < processes; ++i) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    const bool entered = networks.enter(attack.kind == Kind::kOtherUser ? 0 : 1);
    if (!entered) std::_Exit(1);
    if (attack.kind == Kind::kOtherUser) flood_as_other_user(content.local);
    const TcpAddress at = *parse_tcp(content.tcp);
    if (attack.kind == Kind::kGoneAtOnce) flood(at, attack);
    hold_connections(at, attack, content);
  }
  return pids;
}

// The longest of the ranks' joins in milliseconds; -1: not all have joined.
double join_all(const Networks& networks, const UniqueId& id) {
  shared().join_ns.fill(0);
  std::vector<pid_t> pids;
  const std::int64_t start_ns = now_ns();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    if (!networks.enter(rank % kHosts)) std::_Exit(1);
    const JoinResult plane =
        ControlPlane::join(id, rank, kRanks, {.deadline = Deadline::in_ms(30'000)});
    if (plane) shared().join_ns[static_cast<std::size_t>(rank)] = now_ns() - start_ns;
    if (!plane) std::printf("rank %d: %s\n", rank, plane.error().message.c_str());
    if (plane) static_cast<void>((*plane)->barrier(patience()));
    std::fflush(stdout);
    std::_Exit(plane && !leaks_memory() ? 0 : 1);
  }
  bool all = true;
  for (const pid_t pid : pids) {
    int status = 0;
    all = ::waitpid(pid, &status, 0) == pid && status == 0 && all;
  }
  return all ? static_cast<double>(std::ranges::max(shared().join_ns)) / 1e6 : -1;
}

UniqueId make_id(const Networks& networks, bool agreed) {
  EXPECT_TRUE(networks.enter(0));
  Result<UniqueId> id = agreed ? unique_id_at(Networks::ip(0), kPort, agreed_secret(), "siege")
                               : create_unique_id({.interfaces = "=eth0"});
  EXPECT_TRUE(id) << (id ? "" : id.error().message);
  const Status served = agreed ? serve_root(*id, {.interfaces = "=eth0"}) : Status();
  EXPECT_TRUE(served) << served.error().message;
  EXPECT_TRUE(networks.leave());
  return id.value_or(UniqueId{});
}

double join_under(const Networks& networks, const Attack& attack) {
  const UniqueId id = make_id(networks, attack.kind == Kind::kHello);
  const IdContent content = *decode_id(id);
  const std::vector<pid_t> strangers = besiege(networks, content, attack);
  const Deadline deadline = patience();
  while (!shared().besieged && !deadline.passed()) ::poll(nullptr, 0, 10);
  const double joined_ms = join_all(networks, id);
  for (const pid_t pid : strangers) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  retire_root(content.key.session);
  EXPECT_TRUE(wait_for_roots(patience()));
  return joined_ms;
}

TEST(Siege, KeepsNoRankFromJoining) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 8192) GTEST_SKIP() << "ulimit -Hn is below 8192 here: raise it";
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const Networks networks(kHosts);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const std::string half_hello("\x64\0\0\0TUTH\3\0\1\0", 12), garbage(200, '\xff');
  const std::vector<Attack> attacks = {
      {"none", Kind::kNone, 0},
      {"1000 connections, idle", Kind::kIdle, 1000},
      {"5000 connections, idle", Kind::kIdle, 5000},
      {"1000 say one byte", Kind::kText, 1000, "T"},
      {"100 say garbage", Kind::kText, 100, garbage},
      {"1000 say garbage", Kind::kText, 1000, garbage},
      {"1000 say half a hello", Kind::kText, 1000, half_hello},
      {"4000 say half a hello", Kind::kText, 4000, half_hello},
      {"64 say a hello, TUTTI_ROOT", Kind::kHello, 64},
      {"600 say a hello, TUTTI_ROOT", Kind::kHello, 600},
      {"flood of 2: garbage and gone", Kind::kGoneAtOnce, 2, garbage},
      {"flood of 4: another user, Unix", Kind::kOtherUser, 4},
  };
  const char* const given = std::getenv("SIEGE_RUNS");
  const int runs = given != nullptr ? std::max(std::atoi(given), 1) : 1;
  std::printf("%-32s %10s %10s %10s   (%d ranks, %d hosts, %d runs)\n", "strangers", "median ms",
              "least", "most", kRanks, kHosts, runs);
  std::fflush(stdout);  // ranks are forked
  for (const Attack& attack : attacks) {
    std::vector<double> times;
    for (int run = 0; run < runs; ++run) times.push_back(join_under(networks, attack));
    std::ranges::sort(times);
    std::printf("%-32s %10.0f %10.0f %10.0f\n", attack.name, times[times.size() / 2], times.front(),
                times.back());
    std::fflush(stdout);
    EXPECT_GT(times.front(), 0) << attack.name << ": a rank did not join";
  }
}

}  // namespace
}  // namespace tutti::control
