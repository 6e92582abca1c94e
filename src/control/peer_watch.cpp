// SPDX-License-Identifier: Apache-2.0
#include "control/peer_watch.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

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
  std::vector<WatchTarget> all;  // by the lowest rank
  std::map<std::int32_t, std::size_t> of_pid;
  std::ptrdiff_t before = 0;  // of them, those before our own process
  bool met_own = false;
  for (const Member& member : members) {
    const bool same_host = member.info.host_id == self.info.host_id;
    if (same_host && member.info.process_token == self.info.process_token) {
      if (!std::exchange(met_own, true)) before = std::ssize(all);
      continue;
    }
    if (!same_host || member.pid_namespace != self.pid_namespace) {
      plan.unseen.push_back(member.info.rank);
      continue;
    }
    const auto [known, fresh] = of_pid.emplace(member.info.pid, all.size());
    if (fresh) all.push_back({member.info.pid, member.start_ticks, {}});
    all[known->second].ranks.push_back(member.info.rank);
  }
  std::rotate(all.begin(), all.begin() + before, all.end());
  std::reverse(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    (std::has_single_bit(i + 1) ? plan.near : plan.others).push_back(std::move(all[i]));
  return plan;
}

void PeerWatch::start(const std::vector<WatchTarget>& targets, std::function<void(Rank)> on_death) {
  stop();
  on_death_ = std::move(on_death);
  add(targets);
}

void PeerWatch::add(const std::vector<WatchTarget>& targets) {
  const std::size_t first = watched_.size();
  watched_.resize(first + targets.size());
  for (std::size_t i = first; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    watched.target = targets[i - first];
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
