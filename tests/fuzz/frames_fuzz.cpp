// SPDX-License-Identifier: Apache-2.0
// Any bytes as a TCP stream, before the proof (first byte even) and after it (odd).
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "control/channel.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

using namespace control;

struct Ends {
  Channel channel;
  UniqueFd other;
};

Ends connect_ends(bool is_protected) {
  std::array<int, 2> ends{-1, -1};
  ProcessFd mine = ProcessFd::from([&] {
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
            "a socket pair");
    return ends[0];
  });
  Ends made{.channel = Channel(std::move(mine), Medium::kTcp), .other = UniqueFd(ends[1])};
  StreamKey key{};
  key.fill(std::byte{9});
  if (is_protected) made.channel.protect(key, key);
  return made;
}

// What an honest sender puts on the wire.
const std::vector<Bytes>& packets() {
  static const std::vector<Bytes> all = {Bytes(3, std::byte{1}), Bytes(100, std::byte{2})};
  return all;
}

Bytes wire_of(bool is_protected) {
  Ends ends = connect_ends(is_protected);
  Bytes wire{std::byte{is_protected}};
  for (const Bytes& packet : packets()) {
    require(ends.channel.send(packet) == IoState::kDone, "an honest packet is taken");
  }
  std::array<std::byte, 4096> buffer{};
  const ssize_t got = ::recv(ends.other.get(), buffer.data(), buffer.size(), 0);
  require(got > 0, "it is on the wire");
  wire.insert(wire.end(), buffer.begin(), buffer.begin() + got);
  return wire;
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const bool is_protected = (input[0] & std::byte{1}) != std::byte{0};
  const std::span<const std::byte> stream = input.subspan(1, std::min(input.size() - 1, 65536ul));
  Ends ends = connect_ends(is_protected);
  if (!stream.empty()) {
    require(::send(ends.other.get(), stream.data(), stream.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(stream.size()),
            "the stream fits into a socket");
  }
  ends.other.reset();
  Bytes buffer(kMaxPacketBytes);
  for (std::size_t count = 0;; ++count) {
    const Received received = ends.channel.receive(buffer, false);
    require(received.state != IoState::kAgain, "the end of the stream is seen");
    if (received.state != IoState::kDone) return;
    const auto packet = std::span(buffer).first(received.packet_bytes);
    require(!packet.empty(), "a packet has contents");
    require(is_protected || packet.size() <= kMaxHandshakeBytes, "unproved packets are short");
    require(
        !is_protected || (count < packets().size() && std::ranges::equal(packet, packets()[count])),
        "only what was sealed opens, in its order");
  }
}

std::vector<Bytes> seeds() { return {wire_of(false), wire_of(true)}; }

}  // namespace tutti::fuzz
