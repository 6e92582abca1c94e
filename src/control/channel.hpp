// SPDX-License-Identifier: Apache-2.0
// A connection that carries whole packets or nothing, over either medium.
//
// Unix SOCK_SEQPACKET keeps packets apart and may carry a descriptor; the kernel vouches for what
// follows the handshake. TCP is a stream that anybody on the way can write into. A packet travels
// in a frame of its own: its length, then its bytes. Before the handshake is done a frame holds no
// more than a handshake packet. From protect() on it is sealed with ChaCha20-Poly1305 under a key
// of this connection and this direction, with the number of the frame as nonce: a frame that was
// forged, changed, repeated, left out, moved to another place, sent back or taken from another
// connection does not open, and ends the connection. So contents are secret, too; lengths and times
// are not.
//
// Never blocks. One thread at a time. Knows no handshake and no message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "base/process_fd.hpp"

namespace tutti::control {

inline constexpr std::size_t kMaxPacketBytes = 64 * 1024;

// Room for a packet. Most are short: what none has reached costs no memory.
class PacketBuffer {
 public:
  [[nodiscard]] std::span<std::byte> all() { return {bytes_.get(), kMaxPacketBytes}; }
  [[nodiscard]] std::span<const std::byte> first(std::size_t bytes) { return all().first(bytes); }

 private:
  std::unique_ptr<std::byte[]> bytes_ =
      std::make_unique_for_overwrite<std::byte[]>(kMaxPacketBytes);
};
// A handshake packet is at most this long; more is not read.
inline constexpr std::size_t kMaxHandshakeBytes = 128;

using StreamKey = std::array<std::byte, 32>;

enum class Medium : std::uint8_t { kUnix, kTcp };
enum class IoState { kDone, kAgain, kClosed, kViolation, kStarved };

struct Received {
  // kViolation: oversized, not sealed with the key, or descriptors that nobody asked for.
  // kStarved: a descriptor came, and this process may have no more (unix(7), MSG_CTRUNC).
  IoState state = IoState::kAgain;
  std::size_t packet_bytes = 0;
  UniqueFd fd;
};

class Channel {
 public:
  Channel() = default;
  // `socket` is connected and non-blocking.
  Channel(ProcessFd socket, Medium medium) : socket_(std::move(socket)), medium_(medium) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(socket_); }
  [[nodiscard]] bool carries_descriptors() const { return medium_ == Medium::kUnix; }
  // A TCP peer is whoever holds the keys.
  [[nodiscard]] bool needs_keys() const { return medium_ == Medium::kTcp; }
  // All later packets are sealed, in both directions. Nothing over Unix sockets.
  void protect(const StreamKey& sending, const StreamKey& receiving);

  // `want_fd`: accept at most one descriptor with the packet. Reads no byte beyond the packet, so
  // who watches the descriptor misses nothing.
  [[nodiscard]] Received receive(std::span<std::byte> buffer, bool want_fd);
  // receive() has met something that is no packet. The channel is of no more use.
  [[nodiscard]] bool violated() const { return violated_; }
  // Never raises SIGPIPE. `lent_fd` stays the caller's; -1: none. kAgain: nothing of it was taken.
  // kDone: it was; the rest of it may wait in unsent().
  [[nodiscard]] IoState send(std::span<const std::byte> packet, int lent_fd = -1);
  // A goodbye: where memory is short, or the other end does not read, nothing is sent.
  void send_last(std::span<const std::byte> packet) noexcept;
  // True: flush() when the socket is writable.
  [[nodiscard]] bool unsent() const { return sent_bytes_ < outgoing_.size(); }
  [[nodiscard]] IoState flush();
  // Bytes that the frames of a packet cost beside its own, once protected.
  static constexpr std::size_t kFrameOverheadBytes = 4 + 16;

 private:
  struct Direction {
    StreamKey key{};
    std::uint64_t next_frame = 0;
  };
  static constexpr std::size_t kLengthBytes = 4;

  [[nodiscard]] Received receive_frame(std::span<std::byte> buffer);
  [[nodiscard]] IoState read_into(std::span<std::byte> field, std::size_t& have_bytes);
  [[nodiscard]] bool open_frame(std::span<std::byte> buffer, std::size_t& packet_bytes);

  ProcessFd socket_;
  Medium medium_ = Medium::kUnix;
  bool violated_ = false;
  std::optional<Direction> sending_;
  std::optional<Direction> receiving_;
  std::array<std::byte, kLengthBytes> length_{};
  std::size_t length_have_bytes_ = 0;
  std::vector<std::byte> body_;  // of the frame that is coming in
  std::size_t body_have_bytes_ = 0;
  std::vector<std::byte> outgoing_;  // the frame that is going out
  std::size_t sent_bytes_ = 0;
};

}  // namespace tutti::control
