// SPDX-License-Identifier: Apache-2.0
// Jobs whose ranks have only TCP between them, on the loopback: meeting, exchanges, calls, ids of
// an agreed place, and what their users do wrong.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <tuple>

#include "control/interfaces.hpp"
#include "control/root.hpp"
#include "job.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;

std::vector<std::byte> blob_of(Rank rank, std::size_t bytes) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(rank + 1));
}

void expect_exchange(ControlPlane& plane, std::size_t blob_bytes) {
  const auto all = plane.allgather(blob_of(plane.rank(), blob_bytes), patience());
  ASSERT_TRUE(all) << all.error().message;
  std::vector<std::byte> expected;
  for (std::size_t rank = 0; rank < plane.peers().size(); ++rank) {
    const auto blob = blob_of(static_cast<Rank>(rank), blob_bytes);
    expected.insert(expected.end(), blob.begin(), blob.end());
  }
  EXPECT_EQ(*all, expected) << "rank " << plane.rank() << ", " << blob_bytes << " bytes";
}

// The hosts that rank r of a job lives on: r modulo their number.
std::vector<std::unique_ptr<ControlPlane>> join_hosts(const UniqueId& id, int ranks, int hosts) {
  std::vector<std::unique_ptr<ControlPlane>> planes(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Rank rank) {
    JoinResult plane = join_from(static_cast<std::uint64_t>(rank % hosts), id, rank, ranks);
    ASSERT_TRUE(plane) << plane.error().message;
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  return planes;
}

void expect_echo(ControlPlane& plane, Rank peer) {
  const auto payload = bytes_of("to " + std::to_string(peer));
  const auto reply = plane.call(peer, RequestKind::kEcho, payload, patience());
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->payload, payload);
}

// Address of the root, ranks, hosts.
class TcpJobs : public ::testing::TestWithParam<std::tuple<const char*, int, int>> {};

TEST_P(TcpJobs, MeetExchangeAndCall) {
  const auto& [ip, ranks, hosts] = GetParam();
  const auto planes = join_hosts(must_serve(ip, "tcp_test"), ranks, hosts);
  for (const auto& plane : planes) {
    ASSERT_TRUE(plane);
    plane->serve(RequestKind::kEcho, [](const Request& request) -> Result<HandlerReply> {
      return HandlerReply{.payload = {request.payload.begin(), request.payload.end()}};
    });
  }
  run_threads(ranks, [&, all = ranks](Rank rank) {
    ControlPlane& plane = *planes[static_cast<std::size_t>(rank)];
    for (const std::size_t blob_bytes : {0UL, 1UL, 1000UL}) expect_exchange(plane, blob_bytes);
    for (Rank peer = 0; peer < all; ++peer) expect_echo(plane, peer);
    EXPECT_TRUE(plane.barrier(patience()));
  });
}

INSTANTIATE_TEST_SUITE_P(All, TcpJobs,
                         ::testing::Combine(::testing::Values("127.0.0.1", "::1"),
                                            ::testing::Values(2, 3, 5, 8), ::testing::Values(2, 8)),
                         [](const auto& chosen) {
                           return std::string(std::string_view(std::get<0>(chosen.param)) == "::1"
                                                  ? "V6"
                                                  : "V4") +
                                  "Ranks" + std::to_string(std::get<1>(chosen.param)) + "Hosts" +
                                  std::to_string(std::get<2>(chosen.param));
                         });

TEST(Tcp, LargeExchangesTravelInPieces) {
  const auto planes = join_hosts(must_serve("127.0.0.1", "pieces"), 3, 3);
  run_threads(
      3, [&](Rank rank) { expect_exchange(*planes[static_cast<std::size_t>(rank)], 3'000'000); });
}

TEST(Tcp, AnIdWithTwoWaysIsJoinedByBoth) {
  // Host 0 is the root's: its ranks come by the Unix socket, the others by TCP.
  const UniqueId id = must_create_id();
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  EXPECT_FALSE(content->agreed());
  EXPECT_TRUE(content->tcp.starts_with("tcp:127.0.0.1:")) << content->tcp;
  std::vector<std::unique_ptr<ControlPlane>> planes(5);
  run_threads(5, [&](Rank rank) {
    JoinResult plane = rank % 2 == 0 ? ControlPlane::join(id, rank, 5, {.deadline = patience()})
                                     : join_from(static_cast<std::uint64_t>(rank), id, rank, 5);
    ASSERT_TRUE(plane) << plane.error().message;
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  run_threads(5, [&](Rank rank) { expect_exchange(*planes[static_cast<std::size_t>(rank)], 64); });
}

TEST(Tcp, ADescriptorIsRefusedInOneClearLineAndTheNextCallWorks) {
  const auto planes = join_hosts(must_serve("127.0.0.1", "fd"), 2, 2);
  const UniqueFd memory(::memfd_create("tutti-test", MFD_CLOEXEC));
  bool lend = true;
  planes[1]->serve(RequestKind::kEcho, [&](const Request&) -> Result<HandlerReply> {
    return HandlerReply{.payload = bytes_of("x"), .lent_fd = lend ? memory.get() : -1};
  });
  const auto refused = planes[0]->call(1, RequestKind::kEcho, {}, patience());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().culprit, 1);
  EXPECT_NE(refused.error().message.find("TCP cannot carry a descriptor"), std::string::npos)
      << refused.error().message;
  lend = false;
  const auto reply = planes[0]->call(1, RequestKind::kEcho, {}, patience());
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_FALSE(reply->fd);
}

TEST(Tcp, ARankThatLeavesAnExchangeIsNamed) {
  auto planes = join_hosts(must_serve("127.0.0.1", "leaves"), 4, 4);
  run_threads(4, [&](Rank rank) {
    auto& plane = planes[static_cast<std::size_t>(rank)];
    if (rank == 2) return;
    const Status status = plane->barrier(Deadline::in_ms(200));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().culprit, 2) << status.error().message;
  });
}

TEST(Agreed, RanksMayComeBeforeTheRoot) {
  const auto id = unique_id_at("127.0.0.1", free_port("127.0.0.1"), agreed_secret(), "early");
  ASSERT_TRUE(id);
  std::vector<std::thread> early;
  for (Rank rank = 1; rank < 4; ++rank) {
    early.emplace_back([&, rank] {
      const JoinResult plane = ControlPlane::join(*id, rank, 4, {.deadline = patience()});
      ASSERT_TRUE(plane) << plane.error().message;
      EXPECT_TRUE((*plane)->barrier(patience()));
    });
  }
  const Status served = serve_root(*id);
  EXPECT_TRUE(served) << served.error().message;
  const JoinResult plane = ControlPlane::join(*id, 0, 4, {.deadline = patience()});
  EXPECT_TRUE(plane) << plane.error().message;
  if (plane) {
    EXPECT_TRUE((*plane)->barrier(patience()));
  }
  for (std::thread& thread : early) thread.join();
}

TEST(Agreed, WhereNobodyListensTheDeadlineEndsTheWaitAndTheAddressIsNamed) {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto id = unique_id_at("127.0.0.1", port, agreed_secret(), "nobody");
  const JoinResult plane = ControlPlane::join(*id, 1, 2, {.deadline = Deadline::in_ms(50)});
  ASSERT_FALSE(plane);
  EXPECT_EQ(plane.error().code, Code::kTimeout);
  EXPECT_NE(
      plane.error().message.find("no process listens at tcp:127.0.0.1:" + std::to_string(port)),
      std::string::npos)
      << plane.error().message;
}

TEST(Agreed, AWaitForTheRootIsCancelled) {
  for (const char* host : {"127.0.0.1", "no-such-host.invalid"}) {
    const auto id = unique_id_at(host, 1, agreed_secret(), "cancelled");
    ASSERT_TRUE(id);
    std::stop_source cancel;
    std::thread rank([&] {
      EXPECT_FALSE(ControlPlane::join(
          *id, 1, 2, {.deadline = Deadline::in_ms(3'600'000), .cancel = cancel.get_token()}));
    });
    cancel.request_stop();
    rank.join();
  }
}

TEST(Agreed, WhoHoldsAnotherSecretOrBelongsToAnotherJobIsToldSo) {
  const UniqueId id = must_serve("127.0.0.1", "the job");
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  const std::uint16_t port = parse_tcp(content->tcp)->port;
  const std::vector<std::byte> wrong(32, std::byte{'w'});
  const auto join = [&](const std::vector<std::byte>& with, std::string_view job) {
    const auto made = unique_id_at("127.0.0.1", port, with, job);
    const JoinResult plane = ControlPlane::join(*made, 1, 2, {.deadline = patience()});
    return plane ? std::string() : plane.error().message;
  };
  EXPECT_NE(join(wrong, "the job").find("secret"), std::string::npos) << join(wrong, "the job");
  EXPECT_NE(join(agreed_secret(), "a job").find("another job"), std::string::npos)
      << join(agreed_secret(), "a job");
  control::retire_root(content->key.session);
}

TEST(Agreed, ATakenPortAndAForeignAddressAreNamed) {
  const UniqueId id = must_serve("127.0.0.1", "first");
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  const Status again = serve_root(id);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kSystemError);
  EXPECT_NE(again.error().message.find("is in use"), std::string::npos) << again.error().message;
  control::retire_root(content->key.session);
  // TEST-NET-3 of RFC 5737: nobody's address.
  const Status foreign = serve_root(*unique_id_at("203.0.113.7", 4000, agreed_secret(), "first"));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::kInvalidArgument) << foreign.error().message;
  const Status unknown =
      serve_root(*unique_id_at("no-such-host.invalid", 4000, agreed_secret(), ""));
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("no-such-host.invalid"), std::string::npos);
  const Status rooted = serve_root(must_create_id());
  ASSERT_FALSE(rooted);
  EXPECT_EQ(rooted.error().code, Code::kInvalidUsage);
}

// A program of another kind has the port: one that talks first, and one that waits for more.
TEST(Agreed, AnAddressOfAnotherProgramIsNamed) {
  for (const bool talks : {true, false}) {
    const auto listener = control::listen_tcp(*parse_ip("127.0.0.1", 0));
    ASSERT_TRUE(listener);
    const std::uint16_t port = parse_tcp(listener->address())->port;
    std::thread program([&] {
      ASSERT_TRUE(control::wait_for(listener->fd(), POLLIN, -1, patience()));
      const control::Channel guest = control::accept_from(*listener);
      ASSERT_TRUE(guest);
      const std::string_view banner = "SSH-2.0-OpenSSH\r\n";
      if (talks) {
        EXPECT_EQ(::send(guest.fd(), banner.data(), banner.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(banner.size()));
      }
      EXPECT_TRUE(control::wait_for(guest.fd(), POLLRDHUP, -1, patience()));
    });
    const auto id = unique_id_at("127.0.0.1", port, agreed_secret(), "not theirs");
    const JoinResult plane =
        ControlPlane::join(*id, 1, 2, {.deadline = talks ? patience() : Deadline::in_ms(100)});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, talks ? Code::kRemoteError : Code::kTimeout);
    EXPECT_NE(plane.error().message.find(listener->address()), std::string::npos)
        << plane.error().message;
    program.join();
  }
}

TEST(Agreed, ANameIsLookedUp) {
  const UniqueId id = must_serve("localhost", "named", "127.0.0.1");
  run_threads(3, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(id, rank, 3, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
  });
}

TEST(Join, AnIdOfAnotherHostWithoutANetworkSaysWhatToDo) {
  const auto id = control::encode_id(
      {.key = control::make_session_key(), .local = "unix:@tutti-elsewhere", .locality = 1});
  ASSERT_TRUE(id);
  const JoinResult plane = ControlPlane::join(*id, 1, 2, {.deadline = patience()});
  ASSERT_FALSE(plane);
  EXPECT_EQ(plane.error().code, Code::kInvalidUsage);
  EXPECT_NE(plane.error().message.find("TUTTI_IFNAME"), std::string::npos);
}

TEST(Join, ARankOfAnotherHostThatCannotBeReachedIsNamedToAll) {
  // Rank 1 has no TCP address: it came from the root's machine, rank 0 did not.
  const UniqueId id = must_create_id();
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  run_threads(2, [&](Rank rank) {
    control::IdContent way = *content;
    if (rank == 1) way.tcp.clear();
    const auto own = control::encode_id(way);
    ASSERT_TRUE(own);
    const JoinResult plane = rank == 0 ? join_from(5, *own, 0, 2)
                                       : ControlPlane::join(*own, 1, 2, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage);
    EXPECT_EQ(plane.error().culprit, 1) << plane.error().message;
    EXPECT_NE(plane.error().message.find("TUTTI_IFNAME"), std::string::npos);
  });
}

TEST(Interfaces, AreChosenAsAsked) {
  using control::NetworkInterface;
  const auto ip = [](const char* text) { return *parse_ip(text, 0); };
  const std::vector<NetworkInterface> present = {
      {.name = "lo", .up = true, .loopback = true, .addresses = {ip("127.0.0.1"), ip("::1")}},
      {.name = "docker0", .up = true, .addresses = {ip("172.17.0.1")}},
      {.name = "eth0", .up = false, .addresses = {ip("10.0.0.1")}},
      {.name = "eth1", .up = true},
      {.name = "eth10", .up = true, .addresses = {ip("10.0.10.1"), ip("fd00::10")}},
      {.name = "ib0", .up = true, .addresses = {ip("fd00::b0")}},
  };
  const auto chosen = [&](std::string_view wanted) {
    const auto address = control::choose_interface(present, wanted);
    return !address ? "error" : *address ? (*address)->ip_text() : "none";
  };
  EXPECT_EQ(chosen(""), "10.0.10.1");
  EXPECT_EQ(chosen("eth"), "10.0.10.1");
  EXPECT_EQ(chosen("=eth10"), "10.0.10.1");
  EXPECT_EQ(chosen("=eth1"), "error");
  EXPECT_EQ(chosen("ib,eth"), "fd00::b0");
  EXPECT_EQ(chosen("nothing,ib"), "fd00::b0");
  EXPECT_EQ(chosen("=ib,eth10"), "10.0.10.1");
  EXPECT_EQ(chosen("^docker"), "10.0.10.1");
  EXPECT_EQ(chosen("^docker,eth"), "fd00::b0");
  EXPECT_EQ(chosen("^=eth1"), "172.17.0.1");
  EXPECT_EQ(chosen("lo"), "127.0.0.1");
  for (const char* bad : {"^", "=", ",", "wlan", "=eth", "^docker,eth,ib"}) {
    EXPECT_EQ(chosen(bad), "error") << bad;
  }
  const auto error = control::choose_interface(present, "wlan0");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, Code::kInvalidArgument);
  EXPECT_EQ(
      error.error().message,
      "TUTTI_IFNAME=wlan0: no interface of that kind is up and has an IP address; present: lo "
      "(127.0.0.1 ::1), docker0 (172.17.0.1), eth0 (down 10.0.0.1), eth1 (no address), eth10 "
      "(10.0.10.1 fd00::10), ib0 (fd00::b0)");
  EXPECT_EQ(*control::choose_interface({present[0]}, ""), std::nullopt);
  EXPECT_EQ((*control::choose_interface({present[1]}, ""))->ip_text(), "172.17.0.1");
}

TEST(Interfaces, OfThisHostHaveTheLoopbackAndAnUnknownOneIsAnErrorAtOnce) {
  const auto lo = control::choose_interface("=lo");
  ASSERT_TRUE(lo) << lo.error().message;
  EXPECT_TRUE((*lo)->loopback());
  const auto id = create_unique_id({.interfaces = "=no-such-interface"});
  ASSERT_FALSE(id);
  EXPECT_NE(id.error().message.find("lo (127.0.0.1"), std::string::npos) << id.error().message;
  const JoinResult plane = ControlPlane::join(
      must_create_id(), 0, 2, {.deadline = patience(), .interfaces = "=no-such-interface"});
  ASSERT_FALSE(plane);
  EXPECT_EQ(plane.error().code, Code::kInvalidArgument) << plane.error().message;
}

}  // namespace
}  // namespace tutti
