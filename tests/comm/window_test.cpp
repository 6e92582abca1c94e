// SPDX-License-Identifier: Apache-2.0
// Windows through the C API: ranks as processes that may not read each other otherwise
// (TUTTI_CMA=off), as threads, and two in each process; wrong and broken registrations; what is
// left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/collective.hpp"
#include "forked_job.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using testing::ForkedRank;
using ::testing::HasSubstr;

constexpr const char* kDirect = "two_shot:access=remote";
constexpr const char* kStore = "two_shot:access=store";
constexpr std::size_t kMost = 400'001;  // elements of a buffer
constexpr std::size_t kSizes[] = {1, 3, 1000, 16'384, 32'769, 100'003, kMost};

// Memory of tuttiMemAlloc for `parts` buffers of kMost elements, page-aligned each.
class Buffers {
 public:
  static constexpr std::size_t kPartBytes = (kMost * sizeof(std::int32_t) + 4095) / 4096 * 4096;
  explicit Buffers(std::size_t parts = 2) : bytes_(parts * kPartBytes) {
    EXPECT_EQ(tuttiMemAlloc(&memory_, bytes_), tuttiSuccess) << tuttiGetLastError(nullptr);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() { EXPECT_EQ(tuttiMemFree(memory_), tuttiSuccess) << tuttiGetLastError(nullptr); }
  [[nodiscard]] std::int32_t* part(std::size_t i) const {
    return reinterpret_cast<std::int32_t*>(static_cast<char*>(memory_) + i * kPartBytes);
  }
  [[nodiscard]] void* memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

void fill(std::int32_t* buffer, std::size_t count, int rank) {
  for (std::size_t i = 0; i < count; ++i)
    buffer[i] = rank * 1000 + static_cast<std::int32_t>(i % 997);
}

// The first wrong element of a sum over fill(), or "".
std::string check(const std::int32_t* buffer, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t want = 1000 * (ranks * (ranks - 1) / 2) + ranks * static_cast<int>(i % 997);
    if (buffer[i] != want)
      return "index " + std::to_string(i) + " got " + std::to_string(buffer[i]) + " want " +
             std::to_string(want);
  }
  return {};
}

std::string sum(tuttiComm_t comm, int rank, int ranks, std::int32_t* in, std::int32_t* out,
                std::size_t count) {
  fill(in, count, rank);
  const auto result = tuttiAllReduce(in, out, count, tuttiInt32, tuttiSum, comm, nullptr);
  return result == tuttiSuccess ? check(out, count, ranks) : tuttiGetLastError(comm);
}

std::string last_protocol(tuttiComm_t comm) {
  tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
  return info.lastProtocol;
}

tuttiWindow_t register_all(tuttiComm_t comm, const Buffers& buffers,
                           int flags = TUTTI_WIN_COLL_SYMMETRIC) {
  tuttiWindow_t window = nullptr;
  EXPECT_EQ(tuttiCommWindowRegister(comm, buffers.memory(), buffers.bytes(), &window, flags),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  EXPECT_NE(window, nullptr);
  return window;
}

// Every rank's block at every rank, through the windows, in place on some ranks.
std::string gather(tuttiComm_t comm, int rank, int ranks, std::int32_t* in, std::int32_t* out,
                   std::size_t count) {
  const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;
  std::int32_t* const own = in_place ? out + static_cast<std::size_t>(rank) * count : in;
  fill(own, count, rank);
  if (tuttiAllGather(own, out, count, tuttiInt32, comm, nullptr) != tuttiSuccess)
    return tuttiGetLastError(comm);
  std::vector<std::int32_t> want(count);
  for (int r = 0; r < ranks; ++r) {
    fill(want.data(), count, r);
    if (!std::equal(want.begin(), want.end(), out + static_cast<std::size_t>(r) * count))
      return "the block of rank " + std::to_string(r) + " is wrong";
  }
  return {};
}

// Each rank's block for each other one, through the windows, in place on some ranks.
std::string exchange(tuttiComm_t comm, int rank, int ranks, std::int32_t* in, std::int32_t* out,
                     std::size_t count) {
  const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;
  const auto number = [&](int from, int to) { return from * ranks + to; };
  for (int to = 0; to < ranks; ++to)
    fill(in + static_cast<std::size_t>(to) * count, count, number(rank, to));
  std::int32_t* const received = in_place ? in : out;
  if (tuttiAlltoAll(in, received, count, tuttiInt32, comm, nullptr) != tuttiSuccess)
    return tuttiGetLastError(comm);
  std::vector<std::int32_t> want(count);
  for (int from = 0; from < ranks; ++from) {
    fill(want.data(), count, number(from, rank));
    if (!std::equal(want.begin(), want.end(), received + static_cast<std::size_t>(from) * count))
      return "the block from rank " + std::to_string(from) + " is wrong";
  }
  return {};
}

struct Rooted {
  Collective collective;
  const char* plan;
};
constexpr Rooted kRooted[] = {{Collective::kBroadcast, "broadcast:one_shot:access=remote"},
                              {Collective::kScatter, "scatter:one_shot:access=remote"},
                              {Collective::kGather, "gather:one_shot:access=store"},
                              {Collective::kReduce, "reduce:two_shot:access=store"}};

// Of the whole data of fill() by rank `from`, or of each rank's block.
tuttiResult_t call_rooted(tuttiComm_t comm, Collective collective, const std::int32_t* in,
                          std::int32_t* out, std::size_t count, int root) {
  switch (collective) {
    case Collective::kBroadcast:
      return tuttiBroadcast(in, out, count, tuttiInt32, root, comm, nullptr);
    case Collective::kScatter:
      return tuttiScatter(in, out, count, tuttiInt32, root, comm, nullptr);
    case Collective::kGather:
      return tuttiGather(in, out, count, tuttiInt32, root, comm, nullptr);
    default:
      return tuttiReduce(in, out, count, tuttiInt32, tuttiSum, root, comm, nullptr);
  }
}

// Returns what is wrong with rank's output of a rooted call in windows, or "". A root of an even
// number calls in place.
std::string rooted(tuttiComm_t comm, int rank, int ranks, Collective collective, std::int32_t* in,
                   std::int32_t* out, std::size_t count, int root) {
  const bool blocks = collective == Collective::kScatter || collective == Collective::kGather;
  if (blocks) count /= static_cast<std::size_t>(ranks);
  const auto block = [&](std::int32_t* data, int of) {
    return data + static_cast<std::size_t>(of) * count;
  };
  const bool in_place = rank == root && root % 2 == 0;
  if (in_place) {
    out = collective == Collective::kScatter ? block(in, root) : in;
    in = collective == Collective::kGather ? block(out, root) : in;
  }
  if (collective == Collective::kScatter)
    for (int r = 0; rank == root && r < ranks; ++r) fill(block(in, r), count, r);
  else
    fill(in, count, rank);
  if (call_rooted(comm, collective, in, out, count, root) != tuttiSuccess)
    return tuttiGetLastError(comm);
  if (collective == Collective::kReduce) return rank == root ? check(out, count, ranks) : "";
  std::vector<std::int32_t> want(count);
  for (int r = 0; r < (collective == Collective::kGather ? ranks : 1); ++r) {
    if (collective == Collective::kGather && rank != root) break;
    fill(want.data(), count,
         collective == Collective::kGather      ? r
         : collective == Collective::kBroadcast ? root
                                                : rank);
    if (!std::equal(want.begin(), want.end(), block(out, r)))
      return "the block of rank " + std::to_string(r) + " is wrong";
  }
  return {};
}

void run_rooted(tuttiComm_t comm, int rank, int ranks, const Buffers& buffers) {
  for (const auto& [collective, plan] : kRooted) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan), tuttiSuccess) << tuttiGetLastError(comm);
    for (const std::size_t count : kSizes)
      for (const int root : {0, ranks - 1}) {
        const auto in = static_cast<std::size_t>(rank) % 2;
        ASSERT_EQ(
            rooted(comm, rank, ranks, collective, buffers.part(in), buffers.part(2), count, root),
            "")
            << plan << " root " << root << " count " << count;
        EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local") << plan;
      }
  }
}

// In place on some ranks, at offsets that differ between ranks.
void run_in_windows(tuttiComm_t comm, int rank, int ranks,
                    std::span<const std::size_t> sizes = kSizes) {
  const Buffers buffers(3);
  const tuttiWindow_t window = register_all(comm, buffers);
  for (const char* name : {kDirect, kStore}) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, name), tuttiSuccess) << tuttiGetLastError(comm);
    for (const std::size_t count : sizes) {
      std::int32_t* const in = buffers.part(static_cast<std::size_t>(rank) % 2);
      const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;
      ASSERT_EQ(sum(comm, rank, ranks, in, in_place ? in : buffers.part(2), count), "") << count;
      EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local");
      const std::size_t block = count / static_cast<std::size_t>(ranks);
      ASSERT_EQ(gather(comm, rank, ranks, in, buffers.part(2), block), "") << name << " " << block;
    }
  }
  ASSERT_EQ(tuttiCommSetAlgorithm(comm, "alltoall:two_shot:access=remote"), tuttiSuccess)
      << tuttiGetLastError(comm);
  for (const std::size_t count : sizes) {
    std::int32_t* const in = buffers.part(static_cast<std::size_t>(rank) % 2);
    const std::size_t block = count / static_cast<std::size_t>(ranks);
    ASSERT_EQ(exchange(comm, rank, ranks, in, buffers.part(2), block), "") << block;
    if (block > 0) {
      EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local") << block;
    }
  }
  ASSERT_EQ(tuttiCommSetAlgorithm(comm, "auto"), tuttiSuccess);
  EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess) << tuttiGetLastError(comm);
}

void run_rooted_in_windows(tuttiComm_t comm, int rank, int ranks) {
  const Buffers buffers(3);
  const tuttiWindow_t window = register_all(comm, buffers);
  run_rooted(comm, rank, ranks, buffers);
  EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess) << tuttiGetLastError(comm);
}

// None may read another by the kernel. Set before the children read it.
class WindowEnvironment : public ::testing::Environment {
 public:
  void SetUp() override { ::setenv("TUTTI_CMA", "off", 1); }
};
[[maybe_unused]] const auto* const kNoAttach =
    ::testing::AddGlobalTestEnvironment(new WindowEnvironment);

class Window : public ::testing::TestWithParam<int> {};

TEST_P(Window, AmongProcesses) {
  run_processes(GetParam(), [](tuttiComm_t& comm, const ForkedRank& self) {
    run_in_windows(comm, self.rank, self.ranks);
  });
}

TEST_P(Window, AmongThreads) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) { run_in_windows(comm, rank, ranks); });
}

TEST_P(Window, RootedAmongProcesses) {
  run_processes(GetParam(), [](tuttiComm_t& comm, const ForkedRank& self) {
    run_rooted_in_windows(comm, self.rank, self.ranks);
  });
}

TEST_P(Window, RootedAmongThreads) {
  const int ranks = GetParam();
  run_job(ranks, {},
          [&](int rank, tuttiComm_t& comm) { run_rooted_in_windows(comm, rank, ranks); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Window, ::testing::Values(1, 2, 3, 5, 8));

// One thread drives two ranks of each process, so it registers in a group: two windows a rank.
TEST(WindowGroups, OfTwoRanksInEachProcess) {
  const auto results = testing::run_forked(
      2,
      [](const ForkedRank& self) {
        const std::array<tuttiComm_t, 2> comms = join_two(self);
        const std::array<Buffers, 4> buffers{Buffers(1), Buffers(1), Buffers(1), Buffers(1)};
        EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
        for (std::size_t i = 0; i < 4; ++i) register_all(comms[i % 2], buffers[i]);
        EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
        EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
        for (std::size_t i = 0; i < 4; ++i) {
          EXPECT_EQ(tuttiCommSetAlgorithm(comms[i % 2], kDirect), tuttiSuccess);
          fill(buffers[i].part(0), kMost, 2 * self.rank + static_cast<int>(i % 2));
          EXPECT_EQ(tuttiAllReduce(buffers[i].part(0), buffers[i].part(0), kMost, tuttiInt32,
                                   tuttiSum, comms[i % 2], nullptr),
                    tuttiSuccess);
        }
        EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comms[0]);
        for (const Buffers& buffer : buffers) EXPECT_EQ(check(buffer.part(0), kMost, 4), "");
        for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

// Two windows at one address: the end of the smaller leaves the larger whole.
TEST(Windows, MayLieInEachOther) {
  run_processes(2, [](tuttiComm_t& comm, const ForkedRank& self) {
    const Buffers buffers;
    const tuttiWindow_t large = register_all(comm, buffers);
    tuttiWindow_t small = nullptr;
    ASSERT_EQ(
        tuttiCommWindowRegister(comm, buffers.memory(), 4096, &small, TUTTI_WIN_COLL_SYMMETRIC),
        tuttiSuccess);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, small), tuttiSuccess);
    EXPECT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiSuccess);
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), kMost), "");
    EXPECT_EQ(tuttiCommWindowDeregister(comm, large), tuttiSuccess);
  });
}

TEST(Windows, AreWhatAutoChoosesByPrice) {
  run_processes(2, [](tuttiComm_t& comm, const ForkedRank& self) {
    const Buffers buffers;
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), kMost), "");
    EXPECT_NE(last_protocol(comm), "direct") << "not registered";
    register_all(comm, buffers, TUTTI_WIN_DEFAULT);
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), kMost), "");
    EXPECT_NE(last_protocol(comm), "direct") << "not symmetric";
    const tuttiWindow_t window = register_all(comm, buffers);
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), kMost), "");
    EXPECT_EQ(last_protocol(comm), "direct");
    EXPECT_EQ(check_sum(comm, self.rank, 2, kMost, false), "");
    EXPECT_NE(last_protocol(comm), "direct") << "buffers elsewhere";
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), kMost), "");
    EXPECT_NE(last_protocol(comm), "direct") << "registered no more";
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);  // with a window left
    comm = nullptr;
  });
}

TEST(Windows, AForcedDirectPlanRunsInThemOnly) {
  run_processes(2, [](tuttiComm_t& comm, const ForkedRank& self) {
    EXPECT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiNotSupported);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("tuttiCommWindowRegister"));
    const Buffers buffers;
    register_all(comm, buffers);
    EXPECT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiSuccess);
    EXPECT_THAT(check_sum(comm, self.rank, 2, 100, false), HasSubstr("TUTTI_CMA=off"));
    EXPECT_EQ(sum(comm, self.rank, 2, buffers.part(0), buffers.part(1), 100), "");
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    comm = nullptr;
  });
}

TEST(Windows, AnyRanksBadPartIsRefusedOnAll) {
  run_processes(3, [](tuttiComm_t& comm, const ForkedRank& self) {
    const Buffers buffers;
    std::vector<char> plain(3 * 4096);
    void* const aligned =
        plain.data() + 4096 - reinterpret_cast<std::uintptr_t>(plain.data()) % 4096;
    char* const memory = static_cast<char*>(buffers.memory());
    struct Case {
      void* memory;
      std::size_t bytes;
      int flags;
      const char* why;
    };
    const Case cases[] = {
        {aligned, 4096, 1, "do not all come from one tuttiMemAlloc"},
        {nullptr, 4096, 1, "do not all come from one tuttiMemAlloc"},
        {memory + 4096, buffers.bytes(), 1, "do not all come from one tuttiMemAlloc"},
        {memory + 8, 4096, 1, "not aligned to 4096"},
        {memory, 0, 1, "0 bytes"},
        {memory, 4096, 0, "different flags"},
    };
    for (const Case& bad : cases) {
      const Case own = self.rank == 1 ? bad : Case{memory, buffers.bytes(), 1, ""};
      tuttiWindow_t window = reinterpret_cast<tuttiWindow_t>(&window);
      const auto result = tuttiCommWindowRegister(comm, own.memory, own.bytes, &window, own.flags);
      EXPECT_EQ(window, nullptr);
      const bool flags = bad.flags == 0;
      EXPECT_EQ(result, self.rank == 1 && !flags ? tuttiInvalidArgument : tuttiInvalidUsage);
      EXPECT_THAT(tuttiGetLastError(comm),
                  HasSubstr(self.rank == 1 || flags ? bad.why : "rank 1 (pid"));
    }
    tuttiWindow_t window = nullptr;
    EXPECT_EQ(tuttiCommWindowRegister(comm, memory, 4096, &window, 7), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("winFlags is 7"));
    EXPECT_EQ(tuttiCommWindowRegister(comm, memory, 4096, nullptr, 1), tuttiInvalidArgument);
    run_in_windows(comm, self.rank, 3);  // nothing was lost
  });
}

TEST(Windows, ACallThatIsInThemOnOneRankOnlyEndsOnAll) {
  run_processes(3, [](tuttiComm_t& comm, const ForkedRank& self) {
    const Buffers buffers;
    register_all(comm, buffers);
    std::vector<std::int32_t> elsewhere(kMost);
    std::int32_t* const out = self.rank == 2 ? elsewhere.data() : buffers.part(1);
    EXPECT_EQ(tuttiAllReduce(buffers.part(0), out, kMost, tuttiInt32, tuttiSum, comm, nullptr),
              tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("calls do not match"));
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("in windows"));
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    comm = nullptr;
  });
}

TEST(Windows, KeepTheirMemoryAndKnowTheirOwn) {
  run_processes(2, [](tuttiComm_t& comm, const ForkedRank& self) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 100), tuttiSuccess);
    tuttiWindow_t window = nullptr;
    ASSERT_EQ(tuttiCommWindowRegister(comm, memory, 100, &window, TUTTI_WIN_COLL_SYMMETRIC),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    EXPECT_EQ(tuttiMemFree(memory), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("tuttiCommWindowDeregister first"));
    EXPECT_EQ(tuttiCommWindowDeregister(comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, reinterpret_cast<tuttiWindow_t>(memory)),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiInvalidArgument);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
    EXPECT_EQ(check_sum(comm, self.rank, 2, 1000, false), "");
  });
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd"), end;
  return static_cast<std::size_t>(std::distance(files, end));
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("tutti-memory") != std::string::npos;
  return count;
}

TEST(Registrations, WantMemoryAndKnowTheirOwn) {
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  std::array<float, 100> memory{};
  void* handle = nullptr;
  EXPECT_EQ(tuttiCommRegister(comm, nullptr, 4, &handle), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommRegister(comm, memory.data(), SIZE_MAX, &handle), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommRegister(comm, memory.data(), 0, &handle), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("tuttiCommRegister: there is no memory"));
  EXPECT_EQ(tuttiCommRegister(comm, memory.data(), 4, nullptr), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommDeregister(comm, nullptr), tuttiInvalidArgument);
  void* handles[2] = {};
  for (void*& each : handles)
    ASSERT_EQ(tuttiCommRegister(comm, memory.data(), sizeof memory, &each), tuttiSuccess);
  EXPECT_NE(handles[0], handles[1]);
  EXPECT_EQ(tuttiCommDeregister(comm, handles[0]), tuttiSuccess);
  EXPECT_EQ(tuttiCommDeregister(comm, handles[0]), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);  // with the other
}

TEST(Windows, LeaveNothingBehind) {
  run_processes(3, [](tuttiComm_t& comm, const ForkedRank& self) {
    // Each round makes and leaves what a window and its calls need, whatever their sizes.
    constexpr std::size_t kRounds = 20, kCounts[] = {3, 32'769};
    run_in_windows(comm, self.rank, 3);  // what is made once is made
    const std::size_t files = open_files();
    for (std::size_t round = 0; round < kRounds; ++round)
      run_in_windows(comm, self.rank, 3, kCounts);
    EXPECT_LT(open_files(), files + kRounds);  // connections come and go
    EXPECT_EQ(mappings(), 0u);
  });
}

TEST(Windows, ARankThatDiesInsteadIsNamed) {
  run_processes(3,
                [](tuttiComm_t& comm, const ForkedRank& self) {
                  if (self.rank == 2) ::raise(SIGKILL);
                  const Buffers buffers;
                  tuttiWindow_t window = nullptr;
                  EXPECT_EQ(tuttiCommWindowRegister(comm, buffers.memory(), 4096, &window, 1),
                            tuttiRemoteError);
                  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
                  EXPECT_EQ(window, nullptr);
                },
                {2});
}

// The buffers of a rank that was killed between windowed calls, or in the middle of one; of a
// rooted one the root is rank 1, or rank 0. The ranks that survive exchange blocks in place.
void die_in_windows(const char* name, Collective collective = Collective::kAllReduce,
                    int root = 0) {
  const Meeting summed;
  run_processes(3,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  const Buffers buffers;
                  register_all(comm, buffers);
                  EXPECT_EQ(tuttiCommSetAlgorithm(comm, name), tuttiSuccess);
                  const auto call = [&] {
                    std::int32_t *const in = buffers.part(0), *const out = buffers.part(1);
                    if (collective == Collective::kAllReduce)
                      return sum(comm, self.rank, 3, in, out, kMost);
                    constexpr std::size_t kBlock = kMost / 3 - 1;
                    static_assert(kBlock % 2 == 0);
                    if (collective == Collective::kAllToAll)
                      return exchange(comm, self.rank, 3, in, out, kBlock);
                    return rooted(comm, self.rank, 3, collective, in, out, kMost, root);
                  };
                  EXPECT_EQ(call(), "");
                  ASSERT_TRUE(summed.wait_for(3));
                  std::atomic<int> calls{0};
                  std::jthread killer([&] {
                    if (self.rank != 1) return;
                    calls.wait(0);
                    ::raise(SIGKILL);
                  });
                  std::string error;
                  while (error.empty()) {
                    calls = 1;
                    calls.notify_all();
                    error = call();
                  }
                  EXPECT_THAT(error, HasSubstr("rank 1 (pid"));
                  EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
                  comm = nullptr;
                },
                {1});
}

TEST(Windows, ARankThatDiesInACallIsNamed) { die_in_windows(kDirect); }
TEST(Windows, ARankThatDiesWhileItStoresIsNamed) { die_in_windows(kStore); }
// As the root, and as one of the others.
TEST(Windows, ARankThatDiesInARootedCallIsNamed) {
  for (const auto& [collective, plan] : kRooted)
    for (const int root : {0, 1}) die_in_windows(plan, collective, root);
}

TEST(Windows, ARankThatDiesInAnExchangeIsNamed) {
  die_in_windows("alltoall:two_shot:access=remote", Collective::kAllToAll);
}

TEST(Windows, AnAbortEndsARegistrationThatOthersWaitIn) {
  run_processes(2, [](tuttiComm_t& comm, const ForkedRank& self) {
    if (self.rank == 0) {
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    } else {
      const Buffers buffers;
      tuttiWindow_t window = nullptr;
      EXPECT_EQ(tuttiCommWindowRegister(comm, buffers.memory(), 4096, &window, 1),
                tuttiRemoteError);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    }
    comm = nullptr;
  });
}

}  // namespace
}  // namespace tutti::test
