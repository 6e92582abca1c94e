// SPDX-License-Identifier: Apache-2.0
// The connections of a rank while one of them is being joined to nobody. Needs a device. The
// ioctl() and write() below stand before libc's for libibverbs too, whose way into the kernel they
// are: a thread can be held there.
#include "transports/verbs/links.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <span>
#include <thread>
#include <vector>

#include "tests/transports/verbs/ports.hpp"

namespace tutti::verbs {
namespace {

// Of an end where nobody is: the kernel asks for its address for about a second.
Card card_of_nobody(const Port& port) {
  Card card = port.card();
  card.queue_pair = 17;
  card.landing_address = card.arena_address = 4096;
  card.gid.back() = 77;
  return card;
}

// A thread whose `mine` is set stands where it would first enter the kernel for libibverbs, until
// it is let go on.
struct Hold {
  std::atomic<bool> reached = false, in_kernel = false, over = false;
  static inline thread_local Hold* mine = nullptr;
  static void stand() {
    if (mine == nullptr || mine->in_kernel.exchange(true)) return;
    mine->reached = true;
    mine->reached.notify_all();
    mine->over.wait(false);
  }
};

TEST(VerbsLinks, OthersAreSeenWhileOneIsBeingJoined) {
  if (test::usable_ports().empty()) GTEST_SKIP() << "no active RDMA port";
  const auto port = Port::open({});
  ASSERT_TRUE(port) << port.error().message;
  const Card nobody = card_of_nobody(**port);
  Links links;
  links.open(**port, {.timeout = 14, .retries = 7}, {});
  // Made here, so that all that the thread asks of the kernel is to join it.
  ASSERT_TRUE(links.card_for(1));
  Hold hold;
  std::thread other([&] {
    Hold::mine = &hold;
    EXPECT_FALSE(links.join(1, std::as_bytes(std::span(&nobody, 1))));
    Hold::mine = nullptr;
    hold.reached = true;  // also where nothing was asked of the kernel, which fails below
    hold.reached.notify_all();
  });
  hold.reached.wait(false);
  EXPECT_TRUE(hold.in_kernel);
  // That thread goes on once this look is over: if it held the mutex, both would wait for ever.
  links.visit([](Rank, Link&) { FAIL() << "it is not joined"; });
  hold.over = true;
  hold.over.notify_all();
  other.join();
  EXPECT_EQ(links.joined(), 0U);
  links.close();
}

TEST(VerbsLinks, TheEndWaitsForWhoIsBeingJoined) {
  if (test::usable_ports().empty()) GTEST_SKIP() << "no active RDMA port";
  const auto port = Port::open({});
  ASSERT_TRUE(port) << port.error().message;
  const Card nobody = card_of_nobody(**port);
  Links links;
  links.open(**port, {.timeout = 14, .retries = 7}, {});
  std::vector<std::thread> others;  // of one peer and of another: refused, or told that it is over
  for (const Rank peer : {1, 1, 2})
    others.emplace_back(
        [&, peer] { EXPECT_FALSE(links.join(peer, std::as_bytes(std::span(&nobody, 1)))); });
  links.close();
  EXPECT_FALSE(links.card_for(1));
  for (std::thread& other : others) other.join();
}

}  // namespace

// The program's own: found before libc's, also by libibverbs.
void stand_before_the_kernel() { Hold::stand(); }

}  // namespace tutti::verbs

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  std::va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  tutti::verbs::stand_before_the_kernel();
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

extern "C" __attribute__((visibility("default"))) ssize_t write(int fd, const void* data,
                                                                std::size_t bytes) {
  tutti::verbs::stand_before_the_kernel();
  return ::syscall(SYS_write, fd, data, bytes);
}
