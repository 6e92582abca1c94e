// SPDX-License-Identifier: Apache-2.0
#include "control/event_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "base/clock.hpp"

namespace tutti::control {
namespace {

constexpr EventLoop::Token kWakeToken = 0;
constexpr std::int64_t kLongestWaitMs = 3'600'000;

int wait_ms(std::int64_t until_ns) {
  if (until_ns == INT64_MAX) return -1;
  const std::int64_t left_ns = std::max<std::int64_t>(until_ns - now_ns(), 0);
  return static_cast<int>(std::min((left_ns + 999'999) / 1'000'000, kLongestWaitMs));
}

}  // namespace

EventLoop::EventLoop(ProcessFd epoll, ProcessFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {
  posted_.reserve(kPostedWithoutMemory);
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  ProcessFd epoll = ProcessFd::from([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!epoll) return errno_error("cannot create an epoll instance", errno);
  ProcessFd wake = ProcessFd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake) return errno_error("cannot create an eventfd", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeToken}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return errno_error("cannot watch an eventfd", errno);
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

EventLoop::Token EventLoop::add(int fd, std::uint32_t events, Callback callback) {
  const Token token = next_token_++;
  epoll_event event{.events = events, .data = {.u64 = token}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return 0;
  watches_.emplace(token, Watch{fd, std::make_shared<Callback>(std::move(callback))});
  return token;
}

void EventLoop::modify(Token token, std::uint32_t events) {
  const auto found = watches_.find(token);
  if (found == watches_.end()) return;
  epoll_event event{.events = events, .data = {.u64 = token}};
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event));
}

void EventLoop::remove(Token token) {
  const auto found = watches_.find(token);
  if (found == watches_.end()) return;
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr));
  watches_.erase(found);
}

int EventLoop::run_once(std::int64_t until_ns) {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms(until_ns));
  const std::span ready(events.data(), static_cast<std::size_t>(std::max(count, 0)));
  const auto is_wake = [](const epoll_event& event) { return event.data.u64 == kWakeToken; };
  // What was posted comes first: a callback that throws each time would keep the order to stop
  // waiting behind it for ever.
  if (std::ranges::any_of(ready, is_wake)) run_posted();
  for (const epoll_event& event : ready) {
    if (is_wake(event)) continue;
    // An earlier callback of this batch may have removed it.
    const auto found = watches_.find(event.data.u64);
    if (found == watches_.end()) continue;
    const std::shared_ptr<Callback> callback = found->second.callback;
    (*callback)(event.events);
  }
  return static_cast<int>(ready.size());
}

void EventLoop::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  wake();
}

void EventLoop::wake() {
  const std::uint64_t one = 1;  // cannot fail: the counter is far from full
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

// What follows a piece of work that throws is not lost.
void EventLoop::run_posted() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  try {
    while (const auto work = take_posted()) work();
  } catch (...) {
    wake();
    throw;
  }
}

// Empty: there is none.
std::function<void()> EventLoop::take_posted() {
  const std::lock_guard lock(mutex_);
  if (next_posted_ == posted_.size()) {
    posted_.clear();
    next_posted_ = 0;
    return {};
  }
  return std::move(posted_[next_posted_++]);
}

}  // namespace tutti::control
