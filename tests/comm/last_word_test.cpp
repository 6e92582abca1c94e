// SPDX-License-Identifier: Apache-2.0
// What a rank of another host sent before it left arrives, also at one that never knew of its
// connection.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "hosts_job.hpp"

namespace tutti::test {
namespace {

// What the main thread does before it sends the next packet to a service of this machine; once.
std::function<void()> before_packet;

// Services of this machine are reached by Unix sockets, peers by TCP.
bool leads_to_a_service(int socket) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

void expect_soon(const std::atomic<int>& word) {
  const Deadline deadline = Deadline::in_ms(60'000);
  while (word == 0 && !deadline.passed()) ::sched_yield();
  EXPECT_EQ(word, 1);
}

}  // namespace
}  // namespace tutti::test

// Replaces the C library's, by which the library asks a peer for its state.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the library's are reserved
extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message,
                                                                  int flags) {
  static const auto next = reinterpret_cast<decltype(&::sendmsg)>(::dlsym(RTLD_NEXT, "sendmsg"));
  if (::gettid() == ::getpid() && tutti::test::leads_to_a_service(socket))
    if (const auto act = std::exchange(tutti::test::before_packet, nullptr)) act();
  return next(socket, message, flags);
}

namespace tutti::test {
namespace {

// Rank 1 waits until it asks rank 0 for its state. Only then rank 0 connects, sends and leaves, so
// that nobody answers, and rank 1 has not looked for connections since. (Where that takes longer
// than an answer is waited for, 500 ms, rank 1 looks again, and the test shows nothing.)
TEST(LastWord, OfOneThatLeftBeforeItsConnectionWasKnown) {
  const SharedWord asks, gone;
  run_hosts(
      {.ranks = 2, .ranks_per_host = 1, .transport = "tcp"},
      [](int /*host*/) { set("TUTTI_IB_HCA", "=none"); },
      [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
        std::vector<int> data(100, self.rank == 0 ? 7 : 0);
        if (self.rank == 0)
          expect_soon(*asks);
        else
          before_packet = [&] {
            *asks = 1;
            expect_soon(*gone);
          };
        EXPECT_EQ(
            tuttiBroadcast(data.data(), data.data(), data.size(), tuttiInt32, 0, comm, nullptr),
            tuttiSuccess)
            << tuttiGetLastError(comm);
        EXPECT_EQ(data, std::vector<int>(100, 7));
        EXPECT_EQ(tuttiCommDestroy(std::exchange(comm, nullptr)), tuttiSuccess);
        if (self.rank == 0) *gone = 1;
        EXPECT_EQ(*gone, 1) << "rank 1 did not ask";
      });
}

}  // namespace
}  // namespace tutti::test
