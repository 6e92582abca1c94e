// SPDX-License-Identifier: Apache-2.0
#include "control/peer_watch.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/clock.hpp"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same number on every architecture
#endif

namespace tutti::control {
namespace {

bool has_ended(const WatchTarget& target) {
  const std::optional<ProcessStat> stat = read_process_stat(target.pid);
  if (!stat) return ::kill(target.pid, 0) != 0 && errno == ESRCH;
  if (stat->state == 'Z' || stat->state == 'X') return true;
  return target.start_ticks != 0 && stat->start_ticks != target.start_ticks;
}

}  // namespace

WatchPlan plan_watch(const std::vector<Member>& members, const Member& self) {
  WatchPlan plan;
  for (const Member& member : members) {
    const bool same_host = member.info.host_id == self.info.host_id;
    if (same_host && member.info.process_token == self.info.process_token) continue;
    if (!same_host || member.pid_namespace != self.pid_namespace) {
      plan.unseen.push_back(member.info.rank);
      continue;
    }
    const auto known = std::ranges::find(plan.targets, member.info.pid, &WatchTarget::pid);
    if (known != plan.targets.end()) {
      known->ranks.push_back(member.info.rank);
    } else {
      plan.targets.push_back(
          {.pid = member.info.pid, .start_ticks = member.start_ticks, .ranks = {member.info.rank}});
    }
  }
  return plan;
}

void PeerWatch::start(const std::vector<WatchTarget>& targets, std::function<void(Rank)> on_death) {
  stop();
  on_death_ = std::move(on_death);
  watched_.resize(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Watched& watched = watched_[i];
    watched.target = targets[i];
    if (mode_ == WatchMode::kPidfd) {
      watched.pidfd = ProcessFd::from(
          [&] { return static_cast<int>(::syscall(SYS_pidfd_open, watched.target.pid, 0)); });
    }
    if (watched.pidfd) {
      watched.token = loop_.add(watched.pidfd.get(), EPOLLIN, [this, i](std::uint32_t) { end(i); });
    }
    // Asked after the pidfd is there: if this process is the right one now, the pidfd is its.
    if (has_ended(watched.target)) {
      end(i);
    } else if (watched.token == 0) {
      next_poll_ns_ = now_ns() + kPollNs;
    }
  }
}

void PeerWatch::stop() {
  for (const Watched& watched : watched_) {
    if (watched.token != 0) loop_.remove(watched.token);
  }
  watched_.clear();
  next_poll_ns_ = INT64_MAX;
}

void PeerWatch::end(std::size_t index) {
  Watched& watched = watched_[index];
  if (watched.ended) return;
  watched.ended = true;
  if (watched.token != 0) loop_.remove(watched.token);
  watched.token = 0;
  watched.pidfd.reset();
  for (const Rank rank : watched.target.ranks) on_death_(rank);
}

void PeerWatch::tick(std::int64_t at_ns) {
  if (next_poll_ns_ > at_ns) return;
  bool again = false;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].ended || watched_[i].token != 0) continue;
    if (has_ended(watched_[i].target)) {
      end(i);
    } else {
      again = true;
    }
  }
  next_poll_ns_ = again ? at_ns + kPollNs : INT64_MAX;
}

}  // namespace tutti::control
