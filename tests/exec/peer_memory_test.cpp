// SPDX-License-Identifier: Apache-2.0
// Peer memory: what a rank lends and takes back, in one process and across processes.
#include "exec/peer_memory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "base/host.hpp"

namespace tutti::test {
namespace {

PeerInfo this_process() {
  return {.pid = ::getpid(),
          .process_token = process_token(),
          .token_address = process_token_address(),
          .host = {}};
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

void publish(LentMemory& lent, std::uint64_t operation, const void* input, const void* output) {
  lent.publish(operation, address_of(input), address_of(output));
}

TEST(PeerMemory, TellsTheBuffersOfOneOperation) {
  CallRecord shared{};
  LentMemory lent({}, 0, &shared);
  const int input = 0, output = 0;
  publish(lent, 7, &input, &output);
  for (PeerMemory peer : {PeerMemory(lent.local()), PeerMemory(this_process(), &shared)}) {
    ASSERT_TRUE(peer.enter(7));
    EXPECT_EQ(peer.input(), address_of(&input));
    EXPECT_EQ(peer.output(), address_of(&output));
    EXPECT_TRUE(peer.leave());
    EXPECT_FALSE(peer.enter(8));
    (void)peer.leave();
  }
  EXPECT_EQ(lent.local()->readers.load(), 0u);
}

TEST(PeerMemory, IsFoundInTheProcessWhileItsRankLives) {
  SessionId job{};
  job[0] = std::byte{42};
  {
    const LentMemory lent(job, 3, nullptr);
    EXPECT_EQ(find_call_record(job, 3), lent.local());
    EXPECT_EQ(find_call_record(job, 2), nullptr);
    EXPECT_EQ(find_call_record({}, 3), nullptr);
  }
  EXPECT_EQ(find_call_record(job, 3), nullptr);
}

TEST(PeerMemory, WhatIsWithdrawnMeanwhileWasNotRead) {
  CallRecord shared{};
  LentMemory lent({}, 0, &shared);
  const int buffer = 0;
  publish(lent, 1, &buffer, &buffer);
  PeerMemory peer(this_process(), &shared);
  ASSERT_TRUE(peer.enter(1));
  lent.withdraw();
  EXPECT_FALSE(peer.leave());
}

// The owner wipes its buffer as soon as withdraw() returns: a reader by loads sees all of it or has
// been told to stay out. (ThreadSanitizer sees any other order as a race.)
TEST(PeerMemory, WithdrawWaitsForReadersOfThisProcess) {
  constexpr int kRounds = 2000;
  std::vector<int> buffer(64);
  LentMemory lent({}, 0, nullptr);
  std::atomic<std::uint64_t> published{0}, seen{0};
  std::thread reader([&] {
    PeerMemory peer(lent.local());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      published.wait(round - 1);
      if (peer.enter(round)) {
        EXPECT_EQ(std::accumulate(buffer.begin(), buffer.end(), 0), 64 * static_cast<int>(round));
      }
      (void)peer.leave();
      seen = round;
      seen.notify_all();
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(buffer.begin(), buffer.end(), static_cast<int>(round));
    publish(lent, round, buffer.data(), buffer.data());
    published = round;
    published.notify_all();
    lent.withdraw();
    std::fill(buffer.begin(), buffer.end(), -1);
    seen.wait(round - 1);
  }
  reader.join();
}

TEST(PeerMemory, CopiesFromAnotherProcessUntilItEnds) {
  std::vector<int> theirs(100'000, 1);
  const std::uint64_t token_address = process_token_address();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::fill(theirs.begin(), theirs.end(), 2);
    (void)process_token_address();  // writes the child's own token
    const std::uint64_t token = process_token();
    [[maybe_unused]] const ssize_t written = ::write(pipe[1], &token, sizeof token);
    for (;;) ::pause();
  }
  PeerInfo info{.pid = child, .token_address = token_address, .host = {}};
  ASSERT_EQ(::read(pipe[0], &info.process_token, sizeof info.process_token),
            static_cast<ssize_t>(sizeof info.process_token));
  CallRecord record{};
  const PeerMemory peer(info, &record);
  std::vector<int> mine(theirs.size());
  const int error = peer.read(address_of(theirs.data()), mine.data(), mine.size() * sizeof(int));
  if (error == 0) {
    EXPECT_EQ(mine, std::vector<int>(theirs.size(), 2));
    EXPECT_EQ(peer.probe(), 0);
    // A process of another token is not the peer, whatever its pid.
    PeerInfo other = info;
    ++other.process_token;
    EXPECT_EQ(PeerMemory(other, &record).probe(), ESRCH);
    EXPECT_EQ(peer.read(64, mine.data(), sizeof(int)), EFAULT);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(peer.probe(), ESRCH);
  if (error != 0) GTEST_SKIP() << "the kernel refuses cross-memory attach, errno " << error;
}

}  // namespace
}  // namespace tutti::test
