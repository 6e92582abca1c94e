// SPDX-License-Identifier: Apache-2.0
// A rank with calls that repeat, below the C API: whether one did, and how it ended.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/repeats.hpp"
#include "comm/run_operations.hpp"

namespace tutti::test {

enum class Outcome { kEnded, kFailed, kElsewhere };

struct Member {
  std::unique_ptr<Communicator> communicator;
  std::vector<float> in = std::vector<float>(4, 1), out = std::vector<float>(4);
  std::string message = {};  // of a call that failed
  bool slowly = false;       // the last one that repeated left the straight line

  // An all-reduce of `in`.
  [[nodiscard]] Call small() {
    return {.collective = Collective::kAllReduce,
            .input = in.data(),
            .output = out.data(),
            .count = in.size()};
  }
  Status ordinary(const Call& call) {
    HeldCall held{communicator.get(), call, nullptr};
    return run_operations({&held, 1});
  }
  Status ordinary() { return ordinary(small()); }
  Outcome again(const Call& call) {
    CallSlot& slot = communicator->call_slot();
    if (slot.take("a repeated call") != nullptr) return Outcome::kElsewhere;
    const Repeats::Ran ran = communicator->repeats().run(
        {.kind = SmallCall::kind_of(call.collective, call.type, call.op, call.root),
         .count = call.count,
         .input = call.input,
         .output = call.output});
    const Status ended = communicator->repeats().ended();
    slot.give_back();
    if (ran == Repeats::Ran::kNot) return Outcome::kElsewhere;
    slowly = ran == Repeats::Ran::kSlowly;
    if (ended) return Outcome::kEnded;
    message = ended.error().message;
    return Outcome::kFailed;
  }
  Outcome again() { return again(small()); }
};

// Two ranks in threads of their own, each with an all-reduce that repeats; then `body`.
inline void with_two(const std::function<void(Rank, Member&, std::barrier<>&)>& body,
                     const Config& config = {}) {
  const UniqueId id = *create_unique_id({.interfaces = "lo"});
  std::barrier<> together(2);
  const auto rank_body = [&](Rank rank) {
    Member member;
    auto made = Communicator::create(id, rank, 2, {.config = config, .cancel = {}});
    ASSERT_TRUE(made) << made.error().message;
    member.communicator = *std::move(made);
    EXPECT_EQ(member.again(), Outcome::kElsewhere);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
    body(rank, member, together);
    together.arrive_and_wait();
  };
  std::jthread other([&] { rank_body(1); });
  rank_body(0);
}

// What is right whichever way messages go.

inline void wait_for_long_and_go_on(const Config& config) {
  with_two(
      [](Rank rank, Member& member, std::barrier<>&) {
        Membership& members = member.communicator->members();
        for (int i = 0; i < 20; ++i) {
          // The one that comes late waits until the other's page says where it waits.
          if (rank == i % 2) {
            const Board& board = members.board();
            const auto number = member.communicator->counts().issued + 1;
            while ((board.last_entered(1 - rank) < number || board.waits_for(1 - rank) != rank) &&
                   !members.disturbed())
              std::this_thread::yield();
          }
          member.in.assign(4, static_cast<float>(i));
          ASSERT_EQ(member.again(), Outcome::kEnded);
          EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(2 * i)));
        }
      },
      config);
}

inline void differ_and_be_named(const Config& config) {
  with_two(
      [](Rank rank, Member& member, std::barrier<>&) {
        std::string message;
        if (rank == 0) {
          EXPECT_EQ(member.again(), Outcome::kFailed);
          message = member.message;
        } else {
          member.in.resize(3);
          const Status status = member.ordinary();
          ASSERT_FALSE(status);
          message = status.error().message;
          member.in.resize(4);
        }
        EXPECT_THAT(message, ::testing::HasSubstr("all_reduce #4 count 4 float sum"));
        EXPECT_THAT(message, ::testing::HasSubstr("all_reduce #4 count 3 float sum"));
        EXPECT_EQ(member.again(), Outcome::kElsewhere);  // which says why
        EXPECT_FALSE(member.ordinary());
      },
      config);
}

inline void come_late_and_be_named(Config config, std::int64_t timeout_ns) {
  config.op_timeout_ns = timeout_ns;
  with_two(
      [](Rank rank, Member& member, std::barrier<>&) {
        if (rank == 1) return;
        EXPECT_EQ(member.again(), Outcome::kFailed);
        EXPECT_THAT(member.message, ::testing::HasSubstr("rank 1 (pid"));
        EXPECT_THAT(member.message, ::testing::HasSubstr("all_reduce #4 count 4 float sum"));
      },
      config);
}

}  // namespace tutti::test
