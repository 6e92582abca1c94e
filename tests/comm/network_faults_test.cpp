// SPDX-License-Identifier: Apache-2.0
// What a network and its hosts can do to a job while it reduces: packets that vanish in one
// direction, resets, hosts whose ranks are killed or stopped, strangers at every door. Ranks are
// processes in network namespaces, faults are nftables' and signals. Each ends in bounded time and
// names the culprit, or the job goes on and is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <tutti/tutti.h>

#include <cstdlib>
#include <string>

#include "network_job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::ForkedRank;
using ::testing::HasSubstr;
using ::testing::Not;

std::string from(int host) { return "ip saddr " + testing::Networks::ip(host); }

TEST(NetworkFaults, PacketsThatVanishInOneDirectionEndTheCallAtItsTimeout) {
  NetworkJob job({});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        const std::string told = sum_until_told(comm, self.rank, self.ranks);
        const int far = 2 * (1 - job.host_of(self.rank));
        // Whose timeout is over later may see first that the other side has hung up.
        EXPECT_THAT(told, AnyOf(HasSubstr("did not come within the operation timeout"),
                                HasSubstr("lost its connection to rank ")));
        EXPECT_THAT(told, AnyOf(HasSubstr("rank " + std::to_string(far) + " (pid "),
                                HasSubstr("rank " + std::to_string(far + 1) + " (pid ")));
        EXPECT_TRUE(ended.wait_for(job.ranks()));  // or who ends first is the culprit of the rest
        abort(comm);
      },
      [](NetworkJob& at) { EXPECT_TRUE(at.networks().filter(1, from(0) + " drop")); });
}

// The ports at which the ranks wait for each other's data, from their logs.
std::string data_ports(const NetworkJob& job) {
  std::string ports;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const std::string begin = "rank " + std::to_string(rank) + " listens at tcp:";
    EXPECT_TRUE(job.wait_for_log(begin));
    const std::string log = job.log();
    const std::size_t colon = log.find(':', log.find(begin) + begin.size());
    ports += (rank > 0 ? ", " : "") + std::to_string(std::stoi(log.substr(colon + 1)));
  }
  return ports;
}

// Data gets lost between the hosts, and the services still tell who waits for whom: in a circle.
// Whoever is named is on the other side of whoever waited; a rank of the own host waits like
// itself.
class SilentLink : public ::testing::TestWithParam<const char*> {};

TEST_P(SilentLink, IsNotBlamedOnARankOfTheOwnHost) {
  NetworkJob job({.op_timeout_ms = 4000});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting connected, cut, ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_EQ(tuttiCommSetAlgorithm(comm, GetParam()), tuttiSuccess);
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
        ASSERT_TRUE(connected.wait_for(job.ranks() + 1));
        ASSERT_TRUE(cut.wait_for(job.ranks() + 1));
        const std::string told = sum_until_told(comm, self.rank, self.ranks);
        // Whoever is first tells all, also the other host's.
        const auto rank_at = [&](std::size_t place) { return std::atoi(&told.at(place + 5)); };
        const int culprit = rank_at(told.find("rank ")), other = rank_at(told.rfind("rank "));
        EXPECT_NE(job.host_of(culprit), job.host_of(other)) << told;
        EXPECT_TRUE(ended.wait_for(job.ranks()));
        abort(comm);
      },
      [&](NetworkJob& at) {
        const std::string ports = "{ " + data_ports(at) + " }";
        ASSERT_TRUE(connected.wait_for(at.ranks() + 1));
        EXPECT_TRUE(at.networks().filter(1, from(0) + " tcp dport " + ports + " drop"));
        EXPECT_TRUE(at.networks().filter(1, from(0) + " tcp sport " + ports + " drop"));
        ASSERT_TRUE(cut.wait_for(at.ranks() + 1));
      });
}

INSTANTIATE_TEST_SUITE_P(By, SilentLink,
                         ::testing::Values("ring", "tree", "hierarchical", "two_shot"),
                         [](const auto& test) { return std::string(test.param); });

// What the kernel asks of a silent peer after ten seconds, this process's connections ask at once.
void ask_silent_peers_soon() {
  for (int fd = 0; fd < 256; ++fd)
    for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT}) {
      const int one = 1;
      static_cast<void>(::setsockopt(fd, IPPROTO_TCP, option, &one, sizeof one));
    }
}

// Turns the kernel's questions on idle connections off.
void ask_no_idle_peers() {
  for (int fd = 0; fd < 256; ++fd) {
    const int no = 0;
    static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &no, sizeof no));
  }
}

// Sums until the call fails, by a lost connection and nobody's death.
void expect_lost_connection(tuttiComm_t& comm, const ForkedRank& self, const Meeting& ended) {
  EXPECT_THAT(sum_until_told(comm, self.rank, self.ranks),
              AllOf(HasSubstr("lost its connection to rank "), Not(HasSubstr(" died;"))));
  EXPECT_TRUE(ended.wait_for(self.ranks));
  abort(comm);
}

// Who sees it first tells the others of its host, whomever they wait for; nobody has died.
TEST(NetworkFaults, AHostThatIsCutOffIsNamedOnceItHasBeenSilent) {
  NetworkJob job({.op_timeout_ms = 600'000, .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting asking, ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
        ask_silent_peers_soon();
        ASSERT_TRUE(asking.wait_for(job.ranks() + 1));
        expect_lost_connection(comm, self, ended);
      },
      [&](NetworkJob& at) {
        ASSERT_TRUE(asking.wait_for(job.ranks() + 1));
        at.networks().cut(1);
      });
}

// Of which every connection has sent something: the kernel would repeat that for a quarter of an
// hour before it asked whether anybody is there.
TEST(NetworkFaults, AHostThatAcknowledgesNothingIsNamedToo) {
  NetworkJob job({.op_timeout_ms = 600'000, .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting asking, cut, ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
        ask_silent_peers_soon();
        ask_no_idle_peers();
        ASSERT_TRUE(asking.wait_for(job.ranks() + 1));
        ASSERT_TRUE(cut.wait_for(job.ranks() + 1));
        expect_lost_connection(comm, self, ended);
      },
      [&](NetworkJob& at) {
        ASSERT_TRUE(asking.wait_for(job.ranks() + 1));
        at.networks().cut(1);
        ASSERT_TRUE(cut.wait_for(job.ranks() + 1));
      });
}

TEST(NetworkFaults, AConnectionThatIsResetIsNamedWithBothEnds) {
  NetworkJob job({.op_timeout_ms = 20'000});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting ended;
  const SharedWord knew;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        const auto is_cause = HasSubstr(" is lost: Connection reset by peer");
        const std::string told = sum_until_told(comm, self.rank, self.ranks);
        EXPECT_THAT(told,
                    AllOf(HasSubstr("lost its connection to rank "), HasSubstr("all_reduce #"),
                          AnyOf(is_cause, HasSubstr("; see its log"))));
        if (::testing::Matches(is_cause)(told)) ++*knew;
        EXPECT_EQ(sum_until_told(comm, self.rank, self.ranks), told);  // and it says so again
        EXPECT_TRUE(ended.wait_for(job.ranks()));
        EXPECT_GE(*knew, 1);
        abort(comm);
      },
      [](NetworkJob& at) {
        const std::string ports = "{ " + data_ports(at) + " }";
        EXPECT_TRUE(
            at.networks().filter(1, from(0) + " tcp dport " + ports + " reject with tcp reset"));
        EXPECT_TRUE(
            at.networks().filter(1, from(0) + " tcp sport " + ports + " reject with tcp reset"));
        EXPECT_TRUE(at.wait_for_log("is lost: Connection reset by peer"));
      });
}

// A firewall that lets the service through, and refuses the data: both ranks are well.
TEST(NetworkFaults, AFirstConnectionThatIsRefusedSaysWhyAndBlamesNobody) {
  NetworkJob job({.ranks_per_host = 1, .op_timeout_ms = 20'000, .sums_first = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting cut, ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_TRUE(cut.wait_for(3));
        const std::string told = sum_until_told(comm, self.rank, self.ranks);
        EXPECT_THAT(told, AllOf(HasSubstr("rank 0 (pid "),
                                HasSubstr(" could not connect to rank 1 "
                                          "(pid "),
                                HasSubstr(" during all_reduce #1 "),
                                HasSubstr(self.rank == 0 ? ": Connection refused"
                                                         : "; its own error message says why")));
        EXPECT_TRUE(ended.wait_for(2));
        abort(comm);
      },
      [&](NetworkJob& at) {
        const std::string ports = "{ " + data_ports(at) + " }";
        EXPECT_TRUE(
            at.networks().filter(1, from(0) + " tcp dport " + ports + " reject with tcp reset"));
        ASSERT_TRUE(cut.wait_for(3));
        EXPECT_TRUE(at.wait_for_log(":0 warn all_reduce #1 "));
      });
}

class RemoteRank : public ::testing::TestWithParam<int> {};

TEST_P(RemoteRank, ThatIsKilledIsNamed) {
  NetworkJob job({.ranks_per_host = GetParam(), .op_timeout_ms = 20'000, .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const int victim = job.ranks() - 1;
  const Meeting ended;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        if (self.rank == victim) ::raise(SIGKILL);
        EXPECT_THAT(
            sum_until_told(comm, self.rank, self.ranks),
            AllOf(HasSubstr("rank " + std::to_string(victim) + " (pid "), HasSubstr("died")));
        EXPECT_TRUE(ended.wait_for(job.ranks() - 1));
        abort(comm);
      },
      [](NetworkJob&) {}, {victim});
}

TEST_P(RemoteRank, ThatIsStoppedIsNamedAtTheTimeout) {
  NetworkJob job({.ranks_per_host = GetParam(), .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const int victim = job.ranks() - 1;
  const SharedWord victims_pid;
  const Meeting told;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        if (self.rank == victim) {
          *victims_pid = ::getpid();
          ::raise(SIGSTOP);
          sum_until_told(comm, self.rank, self.ranks);
          return abort(comm);
        }
        EXPECT_THAT(sum_until_told(comm, self.rank, self.ranks),
                    AllOf(HasSubstr("rank " + std::to_string(victim) + " (pid "),
                          HasSubstr("operation timeout")));
        EXPECT_TRUE(told.wait_for(job.ranks()));
        abort(comm);
      },
      [&](NetworkJob& at) {
        EXPECT_TRUE(told.wait_for(at.ranks()));  // the others and this process
        EXPECT_EQ(::kill(*victims_pid, SIGCONT), 0);
      });
}

INSTANTIATE_TEST_SUITE_P(PerHost, RemoteRank, ::testing::Values(1, 2));

// Rank 0 has what it needs and leaves while its own part is on the way.
TEST(NetworkFaults, WhoLeavesWaitsUntilItsLastCallHasReachedTheOtherHost) {
  NetworkJob job({.ranks_per_host = 1, .op_timeout_ms = 60'000});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting cut;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_TRUE(cut.wait_for(3));
        EXPECT_EQ(check_sum(comm, self.rank, self.ranks, 1, false), "");
      },
      [&](NetworkJob& at) {
        EXPECT_TRUE(at.networks().filter(1, from(0) + " drop"));
        ASSERT_TRUE(cut.wait_for(3));
        EXPECT_TRUE(at.wait_for_log("waits until rank 1 (pid "));
        EXPECT_TRUE(at.networks().unfilter(1));
      });
}

TEST(NetworkFaults, WhoLeavesAtTheTimeoutSaysWhatIsLost) {
  NetworkJob job({.ranks_per_host = 1, .op_timeout_ms = 2000});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  const Meeting cut;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_TRUE(cut.wait_for(3));
        const std::string told = check_sum(comm, self.rank, self.ranks, 1, false);
        if (self.rank == 0) {
          EXPECT_EQ(told, "");
        } else {
          EXPECT_THAT(told, HasSubstr("rank 0 (pid "));
          abort(comm);
        }
      },
      [&](NetworkJob& at) {
        EXPECT_TRUE(at.networks().filter(1, from(0) + " drop"));
        ASSERT_TRUE(cut.wait_for(3));
        EXPECT_TRUE(at.wait_for_log("destroyed its communicator before rank 1 (pid "));
      });
}

}  // namespace
}  // namespace tutti::test
