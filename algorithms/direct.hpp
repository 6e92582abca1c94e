// SPDX-License-Identifier: Apache-2.0
// What the direct forms of families share: their signals. A signal is an empty message; it orders
// what the ranks do in each other's memory. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti {

// How the data of a form moves: in messages, or by loads from and stores into peers' memory.
enum class Access : std::uint8_t { kMessages, kRemote, kStore };

// What the parameter says; nothing: it is no "access", or there is no such one.
[[nodiscard]] inline std::optional<Access> access_in(const Parameter& parameter) {
  if (parameter.key != "access") return std::nullopt;
  if (parameter.value == "messages") return Access::kMessages;
  if (parameter.value == "remote") return Access::kRemote;
  if (parameter.value == "store") return Access::kStore;
  return std::nullopt;
}

inline constexpr Tag kSignalTag = 0;
inline constexpr Span kNoChunk{.run = 0};

inline void tell(Rank peer, LaneBuilder& lane) {
  using namespace operands;
  lane.step().to(send(peer, kSignalTag, kNoChunk)).from(input(kNoChunk));
}

inline void hear(Rank peer, LaneBuilder& lane) {
  using namespace operands;
  lane.step().to(output(kNoChunk)).from(recv(peer, kSignalTag, kNoChunk));
}

// All of p ranks but `rank` itself.
inline void tell_all(Rank p, Rank rank, LaneBuilder& lane) {
  using namespace operands;
  StepBuilder step = lane.step().from(input(kNoChunk));
  for (Rank k = 1; k < p; ++k) step.to(send((rank + k) % p, kSignalTag, kNoChunk));
}

inline void hear_all(Rank p, Rank rank, LaneBuilder& lane) {
  using namespace operands;
  StepBuilder step = lane.step().to(output(kNoChunk));
  for (Rank k = 1; k < p; ++k) step.from(recv((rank + p - k) % p, kSignalTag, kNoChunk));
}

}  // namespace tutti
