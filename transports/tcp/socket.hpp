// The sockets under the streams: non-blocking, close-on-exec, without Nagle's delay. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti::tcp {

// Where a rank listens; travels as it is.
struct Endpoint {
  std::array<std::byte, 16> ip{};  // network order; IPv4: the first four
  std::uint16_t port = 0;
  std::uint8_t v6 = 0;
  [[nodiscard]] std::string text() const;  // "10.0.0.1:4000", "[fd00::1]:4000"
};

struct Listening {
  UniqueFd socket;
  Endpoint at;
};

// At `ip`, "10.0.0.1" or "fd00::1", on any free port. Errors: kInvalidArgument (no address of this
// host), kSystemError.
[[nodiscard]] Result<Listening> listen_at(std::string_view ip);
// Blocks until `deadline` at most. Errors, without culprit: kRemoteError (nobody listens there any
// more), kSystemError (anything else that the kernel or the network says, silence too).
[[nodiscard]] Result<UniqueFd> connect_to(const Endpoint& endpoint, Deadline deadline);
// The next that has connected; empty: none.
[[nodiscard]] UniqueFd accept_from(int listener);

}  // namespace tutti::tcp
