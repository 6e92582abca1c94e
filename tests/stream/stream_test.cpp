// SPDX-License-Identifier: Apache-2.0
#include "stream/stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <random>
#include <vector>

#include "tests/seed.hpp"

namespace tutti {
namespace {

using ::testing::ElementsAre;

CompletionRef put_open_work(Stream& stream) {
  const std::vector<CompletionRef> after = stream.after();
  const auto work = std::make_shared<Completion>(after);
  stream.put(work, after);
  return work;
}

TEST(Stream, IsDoneWithoutWork) {
  Stream stream;
  EXPECT_TRUE(*stream.done());
  EXPECT_TRUE(stream.synchronize());
}

TEST(Stream, FunctionsRunInOrderAfterOtherWork) {
  Stream stream;
  std::vector<int> order;
  const CompletionRef work = put_open_work(stream);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream.call([&order, i] { order.push_back(i); }));
  EXPECT_FALSE(*stream.done());
  work->complete();
  ASSERT_TRUE(stream.synchronize());
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_TRUE(*stream.done());
  stream.end();
}

TEST(Stream, TellsTheFirstErrorOnce) {
  Stream stream;
  stream.fail({Code::kTimeout, "first"});
  stream.fail({Code::kRemoteError, "second"});
  const Status told = stream.synchronize();
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().message, "first");
  EXPECT_TRUE(stream.synchronize());
}

TEST(Stream, KeepsWhatAnotherThreadPutOnItMeanwhile) {
  Stream stream;
  const std::vector<CompletionRef> after = stream.after();
  const CompletionRef other = put_open_work(stream);
  const auto work = std::make_shared<Completion>(after);
  stream.put(work, after);
  work->complete();
  EXPECT_FALSE(*stream.done());
  other->complete();
  EXPECT_TRUE(*stream.done());
}

TEST(Event, IsTheLastRecordAndNoLaterOne) {
  Stream recorded, waiting;
  Event event;
  EXPECT_TRUE(*event.done());
  const CompletionRef first = put_open_work(recorded);
  event.record(recorded);
  waiting.wait_for(event.recorded());
  const CompletionRef second = put_open_work(recorded);
  event.record(recorded);
  first->complete();
  EXPECT_TRUE(*waiting.done());  // it waits for the first record
  EXPECT_FALSE(*event.done());
  second->complete();
  EXPECT_TRUE(*event.done());
  EXPECT_TRUE(event.synchronize());
}

// Functions on some streams, with waits for random events. Each function notes when it ran; what
// the streams and events asked for is kept beside, as a list for each function.
TEST(Stream, RandomGraphsRunInAnOrderThatWasAskedFor) {
  std::mt19937 random(draw_seed());
  for (int round = 0; round < 50; ++round) {
    constexpr int kStreams = 4, kFunctions = 60;
    std::array<Stream, kStreams> streams;
    std::array<Event, kStreams> events;
    std::array<std::vector<int>, kStreams> on_stream, in_event;  // that the next one comes after
    std::array<std::vector<int>, kFunctions> before;
    std::array<std::atomic<int>, kFunctions> ran_as{};
    std::atomic<int> ran{0};
    for (int i = 0; i < kFunctions; ++i) {
      const auto s = random() % kStreams, e = random() % kStreams;
      const auto n = static_cast<std::size_t>(i);
      if (random() % 3 == 0) {
        events[e].record(streams[s]);
        in_event[e] = on_stream[s];
      }
      if (random() % 3 == 0) {
        const auto waiting = random() % kStreams;
        streams[waiting].wait_for(events[e].recorded());
        on_stream[waiting].insert(on_stream[waiting].end(), in_event[e].begin(), in_event[e].end());
      }
      before[n] = on_stream[s];
      on_stream[s] = {i};
      ASSERT_TRUE(streams[s].call([&, n] { ran_as[n] = ++ran; }));
    }
    for (Stream& stream : streams) ASSERT_TRUE(stream.synchronize());
    for (std::size_t i = 0; i < kFunctions; ++i)
      for (const int one : before[i])
        EXPECT_LT(ran_as[static_cast<std::size_t>(one)], ran_as[i]) << one << " and " << i;
    for (Stream& stream : streams) stream.end();
  }
}

}  // namespace
}  // namespace tutti
