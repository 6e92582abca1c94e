// SPDX-License-Identifier: Apache-2.0
// What goes wrong ends every rank's call with an error that names the culprit: mismatched calls,
// absent, departed, aborting and killed ranks, bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "forked_job.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tutti::testing::ForkedRank;

struct OneCall {
  std::size_t count = 1000;
  tuttiDataType_t type = tuttiFloat;
  tuttiRedOp_t op = tuttiSum;
  const char* algorithm = "auto";
};

tuttiResult_t call(tuttiComm_t comm, const OneCall& c) {
  std::vector<double> in(c.count + 1, 1.0), out(c.count + 1);
  return tuttiAllReduce(in.data(), out.data(), c.count, c.type, c.op, comm, nullptr);
}

struct Mismatch {
  const char* name;
  OneCall most, odd;
  const char* text;
  bool plans_differ = false;
};

class MismatchTest : public ::testing::TestWithParam<std::tuple<int, Mismatch>> {};

TEST_P(MismatchTest, EveryRankGetsAnErrorThatNamesBothSides) {
  const int ranks = std::get<0>(GetParam());
  const Mismatch& mismatch = std::get<1>(GetParam());
#if defined(__SANITIZE_THREAD__)
  // Plans that differ lay different connections over the same arena, so two ranks may write one
  // slot before the signatures are compared. Nobody can complete with what they wrote.
  if (ranks > 2 && mismatch.plans_differ) GTEST_SKIP() << "a race by intention: the calls differ";
#endif
  const int odd_rank = ranks - 1;
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    EXPECT_EQ(call(comm, {.count = 10}), tuttiSuccess);
    const OneCall& mine = rank == odd_rank ? mismatch.odd : mismatch.most;
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, mine.algorithm), tuttiSuccess);
    tuttiResult_t result = call(comm, mine);
    if (mine.count == 0) {  // nothing to communicate: the next call tells
      EXPECT_EQ(result, tuttiSuccess);
      result = call(comm, {});
    }
    EXPECT_EQ(result, tuttiInvalidUsage);
    const std::string text = tuttiGetLastError(comm);
    EXPECT_THAT(text, AllOf(HasSubstr("rank " + std::to_string(odd_rank)), HasSubstr("pid"),
                            HasSubstr(mismatch.text)));
    EXPECT_EQ(call(comm, {}), tuttiInvalidUsage) << "poisoned for good";
    tuttiResult_t state = tuttiSuccess;
    EXPECT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    EXPECT_EQ(state, tuttiInvalidUsage);
  });
}

constexpr Mismatch kMismatches[] = {
    {"count", {}, {.count = 1001}, "count 1001"},
    {"bigger_count", {}, {.count = 500'000}, "count 500000", true},
    {"zero_count", {}, {.count = 0}, "count 0"},
    {"type", {}, {.type = tuttiInt32}, "int32"},
    {"type_same_bytes", {.count = 1000, .type = tuttiDouble}, {.count = 2000}, "float"},
    {"op", {}, {.op = tuttiMax}, "max"},
    {"algorithm", {.algorithm = "ring"}, {.algorithm = "tree"}, "plan", true},
};

INSTANTIATE_TEST_SUITE_P(All, MismatchTest,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::ValuesIn(kMismatches)),
                         [](const ::testing::TestParamInfo<std::tuple<int, Mismatch>>& test) {
                           return std::string(std::get<1>(test.param).name) + "_p" +
                                  std::to_string(std::get<0>(test.param));
                         });

// A call of count 0 is over at once: its rank may meet, in its next call, the messages that the
// others send in theirs, before they have seen that it left them. Which comes first differs from
// job to job; whoever finds out, nobody is said to have failed, and both sides are named.
TEST(Mismatch, ARankThatCalledWithCountZeroIsNamedWhoeverFindsOut) {
  constexpr int kRanks = 4, kOdd = 1, kJobs = 40;
  for (int job = 0; job < kJobs && !::testing::Test::HasFailure(); ++job)
    run_processes(kRanks, [&](tuttiComm_t& comm, const ForkedRank& self) {
      EXPECT_EQ(call(comm, {.count = 10}), tuttiSuccess);
      if (self.rank == kOdd) {
        EXPECT_EQ(call(comm, {.count = 0}), tuttiSuccess);
      }
      EXPECT_EQ(call(comm, {}), tuttiInvalidUsage);
      EXPECT_THAT(tuttiGetLastError(comm), AllOf(HasSubstr("rank 1 (pid"), HasSubstr("count 0")))
          << "job " << job << " rank " << self.rank;
    });
}

// Two ranks that both take themselves for the root send and are done, and the call after it fails:
// the call in which they differed is told, not the one that could not go on.
TEST(Mismatch, AWrongRootIsNamedThoughTheCallWithItIsOver) {
  constexpr int kOdd = 1;
  for (const int ranks : {2, 3, 4})
    for (const int calls_between : {0, 1, 5})
      run_processes(ranks, [&](tuttiComm_t& comm, const ForkedRank& self) {
        EXPECT_EQ(call(comm, {.count = 10}), tuttiSuccess);
        std::vector<float> data(10, 1.0f);
        const auto broadcast = [&](int root) {
          return tuttiBcast(data.data(), data.size(), tuttiFloat, root, comm, nullptr);
        };
        tuttiResult_t result = broadcast(self.rank == kOdd ? kOdd : 0);
        for (int i = 0; result == tuttiSuccess && i < calls_between; ++i) result = broadcast(0);
        if (result == tuttiSuccess) result = call(comm, {});
        EXPECT_EQ(result, tuttiInvalidUsage);
        EXPECT_THAT(tuttiGetLastError(comm), AllOf(HasSubstr("rank 1 (pid"), HasSubstr("root 0"),
                                                   HasSubstr("root 1"), HasSubstr("broadcast #2 ")))
            << ranks << " ranks, " << calls_between << " calls, rank " << self.rank;
      });
}

TEST(Absent, ALivingRankThatDoesNotComeTimesOutByName) {
  constexpr int kRanks = 3;
  std::atomic<int> failed{0}, named{0};
  run_job(kRanks, {.op_timeout_ms = 50}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 1) {
      // Comes only once the others have given up.
      for (int seen = failed; seen < kRanks - 1; seen = failed) failed.wait(seen);
      EXPECT_EQ(call(comm, {}), tuttiTimeout);
      return;
    }
    EXPECT_EQ(call(comm, {}), tuttiTimeout);
    EXPECT_THAT(tuttiGetLastError(comm),
                AllOf(HasSubstr("rank 1 (pid"), HasSubstr("TUTTI_OP_TIMEOUT_S")));
    // Whoever ran into it says how long that was; another may have been told of it before.
    if (std::string_view(tuttiGetLastError(comm)).find("; the timeout is 0.05 s") !=
        std::string_view::npos)
      ++named;
    ++failed;
    failed.notify_all();
  });
  EXPECT_GE(named, 1);
}

TEST(Absent, ARankThatDestroyedItsCommunicatorIsNamed) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    EXPECT_EQ(call(comm, {}), tuttiSuccess);
    if (rank == 2) return;
    EXPECT_EQ(call(comm, {}), tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
  });
}

TEST(Abort, FreesEveryRankAndNamesWhoAborted) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 0) {
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
      comm = nullptr;
      return;
    }
    EXPECT_EQ(call(comm, {}), tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
  });
}

TEST(Arguments, OneClearLineEach) {
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    float data[4] = {};
    char* const odd = reinterpret_cast<char*>(data) + 1;
    const auto expect = [&](tuttiResult_t result, tuttiResult_t want, const char* text) {
      EXPECT_EQ(result, want);
      EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr(text));
    };
    const auto reduce = [&](const void* in, void* out, std::size_t count, int type, int op,
                            tuttiStream_t stream) {
      return tuttiAllReduce(in, out, count, static_cast<tuttiDataType_t>(type),
                            static_cast<tuttiRedOp_t>(op), comm, stream);
    };
    expect(reduce(nullptr, data, 1, tuttiFloat, tuttiSum, nullptr), tuttiInvalidArgument,
           "sendbuff is NULL");
    expect(reduce(data, nullptr, 1, tuttiFloat, tuttiSum, nullptr), tuttiInvalidArgument,
           "recvbuff is NULL");
    expect(reduce(data, data, 1, 99, tuttiSum, nullptr), tuttiInvalidArgument,
           "99 is not a valid tuttiDataType_t");
    expect(reduce(data, data, 1, tuttiFloat, 15, nullptr), tuttiInvalidArgument,
           "15 is not a valid tuttiRedOp_t");
    expect(reduce(odd, odd, 1, tuttiFloat, tuttiSum, nullptr), tuttiInvalidArgument, "aligned");
    expect(reduce(data, data + 1, 2, tuttiFloat, tuttiSum, nullptr), tuttiInvalidArgument,
           "overlap");
    expect(reduce(data, data, SIZE_MAX, tuttiFloat, tuttiSum, nullptr), tuttiInvalidArgument,
           "count");
    expect(reduce(data, data, 1, tuttiFloat, tuttiSum, data), tuttiInvalidArgument, "stream");
    expect(tuttiSend(data, 1, tuttiFloat, 0, comm, data), tuttiInvalidArgument, "tuttiSend");
    expect(tuttiCommSetAlgorithm(comm, "rings"), tuttiInvalidArgument, "choose one of ring");
    EXPECT_EQ(reduce(data, data, 1, tuttiFloat, tuttiSum, nullptr), tuttiSuccess)
        << "bad arguments change nothing";
    EXPECT_EQ(reduce(nullptr, nullptr, 0, tuttiFloat, tuttiSum, nullptr), tuttiSuccess);
  });
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRank(&comm, 2, id, 2), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommInitRank(&comm, 0, id, 0), tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommInitRank(nullptr, 1, id, 0), tuttiInvalidArgument);
  EXPECT_EQ(tuttiAllReduce(&id, &id, 1, tuttiFloat, tuttiSum, nullptr, nullptr),
            tuttiInvalidArgument);
  EXPECT_EQ(tuttiCommDestroy(nullptr), tuttiSuccess);
}

}  // namespace
}  // namespace tutti::test
