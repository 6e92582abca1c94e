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
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace tutti::shm {
namespace {

constexpr InboxLayout kLayout{.ranks = 3, .arena_bytes = 64 * 1024};
constexpr std::int32_t kPlaces = 2;

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

// What a peer gets over its socket.
Result<SegmentFile> map_copy(const SegmentFile& file, const InboxLayout& layout = kLayout,
                             std::int32_t places = kPlaces) {
  return SegmentFile::map(UniqueFd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0)), layout, places, 1);
}

TEST_P(SegmentBacking, AProcessMapsAFileOnce) {
  auto own = SegmentFile::create(kLayout, kPlaces, 1, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  auto peer = map_copy(*own);
  ASSERT_TRUE(peer) << peer.error().message;
  EXPECT_EQ(own->at(0).base(), peer->at(0).base());
  std::optional<Segment> kept = peer->at(1);
  kept->arena()[kLayout.arena_bytes - 1] = std::byte{42};
  // A segment keeps the file mapped.
  peer = tl::unexpected(Error{});
  own = tl::unexpected(Error{});
  EXPECT_EQ(kept->arena()[kLayout.arena_bytes - 1], std::byte{42});
}

TEST_P(SegmentBacking, PeersMapWhatTheFirstRankMade) {
  auto own = SegmentFile::create(kLayout, kPlaces, 1, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  // The parent of this child has mapped the file; the child maps it anew, as another process would.
  const std::size_t last = kLayout.arena_bytes - 1;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    UniqueFd fd(::fcntl(own->fd(), F_DUPFD_CLOEXEC, 0));
    own = tl::unexpected(Error{});
    auto peer = SegmentFile::map(std::move(fd), kLayout, kPlaces, 1);
    if (!peer) std::_Exit(1);
    peer->at(1).arena()[last] = std::byte{42};
    peer->at(1).pair(2).words[7].consumed.store(9, std::memory_order_relaxed);
    std::_Exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(own->at(1).arena()[last], std::byte{42});
  EXPECT_EQ(own->at(1).pair(2).words[7].consumed.load(std::memory_order_relaxed), 9U);
  EXPECT_EQ(own->at(0).arena()[last], std::byte{0});
}

TEST_P(SegmentBacking, FreshMemoryIsZero) {
  auto own = SegmentFile::create(kLayout, kPlaces, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  for (std::int32_t place = 0; place < kPlaces; ++place) {
    EXPECT_EQ(own->at(place).header().done.load(std::memory_order_relaxed), 0U);
    for (Rank source = 0; source < kLayout.ranks; ++source) {
      for (const Cell& cell : own->at(place).pair(source).cells) {
        EXPECT_EQ(cell.epoch.load(std::memory_order_relaxed), 0U);
      }
    }
  }
}

TEST_P(SegmentBacking, PartsDoNotOverlapAndLieWhereTheyShould) {
  auto own = SegmentFile::create(kLayout, kPlaces, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  const Segment segment = own->at(0);
  const std::byte* base = segment.base();
  EXPECT_EQ(reinterpret_cast<const std::byte*>(&segment.header()), base);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(&segment.pair(0)), base + kInboxPageBytes);
  EXPECT_LE(reinterpret_cast<const std::byte*>(&segment.pair(2) + 1), segment.arena());
  EXPECT_EQ((segment.arena() - base) % static_cast<std::ptrdiff_t>(kInboxPageBytes), 0);
  EXPECT_EQ(segment.arena() + kLayout.arena_bytes, base + kLayout.total_bytes());
  EXPECT_GE(own->at(1).base(), base + kLayout.total_bytes());
}

TEST_P(SegmentBacking, LeavesNoNameBehind) {
  const auto before = files_of("/dev/shm");
  auto own = SegmentFile::create(kLayout, kPlaces, 0, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(files_of("/dev/shm"), before);
}

TEST_P(SegmentBacking, AnotherLayoutIsRefused) {
  auto own = SegmentFile::create(kLayout, kPlaces, 1, GetParam());
  ASSERT_TRUE(own) << own.error().message;
  const auto larger = map_copy(*own, {3, 128 * 1024});
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().code, Code::kInvalidUsage);
  EXPECT_EQ(larger.error().culprit, 1);
  EXPECT_FALSE(map_copy(*own, kLayout, kPlaces + 1));
  // Same total size, other meaning: only the header tells.
  InboxLayout shifted{.ranks = 12, .arena_bytes = 0};
  shifted.arena_bytes = kLayout.total_bytes() - shifted.total_bytes();
  ASSERT_EQ(InboxLayout(shifted).total_bytes(), kLayout.total_bytes());
  const auto other_ranks = map_copy(*own, shifted);
  ASSERT_FALSE(other_ranks);
  EXPECT_EQ(other_ranks.error().code, Code::kInvalidUsage);
  // An older library's file has another size, too.
  const std::uint32_t version = 2;
  ASSERT_EQ(::pwrite(own->fd(), &version, sizeof version, offsetof(FileHeader, version)),
            ssize_t{sizeof version});
  const auto older = map_copy(*own, {3, 128 * 1024});
  ASSERT_FALSE(older);
  EXPECT_NE(older.error().message.find("run the same library"), std::string::npos);
  const std::uint64_t nothing = 0;
  ASSERT_EQ(::pwrite(own->fd(), &nothing, sizeof nothing, 0), ssize_t{sizeof nothing});
  const auto no_header = map_copy(*own);
  ASSERT_FALSE(no_header);
  EXPECT_EQ(no_header.error().code, Code::kRemoteError);
}

INSTANTIATE_TEST_SUITE_P(Shm, SegmentBacking, testing::Values(Backing::kAuto, Backing::kFile),
                         [](const auto& chosen) {
                           return chosen.param == Backing::kAuto ? "auto" : "file";
                         });

TEST(Segment, SealsHoldTheSizeForGood) {
  auto own = SegmentFile::create(kLayout, kPlaces, 0, Backing::kAuto);
  ASSERT_TRUE(own) << own.error().message;
  if (!own->sealed()) GTEST_SKIP() << "memfd is refused here";
  const int fd = own->fd();
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Segment, MemoryThatCouldBeSealedAndIsNotIsRefused) {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) GTEST_SKIP() << "memfd is refused here";
  const auto sealed = SegmentFile::create(kLayout, kPlaces, 0, Backing::kAuto);
  ASSERT_TRUE(sealed) << sealed.error().message;
  struct stat info {};
  ASSERT_EQ(::fstat(sealed->fd(), &info), 0);
  ASSERT_EQ(::ftruncate(fd.get(), info.st_size), 0);
  const auto mapped = SegmentFile::map(std::move(fd), kLayout, kPlaces, 0);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, Code::kRemoteError);
  EXPECT_NE(mapped.error().message.find("not sealed"), std::string::npos);
}

TEST(Segment, WhatIsNoSegmentIsRefused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_FALSE(SegmentFile::map(std::move(read_end), kLayout, kPlaces, 0));
  UniqueFd named(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(SegmentFile::map(std::move(named), kLayout, kPlaces, 0));
  EXPECT_FALSE(SegmentFile::map(UniqueFd(), kLayout, kPlaces, 0));
}

TEST(Segment, UntouchedPagesCostNothing) {
  constexpr InboxLayout kLarge{.ranks = 64, .arena_bytes = std::uint64_t{256} << 20};
  auto own = SegmentFile::create(kLarge, kPlaces, 0, Backing::kAuto);
  ASSERT_TRUE(own) << own.error().message;
  if (!own->sealed()) GTEST_SKIP() << "memfd is refused here; the fallback reserves its pages";
  own->at(1).arena()[5 * kInboxPageBytes] = std::byte{1};
  struct stat info {};
  ASSERT_EQ(::fstat(own->fd(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 4 * ::sysconf(_SC_PAGESIZE));
}

// In a child, because it takes this process's last descriptors away.
TEST(Segment, WithoutDescriptorsTheErrorSaysWhatToDo) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = 3;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto own = SegmentFile::create(kLayout, kPlaces, 0, Backing::kAuto);
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
  const auto own = SegmentFile::create(kHuge, kPlaces, 0, Backing::kAuto);
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, Code::kSystemError);
  EXPECT_NE(own.error().message.find("lower TUTTI_ARENA_BYTES"), std::string::npos)
      << own.error().message;
}

}  // namespace
}  // namespace tutti::shm
