// SPDX-License-Identifier: Apache-2.0
// Segments: what may be mapped and what not, memory used, nothing left behind, errors that help.
#include "transports/shm/segment.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

namespace tutti::shm {
namespace {

constexpr InboxLayout kLayout{.ranks = 3, .arena_bytes = 64 * 1024};

std::set<std::string> files_of(const char* folder) {
  std::set<std::string> names;
  DIR* dir = ::opendir(folder);
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strncmp(entry->d_name, "tutti", 5) == 0) names.insert(entry->d_name);
  }
  ::closedir(dir);
  return names;
}

class SegmentBacking : public testing::TestWithParam<Backing> {};

TEST_P(SegmentBacking, PeersMapWhatTheOwnerMade) {
  auto own = Segment::create(kLayout, 1, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  auto peer = Segment::map((*own)->fd()->get(), kLayout, 1);
  ASSERT_TRUE(peer) << peer.error().message;
  EXPECT_NE((*own)->arena(), (*peer)->arena());
  (*peer)->arena()[kLayout.arena_bytes - 1] = std::byte{42};
  EXPECT_EQ((*own)->arena()[kLayout.arena_bytes - 1], std::byte{42});
  (*peer)->pair(2).words[7].consumed.store(9, std::memory_order_relaxed);
  EXPECT_EQ((*own)->pair(2).words[7].consumed.load(std::memory_order_relaxed), 9U);
  // The peer's mapping stands on its own.
  own->reset();
  EXPECT_EQ((*peer)->arena()[kLayout.arena_bytes - 1], std::byte{42});
}

TEST_P(SegmentBacking, FreshMemoryIsZero) {
  auto own = Segment::create(kLayout, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ((*own)->header().done.load(std::memory_order_relaxed), 0U);
  for (Rank source = 0; source < kLayout.ranks; ++source) {
    for (const Cell& cell : (*own)->pair(source).cells) {
      EXPECT_EQ(cell.epoch.load(std::memory_order_relaxed), 0U);
    }
  }
}

TEST_P(SegmentBacking, PartsDoNotOverlapAndLieWhereTheyShould) {
  auto own = Segment::create(kLayout, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  const Segment& segment = **own;
  const auto* base = reinterpret_cast<const std::byte*>(&segment.header());
  EXPECT_EQ(reinterpret_cast<const std::byte*>(&segment.pair(0)), base + kInboxPageBytes);
  EXPECT_LE(reinterpret_cast<const std::byte*>(&segment.pair(2) + 1), segment.arena());
  EXPECT_EQ((segment.arena() - base) % static_cast<std::ptrdiff_t>(kInboxPageBytes), 0);
  EXPECT_EQ(segment.arena() + kLayout.arena_bytes, base + kLayout.total_bytes());
}

TEST_P(SegmentBacking, LeavesNoNameBehind) {
  const auto before = files_of("/dev/shm");
  auto own = Segment::create(kLayout, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(files_of("/dev/shm"), before);
}

TEST_P(SegmentBacking, AnotherLayoutOrRankIsRefused) {
  auto own = Segment::create(kLayout, 1, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  const int fd = (*own)->fd()->get();
  const auto larger = Segment::map(fd, {3, 128 * 1024}, 1);
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().code, Code::kInvalidUsage);
  EXPECT_EQ(larger.error().culprit, 1);
  const auto other_rank = Segment::map(fd, kLayout, 2);
  ASSERT_FALSE(other_rank);
  EXPECT_EQ(other_rank.error().code, Code::kRemoteError);
  // Same total size, other meaning: only the header tells.
  InboxLayout shifted{.ranks = 12, .arena_bytes = 0};
  shifted.arena_bytes = kLayout.total_bytes() - shifted.total_bytes();
  ASSERT_EQ(InboxLayout(shifted).total_bytes(), kLayout.total_bytes());
  const auto other_ranks = Segment::map(fd, shifted, 1);
  ASSERT_FALSE(other_ranks);
  EXPECT_EQ(other_ranks.error().code, Code::kInvalidUsage);
}

INSTANTIATE_TEST_SUITE_P(Shm, SegmentBacking, testing::Values(Backing::kAuto, Backing::kFile),
                         [](const auto& chosen) {
                           return chosen.param == Backing::kAuto ? "auto" : "file";
                         });

TEST(Segment, SealsHoldTheSizeForGood) {
  auto own = Segment::create(kLayout, 0, Backing::kAuto);
  ASSERT_TRUE(own) << own.error().message;
  if (!(*own)->sealed()) GTEST_SKIP() << "memfd is refused here";
  const int fd = (*own)->fd()->get();
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Segment, MemoryThatCouldBeSealedAndIsNotIsRefused) {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) GTEST_SKIP() << "memfd is refused here";
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(kLayout.total_bytes())), 0);
  const auto mapped = Segment::map(fd.get(), kLayout, 0);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, Code::kRemoteError);
  EXPECT_NE(mapped.error().message.find("not sealed"), std::string::npos);
}

TEST(Segment, WhatIsNoSegmentIsRefused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_FALSE(Segment::map(read_end.get(), kLayout, 0));
  const UniqueFd named(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(Segment::map(named.get(), kLayout, 0));
  EXPECT_FALSE(Segment::map(-1, kLayout, 0));
}

TEST(Segment, UntouchedPagesCostNothing) {
  constexpr InboxLayout kLarge{.ranks = 64, .arena_bytes = std::uint64_t{256} << 20};
  auto own = Segment::create(kLarge, 0, Backing::kAuto);
  ASSERT_TRUE(own) << own.error().message;
  if (!(*own)->sealed()) GTEST_SKIP() << "memfd is refused here; the fallback reserves its pages";
  (*own)->arena()[5 * kInboxPageBytes] = std::byte{1};
  struct stat info {};
  ASSERT_EQ(::fstat((*own)->fd()->get(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 4 * ::sysconf(_SC_PAGESIZE));
}

TEST(Segment, RegistryKnowsLiveSegmentsOnly) {
  auto own = Segment::create(kLayout, 0, Backing::kAuto);
  ASSERT_TRUE(own) << own.error().message;
  const std::uint64_t key = (*own)->key();
  EXPECT_EQ(Segment::find(key), *own);
  EXPECT_EQ(Segment::find(key + 1000), nullptr);
  EXPECT_EQ(Segment::find(0), nullptr);
  own->reset();
  EXPECT_EQ(Segment::find(key), nullptr);
}

// In a child, because it takes this process's last descriptors away.
TEST(Segment, WithoutDescriptorsTheErrorSaysWhatToDo) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = 3;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto own = Segment::create(kLayout, 0, Backing::kAuto);
    const bool helps = !own && own.error().code == Code::kSystemError &&
                       own.error().message.find("ulimit -n") != std::string::npos;
    std::_Exit(helps ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Segment, WithoutAddressSpaceTheErrorSaysWhatToDo) {
  constexpr InboxLayout kHuge{.ranks = 2, .arena_bytes = kMaxArenaBytes * 512};
  const auto own = Segment::create(kHuge, 0, Backing::kAuto);
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, Code::kSystemError);
  EXPECT_NE(own.error().message.find("lower TUTTI_ARENA_BYTES"), std::string::npos)
      << own.error().message;
}

}  // namespace
}  // namespace tutti::shm
