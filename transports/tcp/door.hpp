// SPDX-License-Identifier: Apache-2.0
// Who connects to a rank, until it has shown that it is a peer.
//
// Anybody may knock. A connection that does not begin with a hello of this protocol and version,
// with a token that this rank gave away, is dropped as soon as that shows; one of another version
// is told so. Who says nothing is dropped after kSilenceNs; of more than kMostNewcomers the oldest
// is. The log warns of the 1st, 2nd, 4th, 8th ... stranger. While the process has no descriptor
// left nothing is accepted and connections wait with the kernel; the log says so once.
// User thread, in progress(). Knows no frame and no stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/process_fd.hpp"
#include "base/result.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/invitations.hpp"

namespace tutti::tcp {

class Door {
 public:
  static constexpr std::size_t kMostNewcomers = 256;
  static constexpr int kMostAccepts = 64;  // in one turn
  static constexpr std::int64_t kSilenceNs = 10'000'000'000;
  static constexpr std::int64_t kShortagePauseNs = 50'000'000;
  static constexpr std::int64_t kShortageNs = 1'000'000'000;
  // Events of epoll from here on are the door's.
  static constexpr std::uint64_t kFirstEvent = std::uint64_t{1} << 40;

  // A peer that proved who it is and waits for a reply with this token. `socket` has left epoll.
  using Admit = std::function<void(Rank from, ProcessFd socket, const Token& reply)>;
  // `epoll` and `invitations` outlive it.
  Door(int epoll, Rank self, Invitations& invitations, const Log& log, Admit admit)
      : epoll_(epoll), self_(self), invitations_(invitations), log_(log), admit_(admit) {}

  // Listens at `at`; port 0: any that is free. The address. Errors: kInvalidArgument (no address of
  // this host), kSystemError.
  [[nodiscard]] Result<TcpAddress> open(const TcpAddress& at);
  void hear(std::uint64_t event);
  // What time brings; call it now and then. Error: kSystemError (for kShortageNs there has been no
  // descriptor for a peer that was invited).
  [[nodiscard]] Status tick();
  [[nodiscard]] std::size_t newcomers() const { return newcomers_.size(); }
  [[nodiscard]] std::uint64_t strangers() const { return strangers_; }

 private:
  struct Newcomer {
    ProcessFd socket;
    std::int64_t since_ns = 0;
    Hello hello{};
    std::size_t have_bytes = 0;
  };
  using Newcomers = std::map<std::uint64_t, Newcomer>;  // by event, so the oldest comes first

  void accept_some();
  [[nodiscard]] bool somebody_waits() const;
  void run_short(int error_number);
  void listen_to(Newcomers::iterator newcomer);
  void welcome(Newcomers::iterator newcomer);
  void drop(Newcomers::iterator newcomer, LogLevel level, std::string_view why);
  [[nodiscard]] Status watch(int fd, std::uint64_t event) const;
  void unwatch(int fd) const;

  const int epoll_;
  const Rank self_;
  Invitations& invitations_;
  const Log log_;
  const Admit admit_;
  ProcessFd listener_;
  Newcomers newcomers_;
  std::uint64_t next_event_ = kFirstEvent + 1;
  std::int64_t short_since_ns_ = 0, resume_ns_ = 0;  // 0: nothing is short
  int short_errno_ = 0;
  std::uint64_t strangers_ = 0, warnings_ = 0;
};

}  // namespace tutti::tcp
