// The connections of a rank while one of them is being joined to nobody. Needs a device.
#include "transports/verbs/links.hpp"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(VerbsLinks, OthersAreSeenWhileOneIsBeingJoined) {
  if (test::usable_ports().empty()) GTEST_SKIP() << "no active RDMA port";
  const auto port = Port::open({});
  ASSERT_TRUE(port) << port.error().message;
  const Card nobody = card_of_nobody(**port);
  Links links;
  links.open(**port, {.timeout = 14, .retries = 7}, {});
  std::atomic<bool> joining = false, joined = false;
  std::thread other([&] {
    joining = true;
    EXPECT_FALSE(links.join(1, std::as_bytes(std::span(&nobody, 1))));
    joined = true;
  });
  while (!joining) std::this_thread::yield();
  int looks =
      0;  // a handful before that thread has begun; then as many as fit in a second, or none
  for (; !joined; ++looks) links.visit([](Rank, Link&) { FAIL() << "it is not joined"; });
  other.join();
  EXPECT_GT(looks, 1000);
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
}  // namespace tutti::verbs
