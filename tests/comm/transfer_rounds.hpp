// SPDX-License-Identifier: Apache-2.0
// Random sends and receives among the ranks of a job, checked against what every rank computes from
// the seed alone. Each round is a group: any number of messages between any two ranks, a rank to
// itself included, of any type and length, issued in another order at every rank.
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace tutti::test {

struct TransferRounds {
  unsigned seed = 0;
  int rounds = 20;
  std::size_t most_bytes = 1 << 20;  // of a message; most are far shorter
  int most_per_pair = 3;
};

struct Message {
  int source = 0, destination = 0;
  std::size_t count = 0;
  int type = 0;
  std::uint32_t salt = 0;

  [[nodiscard]] std::size_t bytes() const {
    return count * element_bytes(static_cast<DataType>(type));
  }
  [[nodiscard]] std::byte at(std::size_t i) const {
    return static_cast<std::byte>((i * 31 + salt) >> (i % 3));
  }
};

// The messages of one round, in the order in which each pair issues its own; equal on all ranks.
inline std::vector<Message> draw_messages(std::mt19937& random, int ranks,
                                          const TransferRounds& what) {
  std::vector<Message> messages;
  for (int source = 0; source < ranks; ++source)
    for (int destination = 0; destination < ranks; ++destination) {
      const auto some = random() % static_cast<unsigned>(what.most_per_pair + 1);
      for (unsigned i = 0; i < some; ++i) {
        Message one{.source = source,
                    .destination = destination,
                    .salt = static_cast<std::uint32_t>(random())};
        one.type = static_cast<int>(random() % kDataTypeCount);
        std::size_t bits = 0;
        while (std::size_t{2} << bits <= what.most_bytes) ++bits;
        const std::size_t bytes = random() % (std::size_t{1} << random() % (bits + 1));
        one.count = bytes / element_bytes(static_cast<DataType>(one.type));
        messages.push_back(one);
      }
    }
  return messages;
}

// The stream of this rank's calls, and what waits for it; host memory by default.
struct OnStream {
  tuttiStream_t stream = nullptr;
  std::function<void()> synchronize = [] {};
};

// One round of this rank; "" or what is wrong.
inline std::string run_round(tuttiComm_t comm, int rank, const std::vector<Message>& messages,
                             std::mt19937 order, const OnStream& on) {
  constexpr std::byte kGuard{0xa5};
  struct Mine {
    const Message* message;
    bool sends;
    std::vector<std::byte> data;
  };
  std::vector<Mine> mine;
  for (const Message& one : messages) {
    if (one.source == rank) {
      mine.push_back({&one, true, std::vector<std::byte>(one.bytes() + 1, kGuard)});
      for (std::size_t i = 0; i < one.bytes(); ++i) mine.back().data[i] = one.at(i);
    }
    if (one.destination == rank)
      mine.push_back({&one, false, std::vector<std::byte>(one.bytes() + 1, kGuard)});
  }
  // Any order that keeps each pair's own.
  const auto salt = static_cast<std::uint32_t>(order());
  const auto key = [&](std::size_t i) {
    const Message& one = *mine[i].message;
    const int peer = mine[i].sends ? one.destination : one.source;
    return (static_cast<std::uint32_t>(2 * peer + mine[i].sends) ^ salt) * 2654435761u;
  };
  std::vector<std::size_t> issue(mine.size());
  std::iota(issue.begin(), issue.end(), 0);
  std::ranges::stable_sort(issue, {}, key);
  if (tuttiGroupStart() != tuttiSuccess) return "no group";
  for (const std::size_t i : issue) {
    Mine& one = mine[i];
    const auto type = static_cast<tuttiDataType_t>(one.message->type);
    const tuttiResult_t result = one.sends ? tuttiSend(one.data.data(), one.message->count, type,
                                                       one.message->destination, comm, on.stream)
                                           : tuttiRecv(one.data.data(), one.message->count, type,
                                                       one.message->source, comm, on.stream);
    if (result != tuttiSuccess) return tuttiGetLastError(comm);
  }
  if (tuttiGroupEnd() != tuttiSuccess) return tuttiGetLastError(nullptr);
  on.synchronize();
  for (const Mine& one : mine) {
    for (std::size_t i = 0; i < one.message->bytes(); ++i)
      if (one.data[i] != one.message->at(i))
        return "from " + std::to_string(one.message->source) + " to " +
               std::to_string(one.message->destination) + " byte " + std::to_string(i) + " of " +
               std::to_string(one.message->bytes());
    if (one.data.back() != kGuard) return "a byte behind a buffer was written";
  }
  return {};
}

inline void check_rounds(tuttiComm_t comm, int rank, int ranks, const TransferRounds& what,
                         const OnStream& on = {}) {
  std::mt19937 random(what.seed);  // the same sequence on every rank
  for (int round = 0; round < what.rounds; ++round) {
    const std::vector<Message> messages = draw_messages(random, ranks, what);
    const std::mt19937 order(what.seed + static_cast<unsigned>(1000 * round + rank));
    ASSERT_EQ(run_round(comm, rank, messages, order, on), "")
        << "round " << round << " rank " << rank << " of " << ranks << " seed " << what.seed;
  }
}

}  // namespace tutti::test
