// SPDX-License-Identifier: Apache-2.0
// Initializations that nobody waits for: blocking = 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Meeting {
  tuttiUniqueId id{};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

  Meeting() {
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    config.blocking = 0;
  }
  tuttiComm_t begin(int ranks, int rank) {
    tuttiComm_t comm = nullptr;
    EXPECT_EQ(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), tuttiInProgress);
    EXPECT_NE(comm, nullptr);
    return comm;
  }
};

tuttiResult_t state_of(tuttiComm_t comm) {
  tuttiResult_t state = tuttiNumResults;
  EXPECT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
  return state;
}

tuttiResult_t end_state_of(tuttiComm_t comm) {
  tuttiResult_t state = tuttiInProgress;
  while ((state = state_of(comm)) == tuttiInProgress) std::this_thread::yield();
  return state;
}

void expect_sums(const std::array<tuttiComm_t, 2>& comms) {
  std::array<std::int32_t, 2> values{1, 2};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(tuttiAllReduce(&values[i], &values[i], 1, tuttiInt32, tuttiSum, comms[i], nullptr),
              tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  EXPECT_THAT(values, Each(3));
}

TEST(NonBlocking, OneThreadBeginsAllRanksOneAfterTheOther) {
  Meeting meeting;
  std::array<tuttiComm_t, 2> comms{meeting.begin(2, 0)};
  EXPECT_EQ(state_of(comms[0]), tuttiInProgress);
  int rank = -1;
  EXPECT_EQ(tuttiCommUserRank(comms[0], &rank), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(comms[0]),
              AllOf(HasSubstr("tuttiCommUserRank"), HasSubstr("is being initialized")));
  comms[1] = meeting.begin(2, 1);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(end_state_of(comm), tuttiSuccess);
  expect_sums(comms);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(NonBlocking, TheEndOfAGroupDoesNotWait) {
  Meeting meeting;
  std::array<tuttiComm_t, 2> comms{};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(tuttiCommInitRankConfig(comms.data(), 2, meeting.id, 1, &meeting.config), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInProgress);
  EXPECT_EQ(state_of(comms[0]), tuttiInProgress);
  comms[1] = meeting.begin(2, 0);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(end_state_of(comm), tuttiSuccess);
  expect_sums(comms);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(NonBlocking, AFailureIsTheHandlesState) {
  Meeting meeting;
  meeting.config.initTimeoutMs = 100;
  const tuttiComm_t comm = meeting.begin(2, 0);
  EXPECT_EQ(end_state_of(comm), tuttiTimeout);
  // Where the time ends before the root, which is of this process, has even answered (a busy
  // machine), the root is what is missing.
  EXPECT_THAT(tuttiGetLastError(comm),
              AnyOf(HasSubstr("rank 1"), HasSubstr("does not answer a handshake")));
  std::int32_t value = 0;
  EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, nullptr), tuttiTimeout);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiInvalidArgument);
}

TEST(NonBlocking, DestroyAndAbortEndTheInitialization) {
  Meeting first, second;
  const tuttiComm_t destroyed = first.begin(2, 0), aborted = second.begin(2, 1);
  EXPECT_EQ(tuttiCommDestroy(destroyed), tuttiSuccess);
  EXPECT_EQ(tuttiCommAbort(aborted), tuttiSuccess);
}

TEST(NonBlocking, WrongArgumentsAreToldAtOnce) {
  Meeting meeting;
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, 2, meeting.id, 2, &meeting.config),
            tuttiInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace tutti::test
