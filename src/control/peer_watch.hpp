// SPDX-License-Identifier: Apache-2.0
// Notices that processes of this host end: pidfds in the loop's epoll, or, where the kernel or a
// sandbox refuses them, a look at /proc every kPollNs.
//
// A pid alone is not a process: the start time, exchanged when the job met, tells a dead rank from
// a stranger that got its pid. Runs on the thread of its loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "control/event_loop.hpp"
#include "control/messages.hpp"
#include "control/process_stat.hpp"

namespace tutti::control {

struct WatchTarget {
  std::int32_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::vector<Rank> ranks;  // the ranks that live in it
};

struct WatchPlan {
  std::vector<WatchTarget> near;    // the processes 1, 2, 4 ... before our own, in turn
  std::vector<WatchTarget> others;  // of which these tell
  std::vector<Rank> unseen;         // on other hosts or in other pid namespaces
};
// Every process but our own, once.
[[nodiscard]] WatchPlan plan_watch(const std::vector<Member>& members, const Member& self);

enum class WatchMode { kPidfd, kPoll };

class PeerWatch {
 public:
  static constexpr std::int64_t kPollNs = 100'000'000;

  PeerWatch(EventLoop& loop, WatchMode mode) : loop_(loop), mode_(mode) {}
  ~PeerWatch() { stop(); }
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Calls `on_death` once for each rank of each target that ends, or has ended.
  void start(const std::vector<WatchTarget>& targets, std::function<void(Rank)> on_death);
  // More of them, once started.
  void add(const std::vector<WatchTarget>& targets);
  void stop();
  void tick(std::int64_t at_ns);
  [[nodiscard]] std::int64_t next_tick_ns() const { return next_poll_ns_; }

 private:
  struct Watched {
    WatchTarget target;
    ProcessFd pidfd;  // empty: polled
    EventLoop::Token token = 0;
    bool ended = false;
  };

  void end(std::size_t index);

  EventLoop& loop_;
  WatchMode mode_;
  std::function<void(Rank)> on_death_;
  std::vector<Watched> watched_;
  std::int64_t next_poll_ns_ = INT64_MAX;
};

}  // namespace tutti::control
