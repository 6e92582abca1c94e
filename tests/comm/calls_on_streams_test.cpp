// SPDX-License-Identifier: Apache-2.0
// Calls on streams of host memory, through the C API: they return at once, run in the order of
// issue, follow streams and events, tell their errors, and end with their communicator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tutti/stream.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "job.hpp"
#include "tests/sanitizers.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

class OwnStream {
 public:
  OwnStream() { EXPECT_EQ(tuttiStreamCreate(&stream_), tuttiSuccess); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { EXPECT_EQ(tuttiStreamDestroy(stream_), tuttiSuccess) << text(); }
  operator tuttiStream_t() const { return stream_; }
  [[nodiscard]] static std::string text() { return tuttiGetLastError(nullptr); }
  void synchronize() const { EXPECT_EQ(tuttiStreamSynchronize(stream_), tuttiSuccess) << text(); }
  // Runs `function`, which outlives it, when all before it on the stream has ended.
  void call(const std::function<void()>& function) const {
    const auto run = [](void* it) { (*static_cast<const std::function<void()>*>(it))(); };
    EXPECT_EQ(tuttiLaunchHostFunc(stream_, run, const_cast<std::function<void()>*>(&function)),
              tuttiSuccess);
  }

 private:
  tuttiStream_t stream_ = nullptr;
};

class OwnEvent {
 public:
  OwnEvent() { EXPECT_EQ(tuttiEventCreate(&event_), tuttiSuccess); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  ~OwnEvent() { EXPECT_EQ(tuttiEventDestroy(event_), tuttiSuccess); }
  operator tuttiEvent_t() const { return event_; }

 private:
  tuttiEvent_t event_ = nullptr;
};

tuttiResult_t sum(std::vector<std::int32_t>& values, tuttiComm_t comm, tuttiStream_t stream) {
  return tuttiAllReduce(values.data(), values.data(), values.size(), tuttiInt32, tuttiSum, comm,
                        stream);
}

// A second communicator of the same ranks.
tuttiComm_t duplicate(tuttiComm_t comm) {
  tuttiComm_t made = nullptr;
  EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &made, nullptr), tuttiSuccess);
  return made;
}

TEST(CallsOnStreams, ReturnBeforeTheOthersHaveCalled) {
  std::latch issued(1);
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    std::vector<std::int32_t> values(1000, rank + 1);
    if (rank == 1) issued.wait();
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    if (rank == 0) {
      EXPECT_EQ(tuttiStreamQuery(stream), tuttiInProgress);
      issued.count_down();
    }
    stream.synchronize();
    EXPECT_EQ(tuttiStreamQuery(stream), tuttiSuccess);
    EXPECT_THAT(values, Each(3));
  });
}

TEST(CallsOnStreams, RunInTheOrderOfIssue) {
  run_job(3, {}, [](int, tuttiComm_t& comm) {
    const OwnStream one, other;
    std::vector<std::int32_t> values(777, 1);
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(sum(values, comm, i % 2 == 0 ? one : other), tuttiSuccess);
    // Not on any stream: it waits for those that are, and comes after them.
    ASSERT_EQ(sum(values, comm, nullptr), tuttiSuccess);
    EXPECT_THAT(values, Each(177147));  // 3^11
  });
}

// Each has an output of its own until it is through (comm/apart_output.hpp), the next one as well.
TEST(CallsOnStreams, AllToAllsInPlaceReadWhereTheirPeersBlocksLie) {
  constexpr std::size_t kBlocks[] = {5000, 3, 20'000};
  run_job(3, {}, [&](int rank, tuttiComm_t& comm) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "alltoall:two_shot:access=remote"), tuttiSuccess);
    const OwnStream stream;
    std::vector<std::vector<std::int32_t>> all;
    for (const std::size_t block : kBlocks) {
      std::vector<std::int32_t>& one = all.emplace_back();
      for (int to = 0; to < 3; ++to) one.insert(one.end(), block, 10 * rank + to);
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(tuttiAlltoAll(all[i].data(), all[i].data(), kBlocks[i], tuttiInt32, comm, stream),
                tuttiSuccess);
    stream.synchronize();
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t from = 0; from < 3; ++from)
        EXPECT_THAT(std::span(all[i]).subspan(from * kBlocks[i], kBlocks[i]),
                    Each(10 * static_cast<int>(from) + rank));
    tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
    ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
    EXPECT_STREQ(info.lastProtocol, "direct");
  });
}

TEST(CallsOnStreams, WaitForEventsOfOtherCommunicators) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    tuttiComm_t second = duplicate(comm);
    {
      const OwnStream here, there;
      const OwnEvent summed, used;
      std::vector<std::int32_t> values(50'000, rank);
      for (int i = 0; i < 20; ++i) {
        // Both use one buffer: without events they would disturb each other.
        ASSERT_EQ(sum(values, comm, here), tuttiSuccess);
        ASSERT_EQ(tuttiEventRecord(summed, here), tuttiSuccess);
        ASSERT_EQ(tuttiStreamWaitEvent(there, summed), tuttiSuccess);
        ASSERT_EQ(tuttiReduce(values.data(), values.data(), values.size(), tuttiInt32, tuttiMax, 0,
                              second, there),
                  tuttiSuccess);
        ASSERT_EQ(tuttiEventRecord(used, there), tuttiSuccess);
        ASSERT_EQ(tuttiStreamWaitEvent(here, used), tuttiSuccess);
      }
      EXPECT_EQ(tuttiEventSynchronize(used), tuttiSuccess);
      EXPECT_EQ(tuttiEventQuery(summed), tuttiSuccess);
      EXPECT_THAT(values, Each(1 << 19));
    }
    EXPECT_EQ(tuttiCommDestroy(second), tuttiSuccess);
  });
}

TEST(CallsOnStreams, OneThreadDrivesManyRanksWithoutAGroup) {
  constexpr std::size_t kMany = 5;
  std::array<tuttiComm_t, kMany> comms{};
  ASSERT_EQ(tuttiCommInitAll(comms.data(), kMany, nullptr), tuttiSuccess);
  {
    const OwnStream stream;
    std::array<OwnStream, kMany> own;
    std::array<std::vector<std::int32_t>, kMany> values;
    for (std::size_t rank = 0; rank < kMany; ++rank) {
      values[rank].assign(3333, static_cast<std::int32_t>(rank));
      ASSERT_EQ(sum(values[rank], comms[rank], own[rank]), tuttiSuccess);
      ASSERT_EQ(tuttiBarrier(comms[rank], own[rank]), tuttiSuccess);
    }
    for (std::size_t rank = 0; rank < kMany; ++rank) {
      own[rank].synchronize();
      EXPECT_THAT(values[rank], Each(10));
    }
    // On one stream the ranks would wait for each other for ever, but not in a group.
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (std::size_t rank = 0; rank < kMany; ++rank)
      ASSERT_EQ(sum(values[rank], comms[rank], stream), tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    stream.synchronize();
    for (const auto& value : values) EXPECT_THAT(value, Each(50));
  }
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(CallsOnStreams, AGroupMayHaveCallsOnStreamsAndOthers) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    tuttiComm_t second = duplicate(comm);
    {
      const OwnStream stream;
      std::vector<std::int32_t> values(100, rank), more(100, 10 * rank), got(100, -1);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(sum(values, second, stream), tuttiSuccess);
      ASSERT_EQ(sum(more, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiSend(&rank, 1, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(got.data(), 1, tuttiInt32, 1 - rank, comm, stream), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
      EXPECT_THAT(more, Each(10));
      EXPECT_EQ(got[0], 1 - rank);
      stream.synchronize();
      EXPECT_THAT(values, Each(1));
    }
    EXPECT_EQ(tuttiCommDestroy(second), tuttiSuccess);
  });
}

TEST(CallsOnStreams, SendsReceivesAndBlocksOfTheirOwnSizes) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    const auto r = static_cast<std::size_t>(rank);
    std::vector<std::int32_t> mine(1000 * (r + 1), rank), all(6000, -1);
    const std::array<std::size_t, 3> to_each{mine.size(), mine.size(), mine.size()};
    const std::array<std::size_t, 3> at_zero{}, counts{1000, 2000, 3000}, at{0, 1000, 3000};
    ASSERT_EQ(tuttiAlltoAllv(mine.data(), to_each.data(), at_zero.data(), all.data(), counts.data(),
                             at.data(), tuttiInt32, comm, stream),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    std::int32_t got = -1;
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiSend(&rank, 1, tuttiInt32, next, comm, stream), tuttiSuccess);
    ASSERT_EQ(tuttiRecv(&got, 1, tuttiInt32, previous, comm, stream), tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    stream.synchronize();
    EXPECT_EQ(got, previous);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], i < 1000 ? 0 : i < 3000 ? 1 : 2) << i;
  });
}

TEST(CallsOnStreams, AFunctionSeesTheResultAndMayCallAgain) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream, second;
    std::vector<std::int32_t> values(100, rank + 1);
    std::int32_t seen = -1;
    std::atomic<bool> called{false};
    const std::function<void()> again = [&] {
      seen = values[99];
      EXPECT_EQ(sum(values, comm, second), tuttiSuccess);
      called = true;
    };
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    stream.call(again);
    stream.synchronize();
    ASSERT_TRUE(called);
    second.synchronize();
    EXPECT_EQ(seen, 3);
    EXPECT_THAT(values, Each(6));
  });
}

// The call that the function makes comes after the one that waits for the function.
TEST(CallsOnStreams, AFunctionThatWaitsForItsFollowersIsRefused) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    std::vector<std::int32_t> values(10, rank), more(10, rank);
    std::latch issued(1);
    std::array<tuttiResult_t, 3> told{};
    std::string text;
    const std::function<void()> wrong = [&] {
      issued.wait();
      told = {sum(more, comm, nullptr), tuttiStreamSynchronize(stream), tuttiCommDestroy(comm)};
      text = tuttiGetLastError(nullptr);
    };
    stream.call(wrong);
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    issued.count_down();
    stream.synchronize();
    EXPECT_THAT(told, Each(tuttiInvalidUsage));
    EXPECT_THAT(text, AllOf(HasSubstr("tuttiCommDestroy"),
                            HasSubstr("waits for work that begins only after the function")));
    EXPECT_THAT(values, Each(1));
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

TEST(CallsOnStreams, AMismatchIsToldByTheStreamAndTheCommunicator) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    std::vector<std::int32_t> values(rank == 0 ? 10 : 11, rank), more(10, rank);
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    EXPECT_EQ(tuttiStreamSynchronize(stream), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr), AllOf(HasSubstr("count 10"), HasSubstr("count 11")));
    EXPECT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);  // told once
    tuttiResult_t state = tuttiSuccess;
    EXPECT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    EXPECT_EQ(state, tuttiInvalidUsage);
    EXPECT_EQ(sum(more, comm, stream), tuttiInvalidUsage);
    EXPECT_EQ(tuttiStreamQuery(stream), tuttiSuccess);
  });
}

TEST(CallsOnStreams, WrongArgumentsAreToldAtOnce) {
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    const OwnStream stream;
    std::int32_t value = 0;
    EXPECT_EQ(tuttiAllReduce(nullptr, &value, 1, tuttiInt32, tuttiSum, comm, stream),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiStreamQuery(stream), tuttiSuccess);
    tuttiStream_t gone = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&gone), tuttiSuccess);
    ASSERT_EQ(tuttiStreamDestroy(gone), tuttiSuccess);
    for (tuttiStream_t bad : {gone, static_cast<tuttiStream_t>(&value)}) {
      EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, bad),
                tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("was not made by tuttiStreamCreate"));
      EXPECT_EQ(tuttiStreamQuery(bad), tuttiInvalidArgument);
      EXPECT_EQ(tuttiStreamSynchronize(bad), tuttiInvalidArgument);
      EXPECT_EQ(tuttiStreamDestroy(bad), tuttiInvalidArgument);
      EXPECT_EQ(tuttiLaunchHostFunc(
                    bad, [](void*) {}, nullptr),
                tuttiInvalidArgument);
    }
    EXPECT_EQ(tuttiLaunchHostFunc(stream, nullptr, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiEventRecord(nullptr, stream), tuttiInvalidArgument);
    EXPECT_EQ(tuttiStreamQuery(nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiStreamDestroy(nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiEventDestroy(nullptr), tuttiSuccess);
  });
}

// Also where a call in flight waits for a function that does not return.
TEST(CallsOnStreams, AnAbortEndsThem) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    std::latch go(1);
    const std::function<void()> hold = [&] { go.wait(); };
    std::vector<std::int32_t> values(10, rank), more(10, rank);
    if (rank == 0) {
      ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
      stream.call(hold);
      ASSERT_EQ(sum(more, comm, stream), tuttiSuccess);
      EXPECT_EQ(tuttiCommAbort(std::exchange(comm, nullptr)), tuttiSuccess);
      go.count_down();
      EXPECT_THAT(tuttiStreamSynchronize(stream), AnyOf(tuttiRemoteError, tuttiInvalidUsage));
    } else {
      while (sum(values, comm, stream) == tuttiSuccess)
        if (tuttiStreamSynchronize(stream) != tuttiSuccess) break;
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0"));
    }
  });
}

TEST(CallsOnStreams, FinalizeDestroyAndSplitComeAfterThem) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    const OwnStream stream;
    std::vector<std::int32_t> values(100'000, 1), more(100'000, 1);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    tuttiComm_t part = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, rank == 0 ? 0 : 1, -rank, &part, nullptr), tuttiSuccess);
    EXPECT_THAT(values, Each(243));
    for (int i = 0; i < 5; ++i) ASSERT_EQ(sum(more, part, stream), tuttiSuccess);
    ASSERT_EQ(tuttiCommDestroy(part), tuttiSuccess);
    EXPECT_THAT(more, Each(rank == 0 ? 1 : 32));
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    ASSERT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
    EXPECT_THAT(values, Each(729));
    EXPECT_EQ(sum(values, comm, stream), tuttiInvalidUsage);
  });
}

TEST(CallsOnStreams, AnAbsentRankIsNamedByTheTimeout) {
  std::barrier told(2);
  run_job(2, {.op_timeout_ms = 300}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 0) {
      const OwnStream stream;
      std::vector<std::int32_t> values(10);
      ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
      EXPECT_EQ(tuttiStreamSynchronize(stream), tuttiTimeout);
      EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("rank 1"));
    }
    told.arrive_and_wait();
  });
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// (Forking with threads deadlocks inside the sanitizers' own locks.)
TEST(CallsOnStreams, AForkedChildMayNotWaitForThem) {
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    const OwnStream stream;
    std::latch go(1);
    const std::function<void()> hold = [&] { go.wait(); };
    std::vector<std::int32_t> values(10);
    stream.call(hold);
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    const pid_t child = ::fork();
    if (child == 0)
      ::_exit(tuttiStreamQuery(stream) == tuttiInvalidUsage &&
                      tuttiStreamSynchronize(stream) == tuttiInvalidUsage &&
                      sum(values, comm, nullptr) == tuttiInvalidUsage &&
                      sum(values, comm, stream) == tuttiInvalidUsage &&
                      tuttiCommDestroy(comm) == tuttiSuccess
                  ? 0
                  : 1);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    go.count_down();
  });
}
#endif

// The state, and how often the kernel has put it to sleep, of each thread of this name.
std::vector<std::string> threads_named(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string own;
    std::getline(std::ifstream(task.path() / "comm"), own);
    if (own != name) continue;
    std::ifstream status(task.path() / "status");
    std::string text, line;
    while (std::getline(status, line))
      if (line.starts_with("State:") || line.starts_with("voluntary_ctxt_switches:")) text += line;
    found.push_back(text);
  }
  return found;
}

TEST(CallsOnStreams, CostNoThreadBeforeTheFirstAndSleepAfterTheLast) {
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    const OwnStream stream;
    std::vector<std::int32_t> values(10);
    ASSERT_EQ(sum(values, comm, nullptr), tuttiSuccess);
    EXPECT_THAT(threads_named("tutti-progress"), ::testing::IsEmpty());
    ASSERT_EQ(sum(values, comm, stream), tuttiSuccess);
    stream.synchronize();
    std::vector<std::string> state;
    do {
      state = threads_named("tutti-progress");
      ASSERT_EQ(state.size(), 1u);
    } while (state[0].find("S (sleeping)") == std::string::npos);
    // Synchronous calls leave it asleep.
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(sum(values, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(threads_named("tutti-progress"), state);
  });
}

// Adds to the elements of a buffer, as a function on a stream.
struct Addition {
  std::vector<std::uint32_t>* values;
  std::uint32_t addend;
  static void run(void* it) {
    const auto& [values, addend] = *static_cast<const Addition*>(it);
    for (std::uint32_t& value : *values) value += addend;
  }
};

constexpr int kRanks = 3;
// What every element of a buffer is, on each rank.
using Model = std::array<std::uint32_t, kRanks>;

// One rank's program of random calls on some streams of several communicators, equal on all ranks
// but for the streams. A buffer is used by one stream after the other: an event passes it on.
class RandomProgram {
 public:
  RandomProgram(int rank, tuttiComm_t comm, std::uint32_t seed)
      : rank_(rank), comms_{comm, duplicate(comm), duplicate(comm)}, random_(seed), own_(rank) {
    for (std::size_t b = 0; b < values_.size(); ++b) {
      values_[b].assign(random_() % 5000 + 1, static_cast<std::uint32_t>(rank));
      std::iota(models_[b].begin(), models_[b].end(), 0);
    }
  }
  ~RandomProgram() {
    EXPECT_EQ(tuttiCommDestroy(comms_[1]), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(comms_[2]), tuttiSuccess);
  }

  void call() {
    const auto b = random_() % values_.size(), kind = random_() % 5;
    const int root = static_cast<int>(random_() % kRanks);
    const tuttiComm_t comm = comms_[random_() % comms_.size()];
    const bool waits = random_() % 8 == 0 && kind != 0;
    tuttiStream_t stream = nullptr;
    if (!waits) stream = streams_[own_() % streams_.size()];
    ASSERT_EQ(waits ? tuttiEventSynchronize(used_[b]) : tuttiStreamWaitEvent(stream, used_[b]),
              tuttiSuccess);
    std::vector<std::uint32_t>& own = values_[b];
    Model& model = models_[b];
    if (kind == 0) {
      additions_.push_back({&own, static_cast<std::uint32_t>(rank_ + 1)});
      ASSERT_EQ(tuttiLaunchHostFunc(stream, Addition::run, &additions_.back()), tuttiSuccess);
      for (std::uint32_t i = 0; i < kRanks; ++i) model[i] += i + 1;
    } else if (kind == 1) {
      ASSERT_EQ(tuttiBcast(own.data(), own.size(), tuttiUint32, root, comm, stream), tuttiSuccess);
      model.fill(model[static_cast<std::size_t>(root)]);
    } else if (kind == 2) {
      ASSERT_EQ(tuttiReduce(own.data(), own.data(), own.size(), tuttiUint32, tuttiMax, root, comm,
                            stream),
                tuttiSuccess);
      model[static_cast<std::size_t>(root)] = std::ranges::max(model);
    } else {
      ASSERT_EQ(
          tuttiAllReduce(own.data(), own.data(), own.size(), tuttiUint32, tuttiSum, comm, stream),
          tuttiSuccess);
      model.fill(std::accumulate(model.begin(), model.end(), 0u));
    }
    if (!waits) {
      ASSERT_EQ(tuttiEventRecord(used_[b], stream), tuttiSuccess);
    }
  }
  void check() {
    for (const OwnStream& stream : streams_) stream.synchronize();
    for (std::size_t b = 0; b < values_.size(); ++b)
      EXPECT_THAT(values_[b], Each(models_[b][static_cast<std::size_t>(rank_)])) << "buffer " << b;
  }

 private:
  const int rank_;
  const std::array<tuttiComm_t, 3> comms_;
  std::mt19937 random_, own_;
  std::deque<Addition> additions_;
  std::array<std::vector<std::uint32_t>, 4> values_;
  std::array<Model, 4> models_;
  std::array<OwnStream, 3> streams_;
  std::array<OwnEvent, 4> used_;
};

TEST(CallsOnStreams, RandomProgramsGiveWhatAModelGives) {
  const std::uint32_t seed = draw_seed();
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    RandomProgram program(rank, comm, seed);
    for (int i = 0; i < (kSanitized ? 200 : 2000); ++i) program.call();
    program.check();
  });
}

}  // namespace
}  // namespace tutti::test
