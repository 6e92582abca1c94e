// SPDX-License-Identifier: Apache-2.0
// Sockets of the control plane: who listens where, and how a connection comes about. Non-blocking,
// close-on-exec.
//
// An address is a text with a scheme. "unix:@NAME" is a random 128-bit name in the abstract
// namespace: nothing is left behind, not even after SIGKILL, and other network namespaces cannot
// see it. "unix:/path" is the fallback where abstract names are refused: a 0600 socket in a fresh
// 0700 directory, removed with its listener. Both ends check that the other is of the same user.
// "tcp:10.0.0.1:4000" and "tcp:[fd00::1]:4000" reach other hosts; anybody may knock there.
//
// Any thread; each object one thread at a time. Knows no handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/tcp_address.hpp"
#include "control/channel.hpp"
#include "control/stop.hpp"

namespace tutti::control {

// Fits a sockaddr_un with its scheme; addresses from peers are checked against it.
inline constexpr std::size_t kMaxAddressBytes = 108;
// The shorter bound of what fits into a unique id, without the scheme.
inline constexpr std::size_t kMaxLocalNameBytes = 36;

enum class ListenKind { kAny, kAbstract, kPath };

class Listener {
 public:
  Listener() = default;
  Listener(ProcessFd fd, Medium medium, std::string address, std::string directory = "");
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();  // removes the fallback's directory, in the process that made it only

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] Medium medium() const { return medium_; }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ProcessFd fd_;
  Medium medium_ = Medium::kUnix;
  std::string address_;
  std::string directory_;  // empty: none
};

// A listener under a fresh random name. Never blocks. Error: kSystemError.
[[nodiscard]] Result<Listener> listen_local(ListenKind kind = ListenKind::kAny);
// A listener at that address alone; port 0: any that is free. Never blocks. Errors: kSystemError
// (the port is taken), kInvalidArgument (the address is not of this host).
[[nodiscard]] Result<Listener> listen_tcp(const TcpAddress& at);

// Connects, over Unix sockets also checks that the listener is of this user. Blocks until
// `deadline` at most (the listener's queue may be full, the host may not answer), over TCP for some
// seconds at most: then another attempt does better. Errors: kRemoteError (nobody listens there, or
// another user does), kTimeout (also: the network has no way there at the moment), kNotSupported
// (scheme), kInvalidUsage (stopped), kSystemError.
[[nodiscard]] Result<Channel> connect_to(std::string_view address, const Stop& stop,
                                         Deadline deadline);

// The next connection, over Unix sockets of a peer of this user; empty with errno (EAGAIN: none;
// EACCES: one of another user was dropped).
[[nodiscard]] Channel accept_from(const Listener& listener);

}  // namespace tutti::control
