// SPDX-License-Identifier: Apache-2.0
#include "stream/worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <string>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Work that somebody else ends.
CompletionRef open_work() { return std::make_shared<Completion>(std::vector<CompletionRef>{}); }

TEST(Worker, CarriesOutInTheOrderGiven) {
  Worker worker("test");
  EXPECT_TRUE(worker.idle());
  std::vector<int> order;
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(worker.enqueue({}, [&order, i] { order.push_back(i); }));
  ASSERT_TRUE(worker.drain());
  EXPECT_TRUE(worker.idle());
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(Worker, BeginsAfterWhatWorkComesAfter) {
  Worker worker("test");
  const CompletionRef first = open_work(), second = open_work();
  std::atomic<bool> both{false}, right{false};
  const auto work = worker.enqueue({first, second}, [&] { right = both.load(); });
  ASSERT_TRUE(work);
  second->complete();
  EXPECT_FALSE((*work)->done());
  both = true;
  first->complete();
  ASSERT_TRUE((*work)->wait());
  EXPECT_TRUE(right);
}

TEST(Worker, InAHurryWaitsForNothing) {
  Worker worker("test");
  const CompletionRef never = open_work();
  const auto work = worker.enqueue({never}, [] {});
  ASSERT_TRUE(work);
  worker.hurry();
  EXPECT_TRUE((*work)->wait());
  EXPECT_FALSE(never->done());
}

TEST(Worker, EndCarriesOutWhatIsLeft) {
  std::latch go(1);
  int carried_out = 0;
  {
    Worker worker("test");
    ASSERT_TRUE(worker.enqueue({}, [&] { go.wait(); }));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(worker.enqueue({}, [&] { ++carried_out; }));
    EXPECT_FALSE(worker.idle());
    go.count_down();
  }
  EXPECT_EQ(carried_out, 10);
}

TEST(Worker, TakesNothingAfterItsEnd) {
  Worker worker("test");
  worker.end();
  const auto refused = worker.enqueue({}, [] {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidUsage);
}

TEST(Worker, WorkThatWaitsForItselfIsRefused) {
  Worker one("one"), other("other");
  std::latch given(1);
  Status own, later, earlier;
  const auto before = other.enqueue({}, [] {});
  ASSERT_TRUE(before);
  CompletionRef behind;
  const auto work = one.enqueue({}, [&] {
    given.wait();
    own = one.drain();       // this very work
    later = behind->wait();  // comes after it, by way of another thread
    earlier = other.enqueue({}, [] {}) ? (*before)->wait() : Status();
  });
  ASSERT_TRUE(work);
  const auto between = other.enqueue({*work}, [] {});
  ASSERT_TRUE(between);
  const auto last = one.enqueue({*between}, [] {});
  ASSERT_TRUE(last);
  behind = *last;
  given.count_down();
  ASSERT_TRUE((*last)->wait());
  for (const Status& refused : {own, later}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidUsage);
    EXPECT_THAT(refused.error().message, HasSubstr("waits for work that begins only after"));
  }
  EXPECT_TRUE(earlier);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// Forking with threads deadlocks inside the sanitizers' own locks.
// The thread is the parent's: the child neither waits for it nor joins it.
TEST(Worker, AForkedChildLeavesItAlone) {
  std::latch go(1);
  auto* const worker = new Worker("test");
  ASSERT_TRUE(worker->enqueue({}, [&] { go.wait(); }));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool waits = !worker->drain();
    worker->end();
    ::_exit(waits ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  go.count_down();
  delete worker;
}
#endif

}  // namespace
}  // namespace tutti
