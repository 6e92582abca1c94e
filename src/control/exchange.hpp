// SPDX-License-Identifier: Apache-2.0
// One rank's part in a log-step exchange, without a socket: who is told what in which round.
//
// Round k, distance d = 2^k: send what we have of the last min(d, p - d) ranks to rank + d, receive
// as much from rank - d (Bruck et al. 1997). After ceil(log2 p) rounds everybody has everything.
// Rank 0's announcement goes along, and each rank receives it once: after round k the ranks below
// 2^(k+1) have it. The root's introduction follows the same arithmetic, so it is told to a rank
// whom it will need. Pure; one thread at a time.
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

// The ranks that `rank` sends to, by round.
[[nodiscard]] std::vector<Rank> exchange_targets(Rank rank, std::int32_t ranks);
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
    Rank to = kNoRank;
    Rank from = kNoRank;
    std::span<const std::byte> message;  // for `to`; good until absorb()
    std::size_t expected_bytes = 0;      // from `from`
  };
  [[nodiscard]] bool complete() const { return distance_ >= ranks_; }
  [[nodiscard]] Round round();                       // the one at hand; not when complete
  void absorb(std::span<const std::byte> received);  // ends it; expected_bytes
  // All blobs in rank order. Once, when complete.
  [[nodiscard]] std::vector<std::byte> in_rank_order() const;

 private:
  [[nodiscard]] bool passes_on() const { return rank_ < distance_ && rank_ + distance_ < ranks_; }
  [[nodiscard]] bool is_told() const { return rank_ >= distance_ && rank_ < 2 * distance_; }

  const Rank rank_;
  const std::int32_t ranks_;
  const std::size_t blob_bytes_;
  std::uint32_t number_ = 0;
  std::int64_t distance_ = 1;
  std::vector<std::byte> blocks_;  // of rank, rank - 1, rank - 2, ...
  const std::span<std::byte> announced_;
  std::vector<std::byte> outgoing_;  // a message of blocks and what is announced
};

}  // namespace tutti::control
