// SPDX-License-Identifier: Apache-2.0
#include "control/root.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "control/division.hpp"

namespace tutti::control {
namespace {

// "2, 5, 6 and 4 more"
std::string list_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return text;
}

}  // namespace

Root::Root(EventLoop& loop, const SessionKey& key, const Log& log, Doors doors,
           std::int64_t idle_ns)
    : loop_(loop), key_(key), log_(log), doors_(std::move(doors)), give_up_ns_(now_ns() + idle_ns) {
  for (const auto& door : doors_) strangers_before_ += door->strangers();
}

Root::~Root() {
  for (const auto& [key, connection] : connections_) loop_.remove(connection.token);
}

void Root::call_off(Rank rank, std::int32_t ranks, const Error& error) {
  if (ranks_ == 0) ranks_ = ranks;  // who comes still is to be told
  if (expects(rank)) told_.insert(rank);
  fail(error);
}

void Root::admit(Channel channel, const Claim& claim) {
  const ConnectionKey key = next_key_++;
  Connection connection{
      .channel = std::move(channel), .claim = claim, .check_in_by_ns = now_ns() + kCheckInNs};
  connection.token =
      loop_.add(connection.channel.fd(), EPOLLIN, [this, key](std::uint32_t) { receive(key); });
  if (connection.token != 0) connections_.emplace(key, std::move(connection));
}

void Root::receive(ConnectionKey key) {
  Connection& connection = connections_.at(key);
  std::array<std::byte, kFrameHeaderBytes + kMaxMessageBytes + 64> buffer;
  const Received received = connection.channel.receive(buffer, false);
  if (received.state == IoState::kAgain) return;
  if (received.state != IoState::kDone) return leave(key, "died or closed its connection");
  Reader reader(std::span(buffer.data(), received.packet_bytes));
  const FrameHeader header = read_header(reader);
  if (header.type == FrameType::kCheckIn && !connection.checked_in) {
    std::optional<CheckIn> arrival = decode_check_in(reader, connection.claim.rank);
    if (!arrival) return leave(key, "sent a malformed check-in");
    return check_in(key, std::move(*arrival));
  }
  if (header.type == FrameType::kDone && connection.checked_in && phase_ == Phase::kMet) {
    return finish(connection.claim.rank);
  }
  if (header.type == FrameType::kGiveUp) {
    const Claim claim = connection.claim;
    if (!connection.checked_in) hang_up(key);  // it says no more
    return call_off(claim.rank, claim.ranks, decode_error(reader, claim.ranks));
  }
  leave(key, "sent a message that is not expected here");
}

void Root::check_in(ConnectionKey key, CheckIn check_in) {
  Connection& connection = connections_.at(key);
  const Claim claim = connection.claim;
  connection.checked_in = true;
  if (failure_) {
    refuse(key);
    return check_linger();
  }
  const bool possible =
      check_in.root.roots <= claim.ranks &&
      Division(claim.ranks, check_in.root.roots).comes_to(check_in.root.number, claim.rank);
  if (!possible) return leave(key, "sent a malformed check-in");
  if (ranks_ == 0) {
    ranks_ = claim.ranks;
    first_ = claim.rank;
    self_ = check_in.root;
  }
  if (std::optional<Error> objection = object_to(check_in, claim)) {
    fail(std::move(*objection));
    refuse(key);
    return check_linger();
  }
  const std::int64_t left_ns = std::clamp<std::int64_t>(check_in.left_ns, 0, kLongestStayNs);
  attendees_.emplace(claim.rank, Attendee{.member = std::move(check_in.member),
                                          .connection = key,
                                          .deadline_ns = now_ns() + left_ns});
  if (attendees_.size() == expected()) meet();
}

// What makes the meeting impossible, once somebody has come.
std::optional<Error> Root::object_to(const CheckIn& check_in, const Claim& claim) const {
  const std::string who = describe(check_in.member.info);
  const Rank culprit = claim.rank < ranks_ ? claim.rank : kNoRank;
  if (claim.ranks != ranks_)
    return Error{Code::kInvalidUsage,
                 fmt::format("{} says the job has {} ranks, {} says {}: pass the same number "
                             "everywhere",
                             who, claim.ranks, describe(attendees_.at(first_).member.info), ranks_),
                 culprit};
  if (check_in.root != *self_)
    return Error{Code::kInvalidUsage,
                 fmt::format("{} and {} have different lists of unique ids: pass the same ids in "
                             "the same order to all ranks",
                             describe(attendees_.at(first_).member.info), who),
                 culprit};
  const auto same = attendees_.find(claim.rank);
  if (same == attendees_.end()) return std::nullopt;
  return Error{Code::kInvalidUsage,
               fmt::format("rank {} joined twice: {} and {}: give every rank its own number",
                           claim.rank, describe(same->second.member.info), who),
               claim.rank};
}

bool Root::expects(Rank rank) const {
  return !self_ || Division(ranks_, self_->roots).comes_to(self_->number, rank);
}

std::size_t Root::expected() const {
  return static_cast<std::size_t>(self_ ? Division(ranks_, self_->roots).expected_at(self_->number)
                                        : ranks_);
}

void Root::meet() {
  std::vector<const Member*> members;
  for (const auto& [rank, attendee] : attendees_) members.push_back(&attendee.member);
  if (std::optional<Error> error = find_unreachable(members)) return fail(std::move(*error));
  phase_ = Phase::kMet;
  const Division division(ranks_, self_->roots);
  for (const auto& [rank, attendee] : attendees_) {
    const Contacts contacts =
        contacts_at(division, self_->number, rank,
                    [&](Rank member) -> const Member& { return attendees_.at(member).member; });
    // A fresh socket's buffer holds this packet; one that does not belongs to a broken rank.
    Channel& channel = connections_.at(attendee.connection).channel;
    const IoState sent = channel.send(encode_met(contacts));
    if (sent == IoState::kClosed) continue;  // why, its last packet says, which is there
    if (sent != IoState::kDone || channel.unsent()) {
      return fail(
          {Code::kRemoteError,
           fmt::format("{} died or left before the job had met", describe(attendee.member.info)),
           rank});
    }
  }
}

void Root::finish(Rank rank) {
  Attendee& attendee = attendees_.at(rank);
  attendee.done = true;
  hang_up(attendee.connection);
  if (++done_count_ == attendees_.size()) phase_ = Phase::kOver;
}

void Root::leave(ConnectionKey key, const char* how) {
  const Connection& connection = connections_.at(key);
  const Rank rank = connection.claim.rank;
  const auto found = attendees_.find(rank);
  const bool attends = found != attendees_.end() && found->second.connection == key;
  hang_up(key);
  if (!attends || failure_) return;
  fail({Code::kRemoteError,
        fmt::format("{} {} before the job had met", describe(found->second.member.info), how),
        rank});
}

void Root::fail(Error error) {
  if (failure_) return;
  TUTTI_LOG(log_, LogLevel::kInfo, "the job could not meet: {}", error.message);
  failure_ = std::move(error);
  phase_ = Phase::kFailed;
  give_up_ns_ = now_ns() + kLingerNs;
  for (const auto& [rank, attendee] : attendees_) {
    told_.insert(rank);  // the done ones need no telling
    if (connections_.contains(attendee.connection)) refuse(attendee.connection);
  }
  check_linger();
}

void Root::refuse(ConnectionKey key) {
  Connection& connection = connections_.at(key);
  if (connection.claim.rank < ranks_ && expects(connection.claim.rank))
    told_.insert(connection.claim.rank);
  // A rank hears unchanged what its machine refused; the root lives in rank 0's process, mostly.
  const Rank whose = failure_->culprit == kNoRank ? 0 : failure_->culprit;
  const Error told = connection.claim.rank == whose ? *failure_ : as_remote(*failure_, whose);
  static_cast<void>(connection.channel.send(encode_error({.type = FrameType::kRefused}, told)));
  hang_up(key);
}

void Root::check_linger() {
  if (phase_ == Phase::kFailed && told_.size() >= expected()) {
    phase_ = Phase::kOver;
  }
}

void Root::hang_up(ConnectionKey key) {
  const auto found = connections_.find(key);
  loop_.remove(found->second.token);
  connections_.erase(found);
}

void Root::tick(std::int64_t at_ns) {
  if (phase_ == Phase::kGathering)  // later nobody is to come
    for (const auto& door : doors_)
      if (const int error_number = door->starved(at_ns)) fail(starved_error(error_number));
  std::vector<ConnectionKey> silent;
  for (const auto& [key, connection] : connections_) {
    if (!connection.checked_in && connection.check_in_by_ns <= at_ns) silent.push_back(key);
  }
  for (const ConnectionKey key : silent) hang_up(key);
  if (phase_ == Phase::kGathering || phase_ == Phase::kMet) {
    const bool late = std::ranges::any_of(
        attendees_, [&](const auto& entry) { return deadline_of(entry.second) <= at_ns; });
    if (late) fail(describe_absence());
  }
  const bool waits = attendees_.empty() || phase_ == Phase::kFailed;
  if (waits && give_up_ns_ <= at_ns) phase_ = Phase::kOver;
}

std::int64_t Root::deadline_of(const Attendee& attendee) const {
  const bool others = phase_ == Phase::kMet && self_->roots > 1;
  return attendee.deadline_ns + (others ? kOtherRootsNs : 0);
}

Error Root::describe_absence() const {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    if (!expects(rank)) continue;
    const auto found = attendees_.find(rank);
    const bool there = found != attendees_.end();
    if (phase_ == Phase::kMet ? !found->second.done : !there) missing.push_back(rank);
  }
  const char* plural = missing.size() == 1 ? "" : "s";
  std::string what =
      phase_ == Phase::kMet
          ? fmt::format("rank{} {} of {} joined but did not finish the meeting in time", plural,
                        list_ranks(missing), ranks_)
          : fmt::format(
                "rank{} {} of {} did not join within TUTTI_INIT_TIMEOUT_S ({} joined); "
                "start every rank with the same address, secret and number of ranks",
                plural, list_ranks(missing), ranks_, attendees_.size());
  if (self_->roots > 1 && phase_ == Phase::kMet)
    what += "; a rank that meets at the root of another unique id may not have come";
  else if (self_->roots > 1)
    what += fmt::format("; this is the root of unique id {} of {}, to which {} ranks come",
                        self_->number + 1, self_->roots, expected());
  std::uint64_t strangers = 0;
  for (const auto& door : doors_) strangers += door->strangers();
  if (const std::uint64_t dropped = strangers - strangers_before_; dropped > 0)
    what += fmt::format(
        "; {} connection{} did not prove this job's secret: give all ranks the same id, or the "
        "same "
        "secret and TUTTI_JOB",
        dropped, dropped == 1 ? "" : "s");
  for (const auto& door : doors_) {
    if (door->other_version() == 0) continue;
    what += fmt::format(
        "; a process with protocol version {} tried to join, but this library has version {}: use "
        "the same version of Tutti in all processes",
        door->other_version(), kProtocolVersion);
  }
  return {Code::kTimeout, what, missing.empty() ? kNoRank : missing.front()};
}

std::int64_t Root::next_tick_ns() const {
  std::int64_t next_ns = INT64_MAX;
  for (const auto& [key, connection] : connections_) {
    if (!connection.checked_in) next_ns = std::min(next_ns, connection.check_in_by_ns);
  }
  if (attendees_.empty() || phase_ == Phase::kFailed) next_ns = std::min(next_ns, give_up_ns_);
  if (phase_ == Phase::kGathering || phase_ == Phase::kMet) {
    for (const auto& [rank, attendee] : attendees_) {
      next_ns = std::min(next_ns, deadline_of(attendee));
    }
  }
  return next_ns;
}

}  // namespace tutti::control
