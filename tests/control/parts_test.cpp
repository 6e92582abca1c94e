// SPDX-License-Identifier: Apache-2.0
// The control plane's parts by themselves: ids, packets, addresses, the mailbox, death watch.
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <new>
#include <random>

#include "base/host.hpp"
#include "control/mailbox.hpp"
#include "control/peer_watch.hpp"
#include "control/root.hpp"
#include "control/unique_id.hpp"
#include "job.hpp"
#include "tests/seed.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

TEST(UniqueId, KeepsItsContentAndItsSecretsDiffer) {
  const SessionKey key = make_session_key();
  const std::string local = "unix:@" + std::string(kMaxIdLocalBytes - 1, 'n');
  const std::string name(kMaxIdNameBytes, 'h');
  const std::vector<IdContent> contents = {
      {.key = key, .local = local, .locality = 77},
      {.key = key, .local = local, .locality = 77, .tcp = "tcp:10.1.2.3:65535"},
      {.key = key, .local = local, .locality = 77, .tcp = "tcp:[fd00:1:2:3:4:5:6:7]:1"},
      {.key = key, .tcp = "tcp:[::1]:29500"},
      {.key = key, .tcp = "tcp:" + name + ":29500"},
  };
  for (const IdContent& content : contents) {
    SCOPED_TRACE(content.tcp);
    const auto id = encode_id(content);
    ASSERT_TRUE(id) << id.error().message;
    const auto decoded = decode_id(*id);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->local, content.local);
    EXPECT_EQ(decoded->locality, content.locality);
    EXPECT_EQ(decoded->tcp, content.tcp);
    EXPECT_EQ(decoded->agreed(), content.local.empty());
    EXPECT_EQ(decoded->key.session, key.session);
    EXPECT_EQ(decoded->key.secret, key.secret);
  }
  const SessionKey other = make_session_key();
  EXPECT_NE(other.session, key.session);
  EXPECT_NE(other.secret, key.secret);
  EXPECT_FALSE(encode_id({.key = other, .local = local + "x"}));
  EXPECT_FALSE(encode_id({.key = other, .tcp = "tcp:" + name + "h:29500"}));
}

TEST(UniqueId, IsTheSameWhereverItIsAgreedOn) {
  const Bytes secret = bytes_of("0123456789abcdef0123456789abcdef");
  const auto made = [&](std::string_view host, std::uint16_t port, const Bytes& with,
                        std::string_view job) {
    const auto id = unique_id_at(host, port, with, job);
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    return id.value_or(UniqueId{}).bytes;
  };
  const auto id = made("Node7.cluster", 29500, secret, "job 12");
  EXPECT_EQ(id, made("node7.cluster", 29500, secret, "job 12"));
  Bytes other = secret;
  other.back() ^= std::byte{1};
  for (const auto& different : {made("node8.cluster", 29500, secret, "job 12"),
                                made("node7.cluster", 29501, secret, "job 12"),
                                made("node7.cluster", 29500, other, "job 12"),
                                made("node7.cluster", 29500, secret, "job 1")}) {
    EXPECT_NE(id, different);
    EXPECT_NE(decode_id({id})->key.secret, decode_id({different})->key.secret);
  }
  EXPECT_EQ(made("[::1]", 7, secret, ""), made("::1", 7, secret, ""));
  EXPECT_EQ(decode_id({made("::1", 7, secret, "")})->tcp, "tcp:[::1]:7");
  // A rank with another secret is of the same job, so that it can be told what is wrong.
  EXPECT_EQ(decode_id({id})->key.session,
            decode_id({made("node7.cluster", 29500, other, "job 12")})->key.session);
  for (const auto& [host, port] : {std::pair<std::string, std::uint16_t>{"", 1},
                                   {"node7", 0},
                                   {"node 7", 1},
                                   {"fe80::1%eth0", 1},
                                   {std::string(kMaxIdNameBytes + 1, 'h'), 1}}) {
    const auto bad = unique_id_at(host, port, secret, "");
    ASSERT_FALSE(bad) << host;
    EXPECT_EQ(bad.error().code, Code::kInvalidArgument);
  }
  EXPECT_FALSE(unique_id_at("node7", 1, std::span(secret).first(kLeastSecretBytes - 1), ""));
}

TEST(Messages, RandomBytesAreNeverTakenForMembersOfRangeOutside) {
  const unsigned seed = draw_seed();
  std::mt19937 random(seed);
  constexpr std::int32_t kRanks = 4;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 300);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 3);
    Reader error_reader(bytes);
    const Error error = decode_error(error_reader, kRanks);
    EXPECT_GE(error.culprit, kNoRank);
    EXPECT_LT(error.culprit, kRanks);
    EXPECT_NE(error.code, Code::kSuccess);
    EXPECT_LE(error.message.size(), kMaxMessageBytes);
    Reader met_reader(bytes);
    if (const auto contacts = decode_met(met_reader, kRanks)) {
      for (const auto& [rank, address] : *contacts) {
        EXPECT_GE(rank, 0);
        EXPECT_LT(rank, kRanks);
      }
    }
    Reader piece_reader(bytes);
    if (const auto piece = decode_piece(piece_reader)) {
      EXPECT_LE(piece->bytes.size(), piece->total_bytes);
    }
    Reader check_in_reader(bytes);
    if (const auto check_in = decode_check_in(check_in_reader, 1)) {
      EXPECT_EQ(check_in->member.info.rank, 1);
    }
  }
}

TEST(Messages, AMemberTravelsInAFixedSize) {
  Member member;
  member.info = {.rank = 3,
                 .pid = 77,
                 .uid = 1000,
                 .process_token = 5,
                 .token_address = 9,
                 .host_id = 6,
                 .host = "a\nname"};
  member.address = "unix:@x";
  member.start_ticks = 8;
  member.pid_namespace = 9;
  member.tcp = "tcp:[1111:2222:3333:4444:5555:6666:7777:8888]:65535";
  member.locality = 12;
  const Bytes bytes = encode_member(member);
  EXPECT_EQ(bytes.size(), kMemberBytes);
  const auto decoded = decode_member(bytes, 3);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->info.host, "a?name");  // fit for an error message
  EXPECT_EQ(decoded->info.pid, 77);
  EXPECT_EQ(decoded->address, "unix:@x");
  EXPECT_EQ(decoded->start_ticks, 8u);
  EXPECT_EQ(decoded->pid_namespace, 9u);
  EXPECT_EQ(decoded->tcp, member.tcp);
  EXPECT_EQ(decoded->locality, 12u);
  EXPECT_FALSE(decode_member(bytes, 2));
  EXPECT_FALSE(decode_member(std::span(bytes).first(bytes.size() - 1), 3));
}

TEST(Sockets, ThePathFallbackIsPrivateWorksAndLeavesNothing) {
  std::filesystem::path folder;
  {
    auto listener = listen_local(ListenKind::kPath);
    ASSERT_TRUE(listener) << listener.error().message;
    const std::string address = listener->address();
    EXPECT_LE(address.size(), std::string("unix:").size() + kMaxIdLocalBytes);
    const std::filesystem::path path = address.substr(std::string("unix:").size());
    folder = path.parent_path();
    struct stat info {};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const auto socket = connect_to(address, -1, patience());
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_TRUE(accept_from(*listener));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Sockets, AJobMeetsOverPathsToo) {
  const auto id = start_root({.interfaces = "lo", .kind = ListenKind::kPath});
  ASSERT_TRUE(id) << id.error().message;
  run_threads(3, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(*id, rank, 3, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
  });
  const std::string path = decode_id(*id)->local.substr(std::string("unix:").size());
  EXPECT_TRUE(wait_for_roots(patience()));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST(Sockets, AddressesThatAreNoneAreRefused) {
  const auto code_of = [](std::string_view address) {
    const auto socket = connect_to(address, -1, patience());
    return socket ? Code::kSuccess : socket.error().code;
  };
  EXPECT_EQ(code_of(""), Code::kNotSupported);
  EXPECT_EQ(code_of("ib:0"), Code::kNotSupported);
  for (const char* malformed : {"tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:", "tcp:127.0.0.1:0",
                                "tcp:127.0.0.1:65536", "tcp:::1:80", "tcp:[127.0.0.1]:80",
                                "tcp:[::1]", "tcp:localhost:80", "tcp:[fe80::1%lo]:80"}) {
    EXPECT_EQ(code_of(malformed), Code::kInvalidArgument) << malformed;
  }
  EXPECT_EQ(code_of("unix:"), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:relative"), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:@" + std::string(200, 'x')), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:@tutti-nobody-ever-had-this-name"), Code::kRemoteError);
  EXPECT_EQ(code_of("unix:/nonexistent/socket"), Code::kRemoteError);
}

TEST(Mailbox, KnowsWhyAMemberGaveUp) {
  Mailbox mailbox;
  EXPECT_EQ(mailbox.enter(), 1u);
  EXPECT_FALSE(mailbox.await_reason(Deadline{}));
  mailbox.deposit_failure(4, 1, 2, {Code::kRemoteError, "rank 1 hung up", 1});
  const auto reason = mailbox.await_reason(Deadline{});
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->culprit, 1);
  EXPECT_EQ(mailbox.enter(), 2u);
  EXPECT_FALSE(mailbox.await_reason(Deadline{})) << "of an exchange that is over";
  mailbox.fail({Code::kRemoteError, "somebody died", 5});
  EXPECT_EQ(mailbox.await_reason(patience())->culprit, 5);
}

TEST(Mailbox, GivesMessagesThatCameBeforeTheEndAndThenTheEnd) {
  Mailbox mailbox;
  EXPECT_EQ(mailbox.enter(), 1u);
  const Bytes bytes(8, std::byte{4});
  EXPECT_TRUE(mailbox.deposit(3, 1, 0, {.total_bytes = 8, .bytes = std::span(bytes).first(5)}));
  EXPECT_TRUE(
      mailbox.deposit(3, 1, 0, {.offset = 5, .total_bytes = 8, .bytes = std::span(bytes).last(3)}));
  EXPECT_TRUE(mailbox.deposit(3, 2, 0, {.total_bytes = 0, .bytes = {}}));  // of the next exchange
  EXPECT_TRUE(
      mailbox.deposit(3, 9, 0, {.total_bytes = 8, .bytes = {}}));  // of none that can be: ignored
  mailbox.fail({Code::kRemoteError, "somebody died", 5});
  const auto first = mailbox.take(3, 0, 8, patience());
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, bytes);
  const auto second = mailbox.take(3, 0, 8, patience());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().culprit, 5);
  EXPECT_EQ(mailbox.enter(), 2u);
  EXPECT_TRUE(mailbox.take(3, 0, 0, patience()));
  EXPECT_EQ(mailbox.state().waits_for, 3);
}

class Watch : public ::testing::TestWithParam<WatchMode> {};

TEST_P(Watch, NoticesAProcessThatEndsAndOnlyThat) {
  if (GetParam() == WatchMode::kPidfd && !has_pidfd()) GTEST_SKIP() << "no pidfd here";
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  UniqueFd reader(pipe[0]);
  UniqueFd writer(pipe[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    writer.reset();
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::read(reader.get(), &byte, 1);  // until the parent closes
    ::_exit(0);
  }
  const auto loop = EventLoop::create();
  ASSERT_TRUE(loop);
  std::vector<Rank> deaths;
  PeerWatch watch(**loop, GetParam());
  const std::uint64_t start = process_start_ticks(child);
  EXPECT_NE(start, 0u);
  // Rank 7's process had the same pid, but it started earlier: it is dead already.
  watch.start({{.pid = child, .start_ticks = start, .ranks = {2, 3}},
               {.pid = child, .start_ticks = start - 1, .ranks = {7}},
               {.pid = ::getpid(), .start_ticks = 0, .ranks = {9}}},
              [&](Rank rank) { deaths.push_back(rank); });
  EXPECT_EQ(deaths, std::vector<Rank>{7});
  writer.reset();  // the child ends, and stays a zombie: nobody has waited for it
  const Deadline deadline = patience();
  while (deaths.size() < 3 && !deadline.passed()) {
    (*loop)->run_once(std::min(watch.next_tick_ns(), deadline.at_ns));
    watch.tick(now_ns());
  }
  EXPECT_EQ(deaths, (std::vector<Rank>{7, 2, 3}));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

INSTANTIATE_TEST_SUITE_P(Modes, Watch, ::testing::Values(WatchMode::kPidfd, WatchMode::kPoll),
                         [](const auto& chosen) {
                           return chosen.param == WatchMode::kPidfd ? "Pidfd" : "Poll";
                         });

// As where memory has run out: the order to stop the thread is posted work.
TEST(Loop, RunsPostedWorkThoughACallbackThrowsEachTime) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const UniqueFd reader(pipe[0]), writer(pipe[1]);
  const auto loop = EventLoop::create();
  ASSERT_TRUE(loop);
  ASSERT_NE((*loop)->add(reader.get(), EPOLLIN, [](std::uint32_t) { throw std::bad_alloc(); }), 0U);
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);  // ready before the posted work, and stays so
  bool ran = false;
  (*loop)->post([&] { ran = true; });
  for (int turn = 0; turn < 100 && !ran; ++turn) try {
      (*loop)->run_once(0);
    } catch (const std::bad_alloc&) {
    }
  EXPECT_TRUE(ran);
}

TEST(Watch, PlansOneTargetForEachProcessItCanSee) {
  const auto member = [](Rank rank, std::int32_t pid, std::uint64_t host, std::uint64_t space) {
    Member result;
    result.info = {.rank = rank,
                   .pid = pid,
                   .process_token = static_cast<std::uint64_t>(pid) * 10 + space,
                   .host_id = host,
                   .host = "h"};
    result.pid_namespace = space;
    return result;
  };
  const std::vector<Member> members = {member(0, 5, 1, 1), member(1, 5, 1, 1), member(2, 6, 1, 1),
                                       member(3, 6, 1, 1), member(4, 7, 2, 1), member(5, 5, 1, 2)};
  const WatchPlan plan = plan_watch(members, members[0]);
  ASSERT_EQ(plan.near.size(), 1u);
  EXPECT_EQ(plan.near[0].pid, 6);
  EXPECT_EQ(plan.near[0].ranks, (std::vector<Rank>{2, 3}));
  EXPECT_TRUE(plan.others.empty());
  EXPECT_EQ(plan.unseen, (std::vector<Rank>{4, 5}));
}

TEST(Watch, BeginsWithFewProcessesAndEachHasItsWatchers) {
  constexpr Rank kRanks = 11;
  std::vector<Member> members;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    Member& member = members.emplace_back();
    member.info = {.rank = rank,
                   .pid = rank + 100,
                   .process_token = static_cast<std::uint64_t>(rank) + 1,
                   .host_id = 1,
                   .host = "h"};
  }
  const auto pids = [](const std::vector<WatchTarget>& targets) {
    std::vector<std::int32_t> found;
    for (const WatchTarget& target : targets) found.push_back(target.pid - 100);
    return found;
  };
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const WatchPlan plan = plan_watch(members, members[static_cast<std::size_t>(rank)]);
    const auto before = [&](Rank distance) { return (rank + kRanks - distance) % kRanks; };
    EXPECT_EQ(pids(plan.near), (std::vector{before(1), before(2), before(4), before(8)}));
    EXPECT_EQ(pids(plan.others),
              (std::vector{before(3), before(5), before(6), before(7), before(9), before(10)}));
  }
}

}  // namespace
}  // namespace tutti::control
