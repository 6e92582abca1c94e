// SPDX-License-Identifier: Apache-2.0
// The TCP sockets of the control plane and of the data plane: how they listen, connect and accept,
// and how a host that is gone is noticed. Non-blocking, close-on-exec, without Nagle's delay; a
// forked child has none of them. The caller says what an errno means. Any thread.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "base/process_fd.hpp"
#include "base/tcp_address.hpp"

namespace tutti::tcp {

// A socket's name as the kernel has it.
struct SocketName {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
[[nodiscard]] SocketName name_of(const TcpAddress& address);
// nullopt: neither IPv4 nor IPv6.
[[nodiscard]] std::optional<TcpAddress> address_of(const sockaddr* name);
[[nodiscard]] std::optional<TcpAddress> own_address(int socket);

// `type`: SOCK_STREAM or SOCK_DGRAM. Empty, with errno.
[[nodiscard]] ProcessFd open_socket(const TcpAddress& of, int type);
// At `at`; port 0: any that is free, own_address() says which. Empty, with errno.
[[nodiscard]] ProcessFd listen_at(const TcpAddress& at);
// On its way to `to`, there once it is writable. Empty, with errno: refused at once.
[[nodiscard]] ProcessFd start_connect(const TcpAddress& to);
// Call it when such a socket is writable. Returns 0, or the errno of the failed connection to `to`.
[[nodiscard]] int outcome_of_connect(int socket, const TcpAddress& to);
// The next that has connected; empty, with errno (EAGAIN: none).
[[nodiscard]] ProcessFd accept_from(int listener);

// Returns whether the other end's host has acknowledged nothing for as long as an idle connection
// is given, although this end has repeated what it sent, or asked whether there is room again, more
// than once. A peer that does not read answers that.
[[nodiscard]] bool is_unanswered(int socket);

// Returns whether accept_from() failed for lack of descriptors or memory, so that the same
// connection still waits.
[[nodiscard]] bool is_shortage(int error_number);

}  // namespace tutti::tcp
