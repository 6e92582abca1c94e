// SPDX-License-Identifier: Apache-2.0
// TCP against the conformance suite, over IPv4 and IPv6, and what is its alone.
#include "transports/tcp/tcp_transport.hpp"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <string>

#include "base/tcp_socket.hpp"
#include "transports/conformance.hpp"
#include "transports/tcp/invitations.hpp"

namespace tutti::test {
namespace {

Result<std::unique_ptr<Transport>> make_v4(ControlChannel& control, std::uint64_t arena_bytes) {
  return make_tcp_transport(control, {.ip = "127.0.0.1", .arena_bytes = arena_bytes});
}
Result<std::unique_ptr<Transport>> make_v6(ControlChannel& control, std::uint64_t arena_bytes) {
  return make_tcp_transport(control, {.ip = "::1", .arena_bytes = arena_bytes});
}

INSTANTIATE_TEST_SUITE_P(TcpV4, Conformance, conformance_values(Factory{"tcp_v4", &make_v4}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(TcpV4, ConformanceOfProcesses, process_values(Factory{"tcp_v4", &make_v4}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(TcpV6, Conformance, conformance_values(Factory{"tcp_v6", &make_v6}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(TcpV6, ConformanceOfProcesses, process_values(Factory{"tcp_v6", &make_v6}),
                         conformance_name);

constexpr Factory kTcp{"tcp", &make_v4};

// Rank 0 connects to rank 1, which is `at` instead of its transport.
void invite_to(const Member& me, const TcpAddress& at) {
  me.control->serve(RequestKind::kTcp, [at](const Request&) -> Result<HandlerReply> {
    return HandlerReply{.payload = tcp::encode({.at = at, .hello = {}, .reply = {}}),
                        .lent_fd = -1,
                        .keep = nullptr};
  });
}

// Rank 1 by hand: rank 0's connection, whose hello is answered like this.
ProcessFd answer_rank_0(const Member& me, const tcp::HelloReply& reply) {
  const ProcessFd listener = tcp::listen_at(*parse_ip("127.0.0.1", 0));
  invite_to(me, *tcp::own_address(listener.get()));
  ProcessFd socket;
  EXPECT_TRUE(me.poll("rank 0", [&] {
    socket = tcp::accept_from(listener.get());
    return static_cast<bool>(socket);
  }));
  EXPECT_EQ(::send(socket.get(), &reply, sizeof reply, MSG_NOSIGNAL), ssize_t{sizeof reply});
  return socket;
}

// Sockets on their way to a port of this host, as the kernel lists them.
int connecting_to(std::uint16_t port) {
  std::ifstream list("/proc/net/tcp");
  const std::string wanted = fmt::format(":{:04X} 02", port);  // 02: SYN_SENT
  int found = 0;
  for (std::string line; std::getline(list, line);) found += line.find(wanted) != line.npos;
  return found;
}

// Those of these sockets that are on their way still: the listener may take one late.
int on_their_way(const std::vector<ProcessFd>& sockets) {
  int found = 0;
  for (const ProcessFd& socket : sockets) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
    found += info.tcpi_state == TCP_SYN_SENT;
  }
  return found;
}

TEST(TcpTransport, ConnectEndsWhenTheCommunicatorDoes) {
  // A queue that is full: the kernel drops who else comes, as a firewall does.
  const ProcessFd listener = tcp::open_socket(*parse_ip("127.0.0.1", 0), SOCK_STREAM);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  TcpAddress at = *tcp::own_address(listener.get());
  at.ip = parse_ip("127.0.0.1", 0)->ip;
  std::vector<ProcessFd> queue(8);
  for (ProcessFd& socket : queue) socket = tcp::start_connect(at);
  std::atomic<bool> over{false};
  run_job({.ranks = 2, .listen = false}, kTcp, [&](Member& me) {
    if (me.rank == 1) {
      invite_to(me, at);
      EXPECT_TRUE(me.poll("rank 0 to connect", [&] {
        const int ours = on_their_way(queue);
        return connecting_to(at.port) > ours;
      }));
      over = true;
      return;
    }
    ASSERT_TRUE(me.transport->listen());
    me.control->end_calls_when([&] { return over.load(); });
    const Status status = me.transport->connect(1, Member::patience());
    me.control->end_calls_when(nullptr);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidUsage) << status.error().message;
    EXPECT_NE(status.error().message.find("ended"), std::string::npos) << status.error().message;
  });
}

// More than the kernel takes for a peer that does not look: the rest is copied.
TEST(TcpTransport, WhatIsTakenBackArrivesAsItWas) {
  constexpr std::uint64_t kBytes = 16 << 20;  // eight are more than the kernel's buffers hold
  std::latch taken_back(1);
  run_job({.ranks = 2, .arena_bytes = 256 << 20}, kTcp, [&](Member& me) {
    const ConnectionSpec spec = slotted(0, 1, 8, kBytes);
    if (me.rank == 1) {
      taken_back.wait();
      return exchange(me, {}, {receiver(me, spec, 1)}, 8);
    }
    me.connect(1);
    End end = sender(me, spec, 1);
    std::vector<std::vector<std::byte>> memory(8, std::vector<std::byte>(kBytes));
    for (auto& each : memory) {
      fill_pattern({each.data(), kBytes, kBytes}, end.stream(), end.number, end.bytes());
      commit_lent(end.connection, signature_of(end.stream(), end.number), end.bytes(), each.data());
      ++end.number;
      EXPECT_TRUE(me.transport->progress());
    }
    EXPECT_LT(end.connection.state->taken, 8U) << "the kernel has taken all of it";
    me.transport->take_back();
    memory.clear();
    taken_back.count_down();
    EXPECT_TRUE(me.poll("room", [&] { return me.transport->unflushed() == kNoRank; }));
  });
}

TEST(TcpTransport, APeerOfAnotherVersionIsNamedWithBoth) {
  for (const std::uint32_t theirs : {tcp::kVersion + 1, tcp::kVersion - 1}) {
    run_job({.ranks = 2, .listen = false}, kTcp, [&](Member& me) {
      if (me.rank == 1) {
        answer_rank_0(me, {.version = theirs});
        return;
      }
      ASSERT_TRUE(me.transport->listen());
      me.connect(1);
      Status health;
      EXPECT_TRUE(me.poll("the answer", [&] { return !(health = me.transport->health(1)); }));
      EXPECT_EQ(health.error().culprit, 1);
      EXPECT_NE(
          health.error().message.find(fmt::format(
              "it speaks version {} of the protocol, this library {}", theirs, tcp::kVersion)),
          std::string::npos)
          << health.error().message;
    });
  }
}

TEST(TcpTransport, CreditsForWhatWasNeverSentAreNoticed) {
  for (const std::uint64_t lie : {std::uint64_t{3}, std::uint64_t{1} << 63, UINT64_MAX})
    run_job({.ranks = 2, .listen = false}, kTcp, [&](Member& me) {
      if (me.rank == 1) {
        const ProcessFd socket = answer_rank_0(me, {});
        me.meet();
        const tcp::Frame credit{.kind = tcp::FrameKind::kCredit, .number = lie};
        EXPECT_EQ(::send(socket.get(), &credit, sizeof credit, MSG_NOSIGNAL),
                  ssize_t{sizeof credit});
        me.meet();
        return;
      }
      ASSERT_TRUE(me.transport->listen());
      me.connect(1);
      End end = sender(me, slotted(0, 1, 2, 256), 1);
      end.send_one();
      end.send_one();
      me.meet();
      EXPECT_TRUE(me.poll("the credit", [&] {
        EXPECT_FALSE(can_send(end.connection));
        return is_corrupt(end.connection);
      }));
      me.meet();
    });
}

// With an honest hello, for which it has asked a second time.
ProcessFd knock_again(const Member& me, Rank rank) {
  const auto answer = me.control->call(rank, RequestKind::kTcp, {}, Member::patience());
  EXPECT_TRUE(answer);
  const auto invitation = tcp::decode_invitation(answer->payload);
  EXPECT_TRUE(invitation);
  ProcessFd socket = tcp::start_connect(invitation->at);
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, Member::patience().left_poll_ms()), 1);
  const tcp::Hello hello{.from = me.rank, .to = rank, .token = invitation->hello};
  EXPECT_EQ(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL), ssize_t{sizeof hello});
  return socket;
}

TEST(TcpTransport, WhoKnocksTwiceKeepsItsFirstConnection) {
  run_job({.ranks = 2}, kTcp, [&](Member& me) {
    if (me.rank == 0) {
      End in = receiver(me, slotted(1, 0, 2, 256), 1);
      for (int message = 0; message < 2; ++message) {
        ASSERT_TRUE(me.poll("a message", [&] { return can_recv(in.connection); }));
        in.recv_one();
        me.meet();
      }
      return;
    }
    me.connect(0);
    End out = sender(me, slotted(1, 0, 2, 256), 1);
    out.send_one();
    me.meet();
    const ProcessFd second = knock_again(me, 0);
    pollfd said{.fd = second.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&said, 1, Member::patience().left_poll_ms()), 1);
    char byte = 0;
    EXPECT_EQ(::recv(second.get(), &byte, 1, 0), 0) << "it was let in";
    out.send_one();
    me.meet();
  });
}

}  // namespace
}  // namespace tutti::test
