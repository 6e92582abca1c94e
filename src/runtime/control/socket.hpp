// Local sockets of the control plane: SOCK_SEQPACKET, non-blocking, close-on-exec, same user only.
//
// An address is an opaque text with a scheme. "unix:@NAME" is a random 128-bit name in the abstract
// namespace: nothing is left behind, not even after SIGKILL, and other network namespaces cannot
// see it. "unix:/path" is the fallback where abstract names are refused: a 0600 socket in a fresh
// 0700 directory, removed with its listener. A scheme for other hosts goes into listen_at and
// connect_to alone.
//
// Whole packets or nothing. Any thread; each object one thread at a time. Knows no handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"
#include "runtime/control/control_fd.hpp"

namespace tutti::control {

inline constexpr std::size_t kMaxPacketBytes = 64 * 1024;
// Fits a sockaddr_un with its scheme; addresses from peers are checked against it.
inline constexpr std::size_t kMaxAddressBytes = 108;
// The shorter bound of what fits into a unique id.
inline constexpr std::size_t kMaxIdAddressBytes = 63;

enum class ListenKind { kAny, kAbstract, kPath };

class Listener {
 public:
  Listener() = default;
  Listener(ControlFd fd, std::string address, std::string directory);
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();  // removes the fallback's directory, in the process that made it only

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ControlFd fd_;
  std::string address_;
  std::string directory_;  // empty: abstract
};

// A listener under a fresh random name. Never blocks. Error: kSystemError.
[[nodiscard]] Result<Listener> listen_local(ListenKind kind = ListenKind::kAny);

// Connects and checks that the listener is of this user. Blocks until `deadline` at most (the
// listener's queue may be full). Errors: kRemoteError (nobody listens there any more, or another
// user does), kTimeout, kNotSupported (scheme), kSystemError.
[[nodiscard]] Result<ControlFd> connect_to(std::string_view address, Deadline deadline);

// The next connection of a peer of this user; empty with errno (EAGAIN: none; EACCES: one of
// another user was dropped).
[[nodiscard]] ControlFd accept_from(int listener);

enum class IoState { kDone, kAgain, kClosed, kViolation };

struct Received {
  IoState state = IoState::kAgain;  // kViolation: oversized, or descriptors that nobody asked for
  std::size_t packet_bytes = 0;
  UniqueFd fd;
};

// Never blocks. `want_fd`: accept at most one descriptor with the packet.
[[nodiscard]] Received receive_packet(int socket, std::span<std::byte> buffer, bool want_fd);
// Never blocks, never raises SIGPIPE. `lent_fd` stays the caller's; -1: none.
[[nodiscard]] IoState send_packet(int socket, std::span<const std::byte> packet, int lent_fd = -1);

}  // namespace tutti::control
