// SPDX-License-Identifier: Apache-2.0
// The board: one mapping for the threads of a process, poison that the first writer wins, records
// that are whole or not there, and memory that lies.
#include "board/board.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "base/shared_file.hpp"
#include "board/board_memory.hpp"
#include "tests/control/job.hpp"
#include "tests/seed.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;

std::vector<std::unique_ptr<Board>> open_boards(
    const std::vector<std::unique_ptr<ControlPlane>>& planes) {
  std::vector<std::unique_ptr<Board>> boards(planes.size());
  run_threads(static_cast<int>(planes.size()), [&](Rank rank) {
    auto board = Board::open(*planes[static_cast<std::size_t>(rank)], patience());
    ASSERT_TRUE(board) << board.error().message;
    boards[static_cast<std::size_t>(rank)] = *std::move(board);
  });
  return boards;
}

OperationSignature signature_of(std::uint64_t operation) {
  return {.operation = operation,
          .collective = Collective::kReduce,
          .type = DataType::kBfloat16,
          .op = ReduceOp::kAvg,
          .root = 1,
          .count = operation * 1000,
          .plan = ~operation};
}

TEST(Board, AloneItWorksWithoutAnybody) {
  const auto planes = join_threads(1);
  const auto boards = open_boards(planes);
  Board& board = *boards[0];
  EXPECT_EQ(board.state(0), RankState::kAbsent);
  EXPECT_EQ(board.waits_for(0), kNoRank);
  EXPECT_EQ(board.last_entered(0), 0u);
  EXPECT_FALSE(board.poisoned());
  EXPECT_FALSE(board.read_poison());
  board.set_state(RankState::kLeaving);
  EXPECT_EQ(board.state(0), RankState::kLeaving);
  OperationSignature signature = signature_of(1);
  signature.root = 0;
  board.enter(signature);
  EXPECT_EQ(board.signature(0, 1), signature);
  EXPECT_EQ(board.state(1), RankState::kAbsent);
  EXPECT_FALSE(board.signature(-1, 1));
}

TEST(Board, RemembersTheLastOperationsOfEveryRank) {
  const auto planes = join_threads(3);
  const auto boards = open_boards(planes);
  constexpr std::uint64_t kForgotten = 36, kLast = kForgotten + kRememberedOperations;
  for (std::uint64_t operation = 1; operation <= kLast; ++operation) {
    boards[2]->enter(signature_of(operation));
  }
  EXPECT_EQ(boards[0]->last_entered(2), kLast);
  EXPECT_FALSE(boards[0]->signature(2, kForgotten));
  for (std::uint64_t operation = kForgotten + 1; operation <= kLast; ++operation) {
    EXPECT_EQ(boards[0]->signature(2, operation), signature_of(operation));
  }
  EXPECT_FALSE(boards[0]->signature(2, kLast + 1));
  EXPECT_FALSE(boards[0]->signature(1, kLast));
}

TEST(Board, RemembersTheSizesOfBlocks) {
  const auto planes = join_threads(2);
  const auto boards = open_boards(planes);
  OperationSignature sized = signature_of(1);
  sized.collective = Collective::kReduceScatterV;
  sized.root = 0;
  sized.sizes = 0x7fffffff;  // as a root it would be out of range
  boards[1]->enter(sized);
  EXPECT_EQ(boards[0]->signature(1, 1), sized);
  OperationSignature others = sized;
  --others.sizes;
  EXPECT_NE(others.hash(), sized.hash());
}

// Calls run ahead of what they enqueue; who looks at the device says how far that is.
TEST(Board, OperationsOnADeviceEndAfterTheirCalls) {
  const auto planes = join_threads(2);
  const auto boards = open_boards(planes);
  OperationSignature signature = signature_of(1);
  signature.on_device = true;
  for (signature.operation = 1; signature.operation <= 3; ++signature.operation)
    boards[0]->enter(signature);
  signature.operation = 1;
  EXPECT_EQ(boards[1]->current(0), signature);
  boards[0]->note_device(2, 1, 5);
  signature.operation = 3;
  EXPECT_EQ(boards[1]->current(0), signature);
  EXPECT_EQ(boards[1]->waits_for(0), 1);
  boards[0]->leave(3);
  boards[0]->note_device(2, kNoRank, 0);  // late: what was left stays left
  EXPECT_FALSE(boards[1]->current(0));
  EXPECT_EQ(boards[1]->waits_for(0), kNoRank);
  signature.operation = 4;  // entered so often that the first is forgotten
  for (; signature.operation <= 100; ++signature.operation) boards[0]->enter(signature);
  EXPECT_EQ(boards[1]->current(0)->operation, 100u);
}

TEST(Board, SaysWhereARankRuns) {
  const auto planes = join_threads(2);
  const auto boards = open_boards(planes);
  EXPECT_EQ(boards[0]->cpu_of(1), -1);
  cpu_set_t one;
  CPU_ZERO(&one);
  const int here = ::sched_getcpu();
  CPU_SET(here, &one);
  std::thread([&] {
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    boards[1]->enter(signature_of(1));
  }).join();
  EXPECT_EQ(boards[0]->cpu_of(1), here);
  EXPECT_EQ(boards[0]->cpu_of(7), -1);
}

TEST(Board, ARecordIsReadWholeOrNotAtAll) {
  const auto planes = join_threads(2);
  const auto boards = open_boards(planes);
  std::atomic<bool> over{false};
  std::uint64_t whole = 0;
  run_threads(2, [&](Rank rank) {
    if (rank == 0) {
      for (std::uint64_t operation = 1; operation <= 20'000; ++operation) {
        boards[0]->enter(signature_of(operation));
      }
      over.store(true, std::memory_order_release);
    } else {
      while (!over.load(std::memory_order_acquire)) {
        const std::uint64_t operation = boards[1]->last_entered(0);
        const auto read = boards[1]->signature(0, operation);
        if (!read) continue;  // overwritten meanwhile
        ASSERT_EQ(*read, signature_of(operation));
        ++whole;
      }
    }
  });
  RecordProperty("whole_reads", static_cast<int>(whole));
  EXPECT_EQ(boards[1]->signature(0, 20'000), signature_of(20'000));
}

TEST(Board, TheFirstPoisonWins) {
  constexpr int kRanks = 8;
  const auto planes = join_threads(kRanks);
  const auto boards = open_boards(planes);
  std::atomic<int> winners{0};
  run_threads(kRanks, [&](Rank rank) {
    const bool won = boards[static_cast<std::size_t>(rank)]->poison(
        {.code = Code::kInvalidUsage,
         .culprit = (rank + 1) % kRanks,
         .reporter = kNoRank,
         .kind = Poison::Kind::kMismatch,
         .mine = signature_of(static_cast<std::uint64_t>(rank) + 1),
         .theirs = signature_of(static_cast<std::uint64_t>(rank) + 2)});
    winners += won ? 1 : 0;
  });
  EXPECT_EQ(winners, 1);
  for (const auto& board : boards) {
    ASSERT_TRUE(board->poisoned());
    const auto poison = board->read_poison();
    ASSERT_TRUE(poison);
    const Rank reporter = poison->reporter;
    ASSERT_GE(reporter, 0);
    EXPECT_EQ(poison->culprit, (reporter + 1) % kRanks);
    EXPECT_EQ(poison->code, Code::kInvalidUsage);
    EXPECT_EQ(poison->kind, Poison::Kind::kMismatch);
    EXPECT_EQ(poison->mine, signature_of(static_cast<std::uint64_t>(reporter) + 1));
    EXPECT_EQ(poison->theirs, signature_of(static_cast<std::uint64_t>(reporter) + 2));
    EXPECT_FALSE(board->poison({.culprit = 0}));
  }
}

// A peer may write anything anywhere; what is read back must still be in range.
TEST(Board, MemoryThatLiesHurtsNobody) {
  constexpr int kRanks = 3;
  const auto planes = join_threads(kRanks);
  const auto boards = open_boards(planes);
  const auto reply = planes[1]->call(0, RequestKind::kBoard, {}, patience());
  ASSERT_TRUE(reply) << reply.error().message;
  struct stat info {};
  ASSERT_EQ(::fstat(reply->fd.get(), &info), 0);
  ASSERT_EQ(static_cast<std::size_t>(info.st_size), control::board_bytes(kRanks));
  const unsigned seed = draw_seed();
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> lies(control::board_bytes(kRanks) / sizeof(std::uint64_t));
  for (int round = 0; round < 50; ++round) {
    for (std::uint64_t& lie : lies) lie = round == 0 ? ~std::uint64_t{0} : random() >> (round % 64);
    const std::size_t lie_bytes = lies.size() * sizeof(lies[0]);
    ASSERT_EQ(::pwrite(reply->fd.get(), lies.data(), lie_bytes, 0),
              static_cast<ssize_t>(lie_bytes));
    for (Rank rank = -1; rank <= kRanks; ++rank) {
      EXPECT_LE(static_cast<int>(boards[0]->state(rank)), static_cast<int>(RankState::kFailed));
      EXPECT_LT(boards[0]->waits_for(rank), kRanks);
      EXPECT_GE(boards[0]->waits_for(rank), kNoRank);
      const std::uint64_t version_of_lies = boards[0]->last_entered(rank);
      if (const auto signature = boards[0]->signature(rank, version_of_lies)) {
        EXPECT_LT(static_cast<int>(signature->type), kDataTypeCount);
      }
    }
    if (const auto poison = boards[0]->read_poison()) {
      EXPECT_LT(poison->culprit, kRanks);
      EXPECT_LT(poison->reporter, kRanks);
      EXPECT_FALSE(poison->mine.to_string().empty());
      EXPECT_GE(static_cast<int>(poison->kind), 1);
      EXPECT_LE(poison->kind, Poison::Kind::kCut);
      EXPECT_STRNE(describe(poison->code), "unknown result code");
    }
  }
}

TEST(Board, TheSegmentCannotBeShrunkAndHasNoName) {
  for (const auto kind :
       {SharedFileKind::kMemfd, SharedFileKind::kTmpFile, SharedFileKind::kShmOpen}) {
    constexpr std::size_t kBytes = control::board_bytes(2);
    const auto segment = make_shared_file("test", kBytes, kind);
    if (!segment) {
      std::printf("kind %d: %s\n", static_cast<int>(kind), segment.error().message.c_str());
      continue;
    }
    struct stat info {};
    ASSERT_EQ(::fstat(segment->get(), &info), 0);
    EXPECT_EQ(static_cast<std::size_t>(info.st_size), kBytes);
    EXPECT_EQ(info.st_nlink, 0u);
    if (kind == SharedFileKind::kMemfd) {
      EXPECT_NE(::ftruncate(segment->get(), 4096), 0);
      EXPECT_NE(::fcntl(segment->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);  // no more seals
    } else {
      EXPECT_EQ(info.st_mode & 0777, 0600u);
    }
    EXPECT_FALSE(control::BoardMemory::map(segment->get(), 1));  // of another job
    EXPECT_FALSE(control::BoardMemory::map(segment->get(), 8));
    const auto mapped = control::BoardMemory::map(segment->get(), 2);
    EXPECT_TRUE(mapped) << mapped.error().message;
  }
  EXPECT_TRUE(make_shared_file("test", 8192));
}

TEST(Board, OnlyItsSegmentIsMapped) {
  const auto refusal = [](int fd) {
    const auto mapped = control::BoardMemory::map(fd, 2);
    return mapped ? std::string("mapped") : mapped.error().message;
  };
  constexpr auto kBytes = static_cast<off_t>(control::board_bytes(2));
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (unsealed) {
    ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
    EXPECT_THAT(refusal(unsealed.get()), ::testing::HasSubstr("not sealed"));
    ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_THAT(refusal(unsealed.get()), ::testing::HasSubstr("not sealed"));
    ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
    EXPECT_EQ(refusal(unsealed.get()), "mapped");
  }
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_THAT(refusal(read_end.get()), ::testing::HasSubstr("not a shared file"));
  const UniqueFd named(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(named.get()), ::testing::HasSubstr("neither a shared file"));
  EXPECT_THAT(refusal(-1), ::testing::HasSubstr("cannot examine"));
}

TEST(OperationSignature, HashesEveryFieldAndSpeaksForPeople) {
  const OperationSignature base = signature_of(12);
  EXPECT_EQ(base.hash(), signature_of(12).hash());
  EXPECT_EQ(base.to_string(), "reduce #12 count 12000 bfloat16 avg root 1 plan fffffffffffffff3");
  std::vector<OperationSignature> others(7, base);
  others[0].operation = 13;
  others[1].collective = Collective::kAllReduce;
  others[2].type = DataType::kFloat32;
  others[3].op = ReduceOp::kSum;
  others[4].root = 0;
  others[5].count = 1;
  others[6].plan = 0;
  for (const OperationSignature& other : others) EXPECT_NE(other.hash(), base.hash());
  EXPECT_NE(OperationSignature{}.hash(), 0u);
}

}  // namespace
}  // namespace tutti
