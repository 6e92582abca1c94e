// The control plane's parts by themselves: ids, packets, addresses, the mailbox, death watch.
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <random>

#include "base/host.hpp"
#include "runtime/control/mailbox.hpp"
#include "runtime/control/peer_watch.hpp"
#include "runtime/control/root.hpp"
#include "runtime/control/unique_id.hpp"
#include "tests/runtime/control/job.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

using Bytes = std::vector<std::byte>;

TEST(UniqueId, KeepsItsContentAndItsSecretsDiffer) {
  const IdContent content{.key = make_session_key(), .address = "unix:@tutti-0123"};
  const auto id = encode_id(content);
  ASSERT_TRUE(id);
  const auto decoded = decode_id(*id);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->address, content.address);
  EXPECT_EQ(decoded->key.session, content.key.session);
  EXPECT_EQ(decoded->key.secret, content.key.secret);
  const SessionKey other = make_session_key();
  EXPECT_NE(other.session, content.key.session);
  EXPECT_NE(other.secret, content.key.secret);
  EXPECT_FALSE(encode_id({.key = other, .address = std::string(kMaxIdAddressBytes + 1, 'x')}));
}

TEST(Messages, RandomBytesAreNeverTakenForMembersOfRangeOutside) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
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
  const Bytes bytes = encode_member(member);
  EXPECT_EQ(bytes.size(), kMemberBytes);
  const auto decoded = decode_member(bytes, 3);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->info.host, "a?name");  // fit for an error message
  EXPECT_EQ(decoded->info.pid, 77);
  EXPECT_EQ(decoded->address, "unix:@x");
  EXPECT_EQ(decoded->start_ticks, 8u);
  EXPECT_EQ(decoded->pid_namespace, 9u);
  EXPECT_FALSE(decode_member(bytes, 2));
  EXPECT_FALSE(decode_member(std::span(bytes).first(bytes.size() - 1), 3));
}

TEST(Sockets, ThePathFallbackIsPrivateWorksAndLeavesNothing) {
  std::filesystem::path folder;
  {
    auto listener = listen_local(ListenKind::kPath);
    ASSERT_TRUE(listener) << listener.error().message;
    const std::string address = listener->address();
    EXPECT_LE(address.size(), kMaxIdAddressBytes);
    const std::filesystem::path path = address.substr(std::string("unix:").size());
    folder = path.parent_path();
    struct stat info {};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const auto socket = connect_to(address, patience());
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_TRUE(accept_from(listener->fd()));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Sockets, AJobMeetsOverPathsToo) {
  const auto id = start_root(Log(), ListenKind::kPath);
  ASSERT_TRUE(id) << id.error().message;
  run_threads(3, [&](Rank rank) {
    const JoinResult plane = ControlPlane::join(*id, rank, 3, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
  });
  const std::string path = decode_id(*id)->address.substr(std::string("unix:").size());
  EXPECT_TRUE(wait_for_roots(patience()));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST(Sockets, AddressesThatAreNoneAreRefused) {
  const auto code_of = [](std::string_view address) {
    const auto socket = connect_to(address, patience());
    return socket ? Code::kSuccess : socket.error().code;
  };
  EXPECT_EQ(code_of(""), Code::kNotSupported);
  EXPECT_EQ(code_of("tcp:127.0.0.1:1"), Code::kNotSupported);
  EXPECT_EQ(code_of("unix:"), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:relative"), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:@" + std::string(200, 'x')), Code::kInvalidArgument);
  EXPECT_EQ(code_of("unix:@tutti-nobody-ever-had-this-name"), Code::kRemoteError);
  EXPECT_EQ(code_of("unix:/nonexistent/socket"), Code::kRemoteError);
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
  ASSERT_EQ(plan.targets.size(), 1u);
  EXPECT_EQ(plan.targets[0].pid, 6);
  EXPECT_EQ(plan.targets[0].ranks, (std::vector<Rank>{2, 3}));
  EXPECT_EQ(plan.unseen, (std::vector<Rank>{4, 5}));
}

}  // namespace
}  // namespace tutti::control
