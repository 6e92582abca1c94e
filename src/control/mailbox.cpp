// SPDX-License-Identifier: Apache-2.0
#include "control/mailbox.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace tutti::control {
namespace {

constexpr std::uint32_t kMaxRounds = 64;  // of the three legs together

std::chrono::steady_clock::time_point time_point(Deadline deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns));
}

}  // namespace

bool Mailbox::in_window(std::uint64_t exchange, std::uint32_t round) const {
  return round < kMaxRounds && exchange >= state_.exchange && exchange <= state_.exchange + 1;
}

bool Mailbox::deposit(Rank source, std::uint64_t exchange, std::uint32_t round,
                      const Piece& piece) {
  if (round >= kMaxRounds || piece.total_bytes > kMaxExchangeBytes) return false;
  const std::lock_guard lock(mutex_);
  if (!in_window(exchange, round)) return true;  // of an exchange that failed: nobody wants it
  Message& message = messages_[{exchange, source, round}];
  if (!message.begun) {
    message.begun = true;
    message.total_bytes = piece.total_bytes;
  }
  if (piece.total_bytes != message.total_bytes || piece.offset != message.bytes.size())
    return false;
  message.bytes.insert(message.bytes.end(), piece.bytes.begin(), piece.bytes.end());
  if (message.complete()) changed_.notify_all();
  return true;
}

void Mailbox::deposit_failure(Rank source, std::uint64_t exchange, std::uint32_t round,
                              Error error) {
  const std::lock_guard lock(mutex_);
  if (!in_window(exchange, round)) return;
  messages_[{exchange, source, round}].failure = std::move(error);
  changed_.notify_all();
}

void Mailbox::source_came(Rank source) {
  const std::lock_guard lock(mutex_);
  gone_.erase(source);
}

void Mailbox::source_gone(Rank source) {
  const std::lock_guard lock(mutex_);
  gone_.insert(source);
  changed_.notify_all();
}

void Mailbox::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  changed_.notify_all();
}

void Mailbox::member_died(Rank rank, Error error) {
  const std::lock_guard lock(mutex_);
  if (!first_death_) {
    first_death_ = error;
    first_death_ns_ = now_ns();
  }
  dead_.emplace(rank, std::move(error));
  changed_.notify_all();
}

std::optional<Error> Mailbox::await_failure(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time_point(deadline), [&] { return failure_ || first_death_; });
  return failure_ ? failure_ : first_death_;
}

std::optional<Error> Mailbox::await_reason(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto told = [&] {
    return std::ranges::find_if(messages_, [&](const auto& entry) {
      return std::get<0>(entry.first) >= state_.exchange && entry.second.failure.has_value();
    });
  };
  changed_.wait_until(lock, time_point(deadline),
                      [&] { return failure_ || first_death_ || told() != messages_.end(); });
  if (failure_ || first_death_) return failure_ ? failure_ : first_death_;
  return told() != messages_.end() ? told()->second.failure : std::nullopt;
}

std::uint64_t Mailbox::enter() {
  const std::lock_guard lock(mutex_);
  ++state_.exchange;
  state_.waits_for = kNoRank;
  messages_.erase(messages_.begin(), messages_.lower_bound({state_.exchange, kNoRank, 0}));
  return state_.exchange;
}

void Mailbox::leave() {
  const std::lock_guard lock(mutex_);
  state_.waits_for = kNoRank;
}

void Mailbox::note_waits_for(Rank rank) {
  const std::lock_guard lock(mutex_);
  state_.waits_for = rank;
}

ExchangeState Mailbox::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Result<std::vector<std::byte>> Mailbox::take(Rank source, std::uint32_t round,
                                             std::size_t message_bytes, Deadline deadline) {
  std::unique_lock lock(mutex_);
  state_.waits_for = source;
  const Key key{state_.exchange, source, round};
  for (bool late = false;;) {
    const auto found = messages_.find(key);
    if (found != messages_.end() && found->second.begun &&
        found->second.total_bytes != message_bytes) {
      return make_error(Code::kInvalidUsage,
                        fmt::format("rank {} sends {} bytes where this rank expects {}: pass the "
                                    "same size on all ranks",
                                    source, found->second.total_bytes, message_bytes),
                        source);
    }
    if (found != messages_.end() && found->second.complete()) {
      return std::move(messages_.extract(found).mapped().bytes);
    }
    if (found != messages_.end() && found->second.failure) {
      return tl::unexpected(*found->second.failure);
    }
    if (failure_) return tl::unexpected(*failure_);
    if (const auto dead = dead_.find(source); dead != dead_.end()) {
      return tl::unexpected(dead->second);
    }
    if (gone_.contains(source)) {
      return make_error(Code::kRemoteError,
                        fmt::format("rank {} died or left during an exchange", source), source);
    }
    if (late && first_death_) return tl::unexpected(*first_death_);
    if (late) {
      return make_error(Code::kTimeout,
                        fmt::format("rank {} did not come to an exchange in time", source), source);
    }
    Deadline until = deadline;
    if (first_death_) until.at_ns = std::min(until.at_ns, first_death_ns_ + kDeathGraceNs);
    late = changed_.wait_until(lock, time_point(until)) == std::cv_status::timeout;
  }
}

}  // namespace tutti::control
