// SPDX-License-Identifier: Apache-2.0
// Strangers at every listening port of a job between hosts, the root's too, while it joins and
// while it reduces: random bytes, half handshakes of both protocols, silence, crowds. The job goes
// on and is right, the log stays short, nothing is kept. NETWORK_STRANGERS_SEED repeats a run.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/tcp_socket.hpp"
#include "network_job.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using namespace std::string_view_literals;
using testing::ForkedRank;
using testing::Networks;

constexpr int kRude = 40, kOneByte = 60, kSilent = 300;  // connections at each TCP port
constexpr std::ptrdiff_t kWarningsPerDoor = 8;  // the 1st, 2nd, 4th, ... of kRude, and some
// The library's own connections come and go with what is asked.
constexpr std::ptrdiff_t kOwnDescriptors = 16;

struct Doors {
  std::vector<TcpAddress> tcp;
  std::vector<std::string> local;  // abstract names, without the @
};

// All that listens at a host of this test is the job's.
Doors doors_of(const Networks& networks, int host) {
  Doors doors;
  EXPECT_TRUE(networks.enter(host));
  std::ifstream tcp("/proc/net/tcp"), unix_sockets("/proc/net/unix");
  for (std::string line; std::getline(tcp, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state != "0A") continue;  // LISTEN
    const auto port = std::stoul(local.substr(local.find(':') + 1), nullptr, 16);
    doors.tcp.push_back(*parse_ip(Networks::ip(host), static_cast<std::uint16_t>(port)));
  }
  for (std::string line; std::getline(unix_sockets, line);) {
    const std::size_t name = line.find("@tutti-");
    const bool listens = line.find(" 00010000 ") != std::string::npos;
    if (listens && name != std::string::npos) doors.local.push_back(line.substr(name + 1));
  }
  EXPECT_TRUE(networks.leave());
  return doors;
}

class Strangers {
 public:
  explicit Strangers(std::uint64_t seed) : random_(seed) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  // From the next host, as nobody of the job would; Unix sockets from their own.
  void besiege(const Networks& networks, int host, int hosts) {
    const Doors doors = doors_of(networks, host);
    doors_ += static_cast<std::ptrdiff_t>(doors.tcp.size() + doors.local.size());
    EXPECT_TRUE(networks.enter((host + 1) % hosts));
    for (const TcpAddress& at : doors.tcp) {
      for (int i = 0; i < kSilent; ++i) knock(at, {});
      for (int i = 0; i < kOneByte; ++i) knock(at, "T");
      for (int i = 0; i < kRude; ++i) knock(at, something());
    }
    EXPECT_TRUE(networks.enter(host));
    for (const std::string& name : doors.local)
      for (int i = 0; i < kRude; ++i) knock_at_unix(name, something());
    EXPECT_TRUE(networks.leave());
  }
  void go() { open_.clear(); }
  [[nodiscard]] std::ptrdiff_t doors() const { return doors_; }
  [[nodiscard]] std::size_t connections() const { return open_.size(); }

 private:
  std::string something() {
    static constexpr std::string_view kBeginnings[] = {
        "TUTITCP1\2\0\0\0\1\0\0\0"sv,  // half a hello of the data's protocol
        "TUTITCP1\7\0\0\0"sv,          // of another version
        "\x44\0\0\0TUTH\2\0\1\0"sv,    // half a handshake of the control plane's, in its frame
        "TUTH\2\0\1\0"sv,              // and in a packet
        "\xff\xff\xff\xff"sv,          // a length
        "GET / HTTP/1.1\r\n\r\n"sv,
    };
    const std::size_t which = random_() % (2 * std::size(kBeginnings));
    if (which < std::size(kBeginnings)) return std::string(kBeginnings[which]);
    std::string bytes(1 + random_() % 600, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  void knock(const TcpAddress& at, std::string_view text) {
    ProcessFd socket = tcp::start_connect(at);
    if (!socket) return;
    pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    ::poll(&ready, 1, 5000);
    say(std::move(socket), text);
  }
  void knock_at_unix(const std::string& name, std::string_view text) {
    ProcessFd socket = ProcessFd::from(
        [] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), std::min(name.size(), sizeof to.sun_path - 1));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), bytes) != 0) return;
    say(std::move(socket), text);
  }
  void say(ProcessFd socket, std::string_view text) {
    // Who was hung up on already says nothing.
    if (!text.empty())
      static_cast<void>(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL));
    open_.push_back(std::move(socket));
  }

  std::mt19937_64 random_;
  std::vector<ProcessFd> open_;
  std::ptrdiff_t doors_ = 0;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Do all ranks say so? The reduction that they all do next.
bool all_say(tuttiComm_t comm, const ForkedRank& self, bool mine) {
  std::int32_t said = mine ? 1 : 0;
  EXPECT_EQ(tuttiAllReduce(&said, &said, 1, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess)
      << tuttiGetLastError(comm);
  return said == self.ranks;
}

TEST(NetworkStrangers, AtEveryDoorTheJobGoesOnAndKeepsNothing) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 8192) GTEST_SKIP() << "ulimit -Hn is below 8192 here: raise it";
  NetworkJob job({.op_timeout_ms = 40'000, .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  Strangers strangers(draw_seed("NETWORK_STRANGERS_SEED"));
  const SharedWord gone;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        const std::ptrdiff_t before = open_descriptors() + kOwnDescriptors;
        const Deadline deadline = Deadline::in_ms(60'000);
        // Once is enough: some of those who are gone may still wait to be let in and sent away.
        bool as_before = false;
        for (bool over = false; !over;) {
          ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
          as_before = as_before || (*gone == 1 && open_descriptors() <= before);
          over = all_say(comm, self, as_before || deadline.passed());
        }
        EXPECT_TRUE(as_before) << open_descriptors() << " descriptors, at first " << before;
      },
      [&](NetworkJob& at) {
        for (int host = 0; host < 2; ++host) strangers.besiege(at.networks(), host, 2);
        EXPECT_GT(strangers.connections(), 3000u);
        strangers.go();
        const std::string log = at.log();
        std::ptrdiff_t warnings = 0;
        for (std::size_t found = log.find(" warn "); found != std::string::npos;
             found = log.find(" warn ", found + 1))
          ++warnings;
        EXPECT_GT(warnings, 0);
        EXPECT_LE(warnings, kWarningsPerDoor * strangers.doors());
        *gone = 1;
      },
      {},
      [&](NetworkJob& at) {  // the root's doors; these stay while the ranks join
        strangers.besiege(at.networks(), 0, 2);
        EXPECT_GE(strangers.doors(), 1);
      });
}

}  // namespace
}  // namespace tutti::test
