// Joining, exchanges and calls among ranks that are threads of this process.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "runtime/control/root.hpp"
#include "runtime/control/unique_id.hpp"
#include "tests/runtime/control/job.hpp"
#include "tests/runtime/resources.hpp"

namespace tutti {
namespace {

using test::entries;
using test::living_threads;

using namespace tutti::testing;

std::vector<std::byte> blob_of(Rank rank, std::size_t bytes) {
  std::vector<std::byte> blob(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    blob[i] = static_cast<std::byte>((static_cast<std::size_t>(rank) * 131 + i * 7) & 0xff);
  }
  return blob;
}

void expect_exchange(ControlPlane& plane, std::size_t blob_bytes) {
  const auto all = plane.allgather(blob_of(plane.rank(), blob_bytes), patience());
  ASSERT_TRUE(all) << all.error().message;
  std::vector<std::byte> expected;
  for (std::size_t rank = 0; rank < plane.peers().size(); ++rank) {
    const std::vector<std::byte> blob = blob_of(static_cast<Rank>(rank), blob_bytes);
    expected.insert(expected.end(), blob.begin(), blob.end());
  }
  EXPECT_EQ(*all, expected) << "rank " << plane.rank() << ", " << blob_bytes << " bytes";
}

class Threads : public ::testing::TestWithParam<int> {};

TEST_P(Threads, MeetKnowEachOtherAndExchange) {
  const int ranks = GetParam();
  const auto planes = join_threads(ranks);
  run_threads(ranks, [&](Rank rank) {
    ControlPlane& plane = *planes[static_cast<std::size_t>(rank)];
    ASSERT_EQ(plane.rank(), rank);
    ASSERT_EQ(plane.peers().size(), static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer) {
      const PeerInfo& info = plane.peers()[static_cast<std::size_t>(peer)];
      EXPECT_EQ(info.rank, peer);
      EXPECT_EQ(info.pid, ::getpid());
      EXPECT_EQ(info.uid, ::geteuid());
      EXPECT_EQ(info.process_token, plane.peers()[0].process_token);
      EXPECT_EQ(info.host_id, plane.peers()[0].host_id);
      EXPECT_FALSE(info.host.empty());
    }
    EXPECT_EQ(plane.session(), planes[0]->session());
    for (const std::size_t blob_bytes : {0UL, 1UL, 8UL, 1000UL}) expect_exchange(plane, blob_bytes);
    EXPECT_TRUE(plane.barrier(patience()));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Threads, ::testing::Values(1, 2, 3, 4, 5, 8, 16, 33));

TEST(Join, LargeExchangesTravelInPieces) {
  const auto planes = join_threads(3);
  run_threads(
      3, [&](Rank rank) { expect_exchange(*planes[static_cast<std::size_t>(rank)], 300'000); });
}

TEST(Join, CallsReachEveryPeerAndPassADescriptor) {
  constexpr int kRanks = 5;
  const auto planes = join_threads(kRanks);
  const UniqueFd memory(::memfd_create("tutti-test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(memory.get(), "hello", 5, 0), 5);
  for (const auto& plane : planes) {
    plane->serve(RequestKind::kEcho, [&](const Request& request) -> Result<HandlerReply> {
      std::vector<std::byte> payload(request.payload.begin(), request.payload.end());
      payload.push_back(static_cast<std::byte>(request.from));
      return HandlerReply{.payload = std::move(payload), .lent_fd = memory.get()};
    });
  }
  run_threads(kRanks, [&](Rank rank) {
    for (Rank peer = 0; peer < kRanks; ++peer) {
      std::vector<std::byte> payload = bytes_of("to " + std::to_string(peer));
      auto reply = planes[static_cast<std::size_t>(rank)]->call(peer, RequestKind::kEcho, payload,
                                                                patience());
      ASSERT_TRUE(reply) << reply.error().message;
      payload.push_back(static_cast<std::byte>(rank));
      EXPECT_EQ(reply->payload, payload);
      ASSERT_TRUE(reply->fd);
      std::array<char, 5> text{};
      ASSERT_EQ(::pread(reply->fd.get(), text.data(), text.size(), 0), 5);
      EXPECT_EQ(std::string_view(text.data(), text.size()), "hello");
      EXPECT_NE(::fcntl(reply->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    }
  });
}

TEST(Join, ACallWaitsForAHandlerThatComesLater) {
  const auto planes = join_threads(2);
  std::thread caller([&] {
    const auto reply = planes[0]->call(1, RequestKind::kShmSegment, {}, patience());
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->payload, bytes_of("late"));
  });
  planes[1]->serve(RequestKind::kShmSegment, [](const Request&) -> Result<HandlerReply> {
    return HandlerReply{.payload = bytes_of("late")};
  });
  caller.join();
}

TEST(Join, ARefusalNamesTheRankAndTheReason) {
  const auto planes = join_threads(2);
  planes[1]->serve(RequestKind::kEcho, [](const Request&) -> Result<HandlerReply> {
    return make_error(Code::kInvalidUsage, "not today");
  });
  const auto reply = planes[0]->call(1, RequestKind::kEcho, {}, patience());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kRemoteError);
  EXPECT_EQ(reply.error().culprit, 1);
  EXPECT_NE(reply.error().message.find("not today"), std::string::npos);
}

TEST(Join, ASilentPeerTimesOutAndTheNextCallWorks) {
  const auto planes = join_threads(2);
  const auto silent = planes[0]->call(1, RequestKind::kEcho, {}, Deadline::in_ms(20));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kTimeout);
  EXPECT_EQ(silent.error().culprit, 1);
  planes[1]->serve(RequestKind::kEcho, [](const Request& request) -> Result<HandlerReply> {
    return HandlerReply{.payload = {request.payload.begin(), request.payload.end()}};
  });
  const auto reply = planes[0]->call(1, RequestKind::kEcho, bytes_of("again"), patience());
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->payload, bytes_of("again"));
}

TEST(Join, OversizedRequestsAndRepliesAreRefused) {
  const auto planes = join_threads(2);
  planes[1]->serve(RequestKind::kEcho, [](const Request&) -> Result<HandlerReply> {
    return HandlerReply{.payload = std::vector<std::byte>(70'000)};
  });
  const std::vector<std::byte> large(70'000);
  const auto request = planes[0]->call(1, RequestKind::kEcho, large, patience());
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, Code::kInvalidArgument);
  const auto reply = planes[0]->call(1, RequestKind::kEcho, {}, patience());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kRemoteError);
  EXPECT_FALSE(planes[0]->call(2, RequestKind::kEcho, {}, patience()));
}

TEST(Join, AnExchangeNamesTheRankThatDidNotCome) {
  constexpr int kRanks = 8;
  constexpr Rank kAbsent = 5;
  const auto planes = join_threads(kRanks);
  run_threads(kRanks, [&](Rank rank) {
    if (rank == kAbsent) return;
    const Status status = planes[static_cast<std::size_t>(rank)]->barrier(Deadline::in_ms(100));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
    EXPECT_EQ(status.error().culprit, kAbsent) << "rank " << rank << ": " << status.error().message;
  });
}

TEST(Join, AnExchangeOfUnequalSizesFailsOnAllRanks) {
  constexpr int kRanks = 4;
  const auto planes = join_threads(kRanks);
  run_threads(kRanks, [&](Rank rank) {
    const std::vector<std::byte> mine(rank == 2 ? 9 : 8);
    const auto all = planes[static_cast<std::size_t>(rank)]->allgather(mine, patience());
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, Code::kInvalidUsage) << all.error().message;
  });
}

TEST(Join, CloseEndsTheCallsOfOtherThreads) {
  const auto planes = join_threads(2);
  run_threads(2, [&](Rank rank) {
    if (rank == 0) {
      const auto reply = planes[0]->call(1, RequestKind::kEcho, {}, patience());
      EXPECT_FALSE(reply);
    } else {
      planes[0]->close();
    }
  });
}

TEST(Join, AMissingRankIsNamedToAllAtTheDeadline) {
  const UniqueId id = must_create_id();
  run_threads(4, [&](Rank rank) {
    if (rank == 2) return;
    const JoinResult plane = ControlPlane::join(id, rank, 4, {.deadline = Deadline::in_ms(150)});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kTimeout);
    EXPECT_EQ(plane.error().culprit, 2) << plane.error().message;
    EXPECT_NE(plane.error().message.find("rank 2 of 4"), std::string::npos)
        << plane.error().message;
  });
  // Who comes later is told the same.
  const JoinResult late = ControlPlane::join(id, 2, 4, {.deadline = patience()});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout) << late.error().message;
}

TEST(Join, ADoubledRankIsAnErrorForAllThatNamesBoth) {
  const UniqueId id = must_create_id();
  run_threads(3, [&](Rank i) {
    const Rank rank = i == 2 ? 1 : i;  // 0, 1 and 1 again; 2 never comes
    const JoinResult plane = ControlPlane::join(id, rank, 3, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage);
    EXPECT_EQ(plane.error().culprit, 1);
    EXPECT_NE(plane.error().message.find("rank 1 came twice"), std::string::npos)
        << plane.error().message;
  });
  control::retire_root(control::decode_id(id)->key.session);  // it would wait for rank 2
}

TEST(Join, DisagreementOnTheNumberOfRanksIsAnErrorForAll) {
  const UniqueId id = must_create_id();
  run_threads(2, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(id, rank, 2 + rank, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage);
    EXPECT_NE(plane.error().message.find("rank 0"), std::string::npos);
    EXPECT_NE(plane.error().message.find("rank 1"), std::string::npos);
  });
}

TEST(Join, BadArgumentsAndBadIdsAreRefusedAtOnce) {
  const UniqueId id = must_create_id();
  for (const auto& [rank, ranks] : {std::pair<Rank, int>{-1, 2}, {2, 2}, {0, 0}, {0, 1 << 20}}) {
    const JoinResult plane = ControlPlane::join(id, rank, ranks, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage);
  }
  for (std::size_t i = 0; i < kUniqueIdBytes; ++i) {
    UniqueId damaged = id;
    damaged.bytes[i] ^= std::byte{0x10};
    const JoinResult plane = ControlPlane::join(damaged, 0, 2, {.deadline = patience()});
    ASSERT_FALSE(plane) << "byte " << i;
    EXPECT_EQ(plane.error().code, Code::kInvalidArgument);
  }
  const JoinResult alone = ControlPlane::join(id, 0, 1, {.deadline = patience()});
  EXPECT_TRUE(alone);
  EXPECT_TRUE(control::wait_for_roots(patience()));
}

TEST(Join, ARankThatCannotComeIsNamedToAll) {
  const UniqueId id = must_create_id();
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  const Error cause{Code::kSystemError, "rank 1 cannot join: no memory", 1};
  control::call_off(content->key.session, 1, 3, cause);  // before anybody came
  for (const Rank rank : {0, 2}) {
    const JoinResult plane =
        ControlPlane::join(id, rank, 3, {.deadline = Deadline::in_ms(3'600'000)});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kRemoteError);  // a system error on its own machine
    EXPECT_EQ(plane.error().culprit, 1);
    EXPECT_EQ(plane.error().message, cause.message);
  }
}

TEST(Join, IsCancelledWhileItWaits) {
  const UniqueId id = must_create_id();
  std::stop_source cancel;
  std::thread rank([&] {
    const JoinResult plane = ControlPlane::join(
        id, 0, 2, {.deadline = Deadline::in_ms(3'600'000), .cancel = cancel.get_token()});
    EXPECT_FALSE(plane);
  });
  cancel.request_stop();
  rank.join();
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  control::retire_root(content->key.session);  // nobody may have come to it
}

TEST(Join, AnIdWhoseJobHasMetIsRefusedAtOnce) {
  const UniqueId id = must_create_id();
  std::vector<std::unique_ptr<ControlPlane>> planes(2);
  run_threads(2, [&](Rank rank) {
    JoinResult plane = ControlPlane::join(id, rank, 2, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  ASSERT_TRUE(control::wait_for_roots(patience()));
  const JoinResult late = ControlPlane::join(id, 0, 2, {.deadline = patience()});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kRemoteError) << late.error().message;
}

TEST(Join, NothingIsLeftAfterClose) {
  std::thread([] {}).join();  // with the first thread a sanitizer starts one of its own
  const std::size_t fds = entries("/proc/self/fd");
  const std::size_t threads = living_threads();
  {
    const auto planes = join_threads(8);
    run_threads(8, [&](Rank rank) {
      ASSERT_TRUE(planes[static_cast<std::size_t>(rank)]->barrier(patience()));
    });
    for (const auto& plane : planes) plane->close();
    for (const auto& plane : planes) plane->close();  // idempotent
  }
  ASSERT_TRUE(control::wait_for_roots(patience()));
  EXPECT_EQ(entries("/proc/self/fd"), fds);
  EXPECT_EQ(living_threads(), threads);
}

TEST(Join, OneRankUsesNoSocketAndNoThread) {
  const UniqueId id = must_create_id();
  const std::size_t fds = entries("/proc/self/fd");
  const std::size_t threads = living_threads();
  const JoinResult plane = ControlPlane::join(id, 0, 1, {.deadline = patience()});
  ASSERT_TRUE(plane);
  ASSERT_TRUE(control::wait_for_roots(patience()));
  EXPECT_LT(entries("/proc/self/fd"), fds);  // the root's are gone
  EXPECT_LT(living_threads(), threads);
  (*plane)->serve(RequestKind::kEcho, [](const Request& request) -> Result<HandlerReply> {
    return HandlerReply{.payload = {request.payload.begin(), request.payload.end()}};
  });
  const auto reply = (*plane)->call(0, RequestKind::kEcho, bytes_of("me"), patience());
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->payload, bytes_of("me"));
}

class JoinTime : public ::testing::TestWithParam<int> {};

TEST_P(JoinTime, Figure) {
  const std::int64_t start_ns = now_ns();
  const auto planes = join_threads(GetParam());
  const auto elapsed_us = static_cast<int>((now_ns() - start_ns) / 1000);
  for (const auto& plane : planes) ASSERT_TRUE(plane);
  RecordProperty("join_us", elapsed_us);
  std::printf("join of %d threads: %d us\n", GetParam(), elapsed_us);
}

INSTANTIATE_TEST_SUITE_P(Ranks, JoinTime, ::testing::Values(8, 64));

}  // namespace
}  // namespace tutti
