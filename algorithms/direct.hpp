// SPDX-License-Identifier: Apache-2.0
// What the direct forms of families share: their parameter and their signals. A signal is an empty
// message; it orders what the ranks do in each other's memory. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti {

// How the data of a form moves: in messages, or by loads from and stores into peers' memory.
enum class Access : std::uint8_t { kMessages, kRemote, kStore };

// The one parameter of such a family.
inline constexpr std::string_view kAccessParameter = "access=messages|remote|store";

// For with() of such a family: the form that the parameters name. `refuse` answers for a parameter
// that names none.
template <typename Family, typename Refuse>
[[nodiscard]] Result<std::unique_ptr<Algorithm>> form_with(std::span<const Parameter> given,
                                                           std::string_view remote_name,
                                                           std::string_view store_name,
                                                           const Refuse& refuse) {
  Access access = Access::kMessages;
  for (const Parameter& parameter : given) {
    if (parameter.key == "access" && parameter.value == "remote")
      access = Access::kRemote;
    else if (parameter.key == "access" && parameter.value == "store")
      access = Access::kStore;
    else if (parameter.key != "access" || parameter.value != "messages")
      return refuse(parameter);
  }
  if (access == Access::kRemote) return std::make_unique<Family>(access, remote_name);
  if (access == Access::kStore) return std::make_unique<Family>(access, store_name);
  return std::make_unique<Family>();
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
