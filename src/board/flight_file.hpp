// SPDX-License-Identifier: Apache-2.0
// The flight recorder's file: a board that outlives every rank, for the case that all are killed.
//
// One file per communicator and host in the folder TUTTI_FLIGHT_DIR, mode 0600, its pages reserved
// when it is made, so that a full disk is an error then and not a SIGBUS later. Mapped memory of a
// file cannot be sealed: whoever can truncate it, which is this user or root, ends its ranks as
// surely as with kill. Removed when every rank has left in order, left behind otherwise. For a
// local file system. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "control/control_plane.hpp"

namespace tutti::control {

// Names the owner of the status page.
struct BoardName {
  std::array<std::byte, kSessionIdBytes> session{};
  std::string host;
  Rank first = 0;          // of the ranks on this host
  std::int32_t ranks = 0;  // of the communicator
};

// "tutti-<session in hex>-<host>-rank<first>-XXXXXX.board". Runs that meet by an address and a
// secret have one session, so what a killed run left behind must not be in the way of the next: the
// X become what makes the name unique.
[[nodiscard]] std::string flight_file_template(const BoardName& name);
[[nodiscard]] std::string session_text(const std::array<std::byte, kSessionIdBytes>& session);
// Does a path end in a name of that form?
[[nodiscard]] bool has_flight_name(const std::string& path);

// `bytes` zeros in a new file. Errors: kSystemError, naming the file.
[[nodiscard]] Result<UniqueFd> make_flight_file(const std::string& folder, const BoardName& name,
                                                std::size_t bytes);
// A regular file that has a name.
[[nodiscard]] bool is_flight_file(int fd);
// Checks that the descriptor from a peer is a flight recorder's file of exactly `bytes` that only
// this user can open. Errors: kRemoteError, kSystemError.
[[nodiscard]] Status check_flight_file(int fd, std::size_t bytes);
// Takes the name away, if `fd` is such a file and still has its name.
void remove_flight_file(int fd) noexcept;

}  // namespace tutti::control
