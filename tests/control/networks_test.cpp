// SPDX-License-Identifier: Apache-2.0
// Jobs across hosts: ranks are processes in network namespaces of their own.
#include "networks.hpp"

#include <sys/mman.h>

#include <tuple>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "board/board.hpp"
#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"
#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/root.hpp"
#include "job.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;

constexpr std::uint16_t kPort = 29500;  // in namespaces of our own: nobody else has it

// How the ranks come to their id.
enum class IdKind { kCreated, kAgreedV4, kAgreedV6 };

// Made at host 0, where the root is to be.
UniqueId make_id(const Networks& networks, IdKind kind) {
  EXPECT_TRUE(networks.enter(0));
  Result<UniqueId> id =
      kind == IdKind::kCreated
          ? create_unique_id({.interfaces = ""})
          : unique_id_at(kind == IdKind::kAgreedV4 ? Networks::ip(0) : Networks::ip6(0), kPort,
                         agreed_secret(), "networks_test");
  EXPECT_TRUE(id) << (id ? "" : id.error().message);
  EXPECT_TRUE(networks.leave());
  return id.value_or(UniqueId{});
}

// Runs body(rank, id) for ranks of which rank r is a process at host r modulo `hosts`.
template <typename Body>
std::vector<ForkedResult> run_at_hosts(const Networks& networks, int ranks, int hosts, IdKind kind,
                                       Body&& body) {
  return run_forked(ranks,
                    [&](const ForkedRank& self) {
                      ASSERT_TRUE(networks.enter(self.rank % hosts));
                      const UniqueId id = id_from(self.message);
                      if (self.rank == 0 && kind != IdKind::kCreated) {
                        const Status served = serve_root(id);
                        ASSERT_TRUE(served) << served.error().message;
                      }
                      body(static_cast<Rank>(self.rank), id);
                    },
                    {.after_fork = [&] { return id_text(make_id(networks, kind)); }});
}

class Hosts : public ::testing::TestWithParam<std::tuple<int, IdKind>> {};

// Calls everybody; a descriptor comes from ranks of the own host only.
void expect_calls(ControlPlane& plane, int hosts) {
  const auto ranks = static_cast<Rank>(plane.peers().size());
  for (Rank peer = 0; peer < ranks; ++peer) {
    const bool near = peer % hosts == plane.rank() % hosts;
    const auto reply = plane.call(peer, RequestKind::kEcho, bytes_of(near ? "fd" : ""), patience());
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->payload, bytes_of("from " + std::to_string(peer)));
    EXPECT_EQ(static_cast<bool>(reply->fd), near);
    if (near) continue;
    const auto refused = plane.call(peer, RequestKind::kEcho, bytes_of("fd"), patience());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("TCP cannot carry a descriptor"), std::string::npos)
        << refused.error().message;
  }
}

TEST_P(Hosts, MeetExchangeAndCall) {
  const auto& [hosts, kind] = GetParam();
  const Networks networks(hosts);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const int ranks = 2 * hosts;
  const auto results =
      run_at_hosts(networks, ranks, hosts, kind, [&, h = hosts](Rank rank, const UniqueId& id) {
        JoinResult joined = ControlPlane::join(id, rank, ranks, {.deadline = patience()});
        ASSERT_TRUE(joined) << joined.error().message;
        ControlPlane& plane = **joined;
        for (Rank peer = 0; peer < ranks; ++peer) {
          EXPECT_EQ(plane.peers()[static_cast<std::size_t>(peer)].host_id ==
                        plane.peers()[static_cast<std::size_t>(rank)].host_id,
                    peer % h == rank % h);
        }
        const UniqueFd memory(::memfd_create("tutti-test", MFD_CLOEXEC));
        plane.serve(RequestKind::kEcho, [&](const Request& request) -> Result<HandlerReply> {
          return HandlerReply{.payload = bytes_of("from " + std::to_string(rank)),
                              .lent_fd = request.payload.empty() ? -1 : memory.get()};
        });
        const auto board = Board::open(plane, patience());
        ASSERT_TRUE(board) << board.error().message;
        const std::vector<std::byte> mine(100'000, static_cast<std::byte>(rank));
        const auto all = plane.allgather(mine, patience());
        ASSERT_TRUE(all) << all.error().message;
        for (Rank peer = 0; peer < ranks; ++peer) {
          EXPECT_EQ((*all)[static_cast<std::size_t>(peer) * mine.size()],
                    static_cast<std::byte>(peer));
        }
        expect_calls(plane, h);
        EXPECT_TRUE(plane.barrier(patience()));
      });
  expect_all_passed(results);
}

INSTANTIATE_TEST_SUITE_P(All, Hosts,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(IdKind::kCreated, IdKind::kAgreedV4,
                                                              IdKind::kAgreedV6)),
                         [](const auto& chosen) {
                           const IdKind kind = std::get<1>(chosen.param);
                           return std::to_string(std::get<0>(chosen.param)) +
                                  (kind == IdKind::kCreated    ? "Created"
                                   : kind == IdKind::kAgreedV4 ? "AgreedV4"
                                                               : "AgreedV6");
                         });

TEST(Network, AnInterfaceThatIsNotThereIsOneLineThatListsThoseThatAre) {
  const Networks networks(1);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  ASSERT_TRUE(networks.enter(0));
  const auto id = create_unique_id({.interfaces = "=ib0"});
  const auto exact = create_unique_id({.interfaces = "=eth0"});
  ASSERT_TRUE(networks.leave());
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Code::kInvalidArgument);
  EXPECT_NE(id.error().message.find("eth0 (10.77.0.1 fd77::1)"), std::string::npos)
      << id.error().message;
  ASSERT_TRUE(exact) << exact.error().message;
  const auto content = control::decode_id(*exact);
  ASSERT_TRUE(content);
  EXPECT_TRUE(content->tcp.starts_with("tcp:10.77.0.1:")) << content->tcp;
  control::retire_root(content->key.session);
}

// An int32 all-reduce of rank + index, checked.
void expect_sum(Communicator& communicator, Rank rank, Rank ranks, std::size_t count) {
  std::vector<std::int32_t> data(count), wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::int32_t>(i);
    data[i] = rank + index;
    wanted[i] = ranks * (ranks - 1) / 2 + ranks * index;
  }
  HeldCall call{&communicator,
                {.collective = Collective::kAllReduce,
                 .input = data.data(),
                 .output = data.data(),
                 .count = count,
                 .type = DataType::kInt32,
                 .op = ReduceOp::kSum},
                nullptr};
  const Status status = run_operations({&call, 1});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(data, wanted);
}

TEST_P(Hosts, ReduceByEveryAlgorithm) {
  const auto [hosts, kind] = GetParam();
  const Networks networks(hosts);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const Rank ranks = 2 * hosts;
  const auto results =
      run_at_hosts(networks, ranks, hosts, kind, [&](Rank rank, const UniqueId& id) {
        Config config;
        config.ib_hca = "=none";  // TCP also where there is RDMA
        const auto communicator =
            Communicator::create(id, rank, ranks, {.config = config, .cancel = {}});
        ASSERT_TRUE(communicator) << communicator.error().message;
        EXPECT_EQ((*communicator)->info().transport, "shm+tcp");
        for (const Algorithm* algorithm : all_algorithms()) {
          ASSERT_TRUE((*communicator)->set_algorithm(algorithm->name));
          for (const std::size_t count : {1u, 1000u, 100'000u})
            expect_sum(**communicator, rank, ranks, count);
        }
      });
  expect_all_passed(results);
}

TEST(Network, AHostThatIsCutOffEndsAnOperationAtItsTimeout) {
  Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const auto results =
      run_at_hosts(networks, 2, 2, IdKind::kAgreedV4, [&](Rank rank, const UniqueId& id) {
        Config config;
        config.op_timeout_ns = 4'000'000'000;
        const auto communicator =
            Communicator::create(id, rank, 2, {.config = config, .cancel = {}});
        ASSERT_TRUE(communicator) << communicator.error().message;
        expect_sum(**communicator, rank, 2, 1000);
        if (rank == 0) networks.cut(1);
        float data = 1;
        HeldCall call{
            communicator->get(),
            {.collective = Collective::kAllReduce, .input = &data, .output = &data, .count = 1},
            nullptr};
        Status status;
        while (status) status = run_operations({&call, 1});
        EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
        EXPECT_EQ(status.error().culprit, 1 - rank) << status.error().message;
      });
  expect_all_passed(results);
}

TEST(Network, ARankOfAnotherHostThatDiesBeforeTheJobHasMetIsNamed) {
  const Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const auto results =
      run_at_hosts(networks, 4, 2, IdKind::kCreated, [](Rank rank, const UniqueId& id) {
        if (rank == 3) {
          const auto content = control::decode_id(id);
          ASSERT_TRUE(content);
          auto root = control::open_connection(content->tcp, content->key,
                                               {.rank = 3, .peer = control::kRootRank, .ranks = 4},
                                               -1, patience());
          ASSERT_TRUE(root) << root.error().message;
          control::CheckIn check_in;
          check_in.left_ns = kPatienceMs * 1'000'000;
          check_in.root.job = content->key.session;
          check_in.member.info = {.rank = 3, .pid = ::getpid(), .host = "elsewhere"};
          ASSERT_TRUE(
              control::send_within(*root, control::encode_check_in(check_in), -1, patience()));
          ::raise(SIGKILL);
        }
        if (rank == 2) return;  // never comes, so the job cannot have met
        const JoinResult plane = ControlPlane::join(id, rank, 4, {.deadline = patience()});
        ASSERT_FALSE(plane);
        EXPECT_EQ(plane.error().code, Code::kRemoteError) << plane.error().message;
        EXPECT_EQ(plane.error().culprit, 3) << plane.error().message;
        EXPECT_NE(plane.error().message.find("elsewhere"), std::string::npos);
      });
  expect_all_passed(results, {3});
}

TEST(Network, ARankOfAnotherHostThatDiesIsNamedByWhoWaitsForIt) {
  const Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const auto results =
      run_at_hosts(networks, 2, 2, IdKind::kAgreedV4, [](Rank rank, const UniqueId& id) {
        const JoinResult plane = ControlPlane::join(id, rank, 2, {.deadline = patience()});
        ASSERT_TRUE(plane) << plane.error().message;
        ASSERT_TRUE((*plane)->barrier(patience()));
        if (rank == 1) ::raise(SIGKILL);
        const Status status = (*plane)->barrier(patience());
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Code::kRemoteError) << status.error().message;
        EXPECT_EQ(status.error().culprit, 1) << status.error().message;
      });
  expect_all_passed(results, {1});
}

TEST(Network, AHostThatIsCutOffEndsAnExchangeAtItsDeadline) {
  Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const auto results =
      run_at_hosts(networks, 2, 2, IdKind::kAgreedV6, [&](Rank rank, const UniqueId& id) {
        const JoinResult plane = ControlPlane::join(id, rank, 2, {.deadline = patience()});
        ASSERT_TRUE(plane) << plane.error().message;
        ASSERT_TRUE((*plane)->barrier(patience()));
        if (rank == 0) networks.cut(1);
        const Status status = (*plane)->barrier(Deadline::in_ms(300));
        // Rank 1's part may have come through before the cable was cut; rank 0's did not.
        if (rank == 0 && status) return;
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
        EXPECT_EQ(status.error().culprit, 1 - rank) << status.error().message;
      });
  expect_all_passed(results);
}

}  // namespace
}  // namespace tutti
