// SPDX-License-Identifier: Apache-2.0
// A rank with calls that repeat, below the C API: whether one did, and how it ended.
#pragma once

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

}  // namespace tutti::test
