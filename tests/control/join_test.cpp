// SPDX-License-Identifier: Apache-2.0
// Joining, exchanges and calls among ranks that are threads of this process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "base/fd.hpp"
#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/root.hpp"
#include "control/unique_id.hpp"
#include "job.hpp"
#include "tests/comm/resources.hpp"

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

// A rank that is told to stop (its shrink is hopeless, or its user aborts) made no mistake that is
// the others' too: they may try again without it.
TEST(Join, ARankThatStopsInAnExchangeIsARemoteErrorForTheOthers) {
  constexpr int kRanks = 4;
  const auto planes = join_threads(kRanks);
  run_threads(kRanks, [&](Rank rank) {
    EXPECT_TRUE(planes[static_cast<std::size_t>(rank)]->barrier(patience()));
  });
  const auto exchange = [&](Rank rank) {
    return planes[static_cast<std::size_t>(rank)]->allgather(bytes_of("x"), patience());
  };
  // Before the others have sent it anything.
  planes[0]->interrupt();
  const auto stopped = exchange(0);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kInvalidUsage) << stopped.error().message;
  run_threads(kRanks, [&](Rank rank) {
    if (rank == 0) return;
    const auto all = exchange(rank);
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, Code::kRemoteError) << all.error().message;
    EXPECT_EQ(all.error().culprit, 0);
  });
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

TEST(Join, AServiceThatIsOutOfMemoryLosesARequestAndLivesOn) {
  const auto planes = join_threads(2);
  int asked = 0;
  planes[1]->serve(RequestKind::kEcho, [&](const Request&) -> Result<HandlerReply> {
    if (++asked == 1) throw std::bad_alloc();
    return HandlerReply{.payload = bytes_of("here")};
  });
  const auto lost = planes[0]->call(1, RequestKind::kEcho, {}, Deadline::in_ms(100));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kTimeout) << lost.error().message;
  const auto reply = planes[0]->call(1, RequestKind::kEcho, {}, patience());
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->payload, bytes_of("here"));
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
    EXPECT_NE(plane.error().message.find("rank 1 joined twice"), std::string::npos)
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
    ASSERT_TRUE((*plane)->barrier(patience()));
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

// What this process has of threads and descriptors.
struct Held {
  std::size_t threads = living_threads();
  std::size_t descriptors = entries("/proc/self/fd");
};

TEST(Ids, OfAProcessShareOneThreadAndOneListener) {
  ASSERT_TRUE(control::wait_for_roots(patience()));
  std::thread([] {}).join();  // with the first thread a sanitizer starts one of its own
  const Held before;
  std::vector<UniqueId> ids = {must_create_id()};
  const Held one;
  while (ids.size() < 100) ids.push_back(must_create_id());
  const Held hundred;
  EXPECT_EQ(hundred.threads, one.threads);
  EXPECT_EQ(hundred.descriptors, one.descriptors);
  EXPECT_EQ(one.threads, before.threads + 1);
  EXPECT_LE(one.descriptors, before.descriptors + 4);  // two listeners, epoll, its wake
  for (const UniqueId& id : ids) control::retire_root(control::decode_id(id)->key.session);
  ASSERT_TRUE(control::wait_for_roots(patience()));
  EXPECT_EQ(living_threads(), before.threads);
  EXPECT_EQ(entries("/proc/self/fd"), before.descriptors);
}

TEST(Ids, ThatNobodyJoinsEnd) {
  ASSERT_TRUE(control::wait_for_roots(patience()));
  for (int i = 0; i < 3; ++i) {
    const auto id = control::start_root({.interfaces = "lo", .idle_ns = 1'000'000});
    ASSERT_TRUE(id) << id.error().message;
  }
  EXPECT_TRUE(control::wait_for_roots(patience()));
}

// All at once, every second job over TCP, some ids for nothing.
TEST(Ids, OfAProcessServeManyJobsAtOnce) {
  constexpr int kJobs = 16, kRanks = 3;
  std::vector<UniqueId> ids, unused;
  for (int job = 0; job < kJobs; ++job) {
    ids.push_back(must_create_id());
    unused.push_back(must_create_id());
  }
  run_threads(kJobs * kRanks, [&](Rank thread) {
    const int job = thread % kJobs;
    const Rank rank = thread / kJobs;
    const UniqueId& id = ids[static_cast<std::size_t>(job)];
    const JoinResult plane = job % 2 == 0
                                 ? ControlPlane::join(id, rank, kRanks, {.deadline = patience()})
                                 : join_from(static_cast<std::uint64_t>(rank), id, rank, kRanks);
    ASSERT_TRUE(plane) << plane.error().message;
    EXPECT_EQ((*plane)->session(), control::decode_id(id)->key.session);
    expect_exchange(**plane, 100);
  });
  for (const UniqueId& id : unused) control::retire_root(control::decode_id(id)->key.session);
  EXPECT_TRUE(control::wait_for_roots(patience()));
}

TEST(Ids, OfAJobThatHasMetAreRefusedWhileOthersAreServed) {
  const UniqueId other = must_create_id();
  const UniqueId id = must_create_id();
  std::vector<std::unique_ptr<ControlPlane>> planes(2);
  run_threads(2, [&](Rank rank) {
    JoinResult plane = ControlPlane::join(id, rank, 2, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    ASSERT_TRUE((*plane)->barrier(patience()));
    planes[static_cast<std::size_t>(rank)] = *std::move(plane);
  });
  const JoinResult late = ControlPlane::join(id, 0, 2, {.deadline = Deadline::in_ms(3'600'000)});
  EXPECT_FALSE(late);
  control::retire_root(control::decode_id(other)->key.session);
  EXPECT_TRUE(control::wait_for_roots(patience()));
}

TEST(Ids, LeaveNothingWhenAJoinIsAborted) {
  ASSERT_TRUE(control::wait_for_roots(patience()));
  std::thread([] {}).join();
  const Held before;
  for (int i = 0; i < 10; ++i) {
    const UniqueId id = must_create_id();
    std::stop_source cancel;
    if (i % 2 == 0) cancel.request_stop();  // before it has come to the root
    std::thread rank([&] {
      EXPECT_FALSE(ControlPlane::join(
          id, 0, 2, {.deadline = Deadline::in_ms(3'600'000), .cancel = cancel.get_token()}));
    });
    cancel.request_stop();
    rank.join();
  }
  ASSERT_TRUE(control::wait_for_roots(patience()));
  EXPECT_EQ(living_threads(), before.threads);
  EXPECT_EQ(entries("/proc/self/fd"), before.descriptors);
}

// Those who have come hear of it.
TEST(Ids, OfAnAbortedJoinNameTheRankToThoseWhoWait) {
  const UniqueId id = must_create_id();
  const auto content = control::decode_id(id);
  ASSERT_TRUE(content);
  std::vector<std::byte> buffer(control::kMaxPacketBytes);
  std::vector<control::Channel> roots;
  for (Rank rank = 0; rank < 2; ++rank) {
    auto root = control::open_connection(content->local, content->key,
                                         {.rank = rank, .peer = control::kRootRank, .ranks = 2}, -1,
                                         patience());
    ASSERT_TRUE(root) << root.error().message;
    control::CheckIn check_in;
    check_in.left_ns = kPatienceMs * 1'000'000;
    check_in.member.info.rank = rank;
    check_in.member.info.pid = 1;
    check_in.member.address = content->local;
    ASSERT_TRUE(control::send_within(*root, control::encode_check_in(check_in), -1, patience()));
    roots.push_back(*std::move(root));
  }
  // Both have met: the root knows of them.
  ASSERT_TRUE(control::receive_within(roots[0], buffer, false, -1, patience()));
  control::abandon_root(content->key.session, 1, 2,
                        {Code::kRemoteError, "rank 1 aborted its join", 1});
  const auto told = control::receive_within(roots[0], buffer, false, -1, patience());
  ASSERT_TRUE(told) << told.error().message;
  Reader reader{std::span(buffer).first(told->packet_bytes)};
  EXPECT_EQ(control::read_header(reader).type, control::FrameType::kRefused);
  const Error error = control::decode_error(reader, 2);
  EXPECT_EQ(error.code, Code::kRemoteError);
  EXPECT_EQ(error.culprit, 1);
  EXPECT_EQ(error.message, "rank 1 aborted its join");
  EXPECT_TRUE(control::wait_for_roots(patience()));
}

#if !defined(__SANITIZE_ADDRESS__)
// The check of virtual tables needs a descriptor itself.
TEST(Join, ARankThatCannotStartItsServiceTellsTheOthers) {
  const auto results = run_forked(
      2,
      [](const ForkedRank& self) {
        const UniqueId id = id_from(self.message);
        if (self.rank == 0) {
          const JoinResult plane =
              ControlPlane::join(id, 0, 2, {.deadline = Deadline::in_ms(3'600'000)});
          ASSERT_FALSE(plane);
          EXPECT_EQ(plane.error().code, Code::kRemoteError) << plane.error().message;
          EXPECT_EQ(plane.error().culprit, 1);
          EXPECT_NE(plane.error().message.find("rank 1 cannot join"), std::string::npos)
              << plane.error().message;
          return;
        }
        const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        rlimit few{};
        ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &few), 0);
        few.rlim_cur = static_cast<rlim_t>(next.get()) + 2;  // a connection, but no service
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
        const JoinResult plane = ControlPlane::join(id, 1, 2, {.deadline = patience()});
        ASSERT_FALSE(plane);
        EXPECT_EQ(plane.error().code, Code::kSystemError) << plane.error().message;
      },
      {.after_fork = [] { return id_text(must_create_id()); }});
  expect_all_passed(results);
}
#endif

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
