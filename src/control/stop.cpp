// SPDX-License-Identifier: Apache-2.0
#include "control/stop.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

namespace tutti::control {

Result<std::unique_ptr<StopSignal>> StopSignal::create() {
  ProcessFd fd = ProcessFd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!fd) return errno_error("cannot create an eventfd", errno);
  return std::unique_ptr<StopSignal>(new StopSignal(std::move(fd)));
}

void StopSignal::raise() {
  if (!fd_.of_this_process()) return;
  const std::uint64_t one = 1;  // never read back, so it stays raised
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

Status wait_for(int socket, short events, const Stop& stop, Deadline deadline) {
  std::array<pollfd, 2> watched{{{.fd = socket, .events = events, .revents = 0},
                                 {.fd = stop.fd, .events = POLLIN, .revents = 0}}};
  for (;;) {
    std::int64_t left_ns = std::max<std::int64_t>(deadline.left_ns(), 0);
    if (stop.over != nullptr) left_ns = std::min(left_ns, Stop::kAskNs);
    const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    const int ready = ::ppoll(watched.data(), watched.size(), &left, nullptr);
    if (ready < 0 && errno != EINTR) return errno_error("cannot poll a socket", errno);
    if (ready > 0 && watched[1].revents != 0) {
      return make_error(Code::kInvalidUsage, "the communicator was closed during a call");
    }
    if (ready > 0) return {};
    if (stop.over != nullptr && (*stop.over)()) {
      return make_error(Code::kInvalidUsage, "the communicator ended during a call");
    }
    if (deadline.passed()) return make_error(Code::kTimeout, "there was no answer in time");
  }
}

Status Backoff::pause(const Stop& stop, Deadline deadline) {
  const Deadline end{std::min(deadline.at_ns, now_ns() + pause_ns_)};
  pause_ns_ = std::min(2 * pause_ns_, longest_ns_);
  Status waited = wait_for(-1, 0, stop, end);
  if (!waited && waited.error().code != Code::kTimeout) return waited;
  if (deadline.passed())
    return make_error(Code::kTimeout, "the other end keeps closing the connection");
  if (--attempts_left_ > 0) return {};
  return make_error(Code::kRemoteError, "the other end keeps closing the connection");
}

}  // namespace tutti::control
