// SPDX-License-Identifier: Apache-2.0
// One rank's part in an exchange, without a socket: who is told what in which round.
//
// Along a binomial tree (Thakur, Rabenseifner and Gropp 2005), whose root is rank 0: in round k a
// rank whose lowest set bit is 2^k sends what it has of itself and the ranks after it to rank -
// 2^k; after ceil(log2 p) rounds rank 0 has everything, and as many further rounds bring it down
// the tree, together with what rank 0 announces. 2*(p - 1) messages between p - 1 pairs: where many
// ranks share few cores, or every pair has to shake hands, these cost more than rounds. (Bruck's
// exchange has half of the rounds, but a message of every rank to a new peer in each.) The root's
// introduction follows the same arithmetic, so it is told to a rank whom it will need. Pure; one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "control/messages.hpp"

namespace tutti::control {

// The ranks that exchange with each other, by place: all of a job, or some.
struct Circle {
  Rank place = 0;  // this rank's
  std::int32_t size = 0;
  std::function<Rank(Rank place)> rank_at;

  // Each rank has the place of its number.
  [[nodiscard]] static Circle of_all(Rank rank, std::int32_t ranks) {
    return {.place = rank, .size = ranks, .rank_at = [](Rank at) { return at; }};
  }
};

// The ranks that this one sends to, by round; kNoRank in rounds in which it does not.
[[nodiscard]] std::vector<Rank> exchange_targets(const Circle& circle);
// How many rounds an exchange among so many takes.
[[nodiscard]] std::uint32_t exchange_rounds(std::int32_t ranks);
// Returns the addresses of a rank's targets, which the root sends to it.
[[nodiscard]] Contacts find_contacts(const Circle& circle,
                                     const std::function<const Member&(Rank)>& member_of);
// An error where these are of several hosts, and one of them has no address for the others'.
[[nodiscard]] std::optional<Error> find_unreachable(std::span<const Member* const> members);

class Exchange {
 public:
  // `announced`: of equal length on all ranks; rank 0's is the others' when complete.
  Exchange(Rank rank, std::int32_t ranks, std::span<const std::byte> mine,
           std::span<std::byte> announced = {});

  struct Round {
    std::uint32_t number = 0;
    Rank to = kNoRank;                   // kNoRank: this rank sends nothing
    Rank from = kNoRank;                 // kNoRank: it receives nothing
    std::span<const std::byte> message;  // for `to`; good until absorb()
    std::size_t expected_bytes = 0;      // from `from`
  };
  [[nodiscard]] bool complete() const { return number_ == 2 * levels_; }
  [[nodiscard]] Round round();                       // the one at hand; not when complete
  void absorb(std::span<const std::byte> received);  // ends it; expected_bytes
  // All blobs in rank order. Once, when complete.
  [[nodiscard]] std::vector<std::byte> in_rank_order();

 private:
  [[nodiscard]] std::size_t whole_bytes() const {
    return blob_bytes_ * static_cast<std::size_t>(ranks_);
  }

  const Rank rank_;
  const std::int32_t ranks_;
  const std::uint32_t levels_;  // of the tree
  const std::size_t blob_bytes_;
  std::uint32_t number_ = 0;
  // Of this rank and some after it; at last of all ranks, and behind them what is announced.
  std::vector<std::byte> blobs_;
  const std::span<std::byte> announced_;
};

}  // namespace tutti::control
