// SPDX-License-Identifier: Apache-2.0
#include "comm/shrink.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "board/faults.hpp"

namespace tutti {
namespace {

// How long the deciding rank waits between looks at who has died.
constexpr auto kLook = std::chrono::milliseconds(1);
// And how long before it tries whether anybody listens at a rank that is missing; then ever longer.
constexpr std::int64_t kBeforeProbeNs = 5'000'000;
constexpr std::int64_t kLongestProbePauseNs = 1'000'000'000;
// A question waits so long for its answer, then it is asked again: deaths that nobody tells of end
// its connection, a host that is cut off does not.
constexpr std::int64_t kQuestionNs = 1'000'000'000;
constexpr std::int64_t kLateQuestionNs = 200'000'000;
constexpr auto kPause = std::chrono::milliseconds(1);  // after a question that found nobody
constexpr int kMostAttempts = 64;                      // each was ended by a death, or a failure

}  // namespace

struct Shrink::Attempt {
  ShrinkReport report;
  std::unique_ptr<ChildJob> child;  // for the next one
  std::optional<Error> own_error;   // why this rank cannot take part
  Members members;                  // of the last one
  int joins = 0;
  bool committed = false;
};

Shrink::Shrink(ControlPlane& control)
    : control_(control),
      shared_(new Shared{.mutex = {},
                         .changed = {},
                         .decision = ShrinkDecision(control.rank(), control.peers())}) {
  const auto ranks = static_cast<std::int32_t>(control.peers().size());
  control_.serve_waiting(
      RequestKind::kShrink,
      [shared = shared_,
       ranks](const tutti::Request& request) -> std::optional<Result<HandlerReply>> {
        const auto report = decode_report(request.payload, ranks);
        if (!report)
          return make_error(
              Code::kInvalidUsage,
              "the shrink request is malformed; start all ranks with the same version of Tutti");
        const std::lock_guard lock(shared->mutex);
        const auto answer = shared->decision.hear(request.from, *report);
        shared->changed.notify_all();
        if (!answer) return std::nullopt;
        return HandlerReply{.payload = encode(*answer)};
      });
}

std::vector<Rank> Shrink::living(const Request& request) const {
  std::vector<Rank> ranks;
  const Rank self = control_.rank();
  for (const PeerInfo& peer : control_.peers())
    if (!std::ranges::binary_search(request.excluded, peer.rank) &&
        (peer.rank == self ||
         (!shared_->decision.is_gone(peer.rank) && !request.is_dead(peer.rank))))
      ranks.push_back(peer.rank);
  return ranks;
}

Status Shrink::run(const Request& request) {
  control_.watch_closely();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->decision.open(request.excluded);
  }
  control_.retry(RequestKind::kShrink);  // of those who came before
  Status agreed = agree(request);
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->decision.close(agreed ? std::nullopt : std::optional(agreed.error()));
  }
  control_.retry(RequestKind::kShrink);
  if (!agreed) request.drop();
  return agreed;
}

Status Shrink::agree(const Request& request) {
  Attempt attempt;
  attempt.report = {.attempt = attempt_, .excluded = hash_ranks(request.excluded)};
  while (!attempt.committed) {
    prepare(attempt);
    TUTTI_TRY_ASSIGN(const ShrinkAnswer answer, report_to_leader(attempt, request));
    TUTTI_TRY(follow(answer, attempt, request));
  }
  return {};
}

// A rank that cannot take part says so to the one that decides.
void Shrink::prepare(Attempt& attempt) {
  if (attempt.report.phase != ShrinkPhase::kNew || attempt.child || attempt.own_error) return;
  Result<std::unique_ptr<ChildJob>> child = control_.prepare_child();
  attempt.report.ready = child.has_value();
  if (!child) {
    attempt.own_error = child.error();
    return;
  }
  attempt.child = *std::move(child);
  attempt.report.address = attempt.child->address();
}

Status Shrink::follow(const ShrinkAnswer& answer, Attempt& attempt, const Request& request) {
  switch (answer.verdict) {
    case ShrinkVerdict::kJoin:
      return join(answer, attempt, request);
    case ShrinkVerdict::kPrepare:
      attempt.report.phase = ShrinkPhase::kPrepared;
      return {};
    case ShrinkVerdict::kCommit: {
      const std::lock_guard lock(shared_->mutex);
      shared_->decision.commit(answer.attempt);
      attempt.committed = true;
      return {};
    }
    case ShrinkVerdict::kWait:
    case ShrinkVerdict::kAbsent:
      return {};  // never the answer that counts
    case ShrinkVerdict::kAgain:
      request.drop();
      attempt.report.phase = ShrinkPhase::kNew;
      return {};
    case ShrinkVerdict::kExcluded:
    case ShrinkVerdict::kFailed:
      return tl::unexpected(attempt.own_error.value_or(answer.error));
  }
  return {};
}

// The next report tells how this went; the call ends when the others have been told.
Status Shrink::join(const ShrinkAnswer& answer, Attempt& attempt, const Request& request) {
  if (++attempt.joins > kMostAttempts)
    return make_error(
        Code::kRemoteError,
        fmt::format("{} attempts to join the new communicator failed", kMostAttempts));
  attempt_ = attempt.report.attempt = answer.attempt;
  std::stop_source hopeless;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->decision.enter(answer.attempt, answer.members);
  }
  std::vector<Rank> members;
  for (const ChildMember& member : answer.members.list) members.push_back(member.parent);
  {
    const std::lock_guard lock(join_mutex_);
    joining_ = members;
    hopeless_ = hopeless;
  }
  // note_death() did not know of the attempt before.
  const bool dead = std::ranges::any_of(
      members, [&](Rank rank) { return rank != control_.rank() && request.is_dead(rank); });
  Status joined = make_error(Code::kRemoteError, "a member has died");
  if (!dead) {
    Result<std::unique_ptr<ControlPlane>> job =
        std::exchange(attempt.child, nullptr)->enter(answer.members.key, answer.members.list);
    joined = job ? request.join(*std::move(job), hopeless.get_token())
                 : Status(tl::unexpected(job.error()));
  }
  {
    const std::lock_guard lock(join_mutex_);
    joining_.clear();
    hopeless_ = std::stop_source(std::nostopstate);
  }
  if (joined) {
    attempt.report.phase = ShrinkPhase::kJoined;
    return {};
  }
  request.drop();
  const bool again = hopeless.stop_requested() || joined.error().code == Code::kRemoteError;
  if (again && !request.cancelled()) return {};
  // Nobody needs to wait for this rank.
  attempt.own_error = joined.error();
  attempt.report.ready = false;
  return {};
}

void Shrink::note_death(Rank rank) {
  std::stop_source hopeless(std::nostopstate);
  {
    const std::lock_guard lock(join_mutex_);
    if (std::ranges::binary_search(joining_, rank)) hopeless = hopeless_;
  }
  hopeless.request_stop();
  shared_->changed.notify_all();
}

Result<ShrinkAnswer> Shrink::report_to_leader(Attempt& attempt, const Request& request) {
  attempt.report.late = false;
  const bool others_join = attempt.report.phase == ShrinkPhase::kJoined;
  const Deadline deadline =
      Deadline::in_ns(request.timeout_ns + (others_join ? request.join_timeout_ns : 0));
  for (;;) {
    Rank leader = control_.rank();
    {
      const std::lock_guard lock(shared_->mutex);
      leader = living(request).front();
      attempt.report.gone.assign(shared_->decision.gone().begin(), shared_->decision.gone().end());
    }
    if (leader == control_.rank()) {
      attempt.report.late = false;
      return lead(attempt.report, request, deadline);
    }
    TUTTI_TRY_ASSIGN(std::optional<ShrinkAnswer> answer, ask(leader, attempt.report, deadline));
    if (request.cancelled()) return make_error(Code::kInvalidUsage, "aborted while shrinking");
    const bool waits = answer && answer->verdict == ShrinkVerdict::kWait;
    const bool absent = answer && answer->verdict == ShrinkVerdict::kAbsent;
    if (answer && !waits && !absent) return told_by(leader, *std::move(answer));
    if (absent || (attempt.report.late && !waits && !request.is_dead(leader)))
      return make_error(
          Code::kTimeout,
          fmt::format("{}, which coordinates the shrink, did not call tuttiCommShrink in time",
                      describe_rank(control_.peers(), leader)),
          leader);
    // The deciding rank's own time bounds the wait for it.
    attempt.report.late = deadline.passed() && !waits;
  }
}

ShrinkAnswer Shrink::told_by(Rank leader, ShrinkAnswer answer) const {
  const std::string name = describe_rank(control_.peers(), leader);
  if (answer.verdict == ShrinkVerdict::kFailed)
    answer.error.message = fmt::format("{} reports: {}", name, answer.error.message);
  if (answer.verdict == ShrinkVerdict::kExcluded)
    answer.error = {Code::kInvalidUsage,
                    fmt::format("{} excluded this rank, but this rank called tuttiCommShrink; only "
                                "the remaining ranks may call it",
                                name),
                    leader};
  return answer;
}

Result<ShrinkAnswer> Shrink::lead(const ShrinkReport& own, const Request& request,
                                  Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  ShrinkDecision& decision = shared_->decision;
  const auto fail = [&](const Error& error) {
    decision.fail(error);
    control_.retry(RequestKind::kShrink);
  };
  std::int64_t pause_ns = kBeforeProbeNs;
  for (std::int64_t probe_ns = now_ns() + pause_ns;;) {
    if (auto answer = decision.hear(control_.rank(), own)) return *std::move(answer);
    if (const auto error = decision.disagreement()) {
      fail(*error);
      continue;
    }
    const std::vector<Rank> ranks = living(request);
    const Rank missing = decision.missing(ranks);
    if (missing == kNoRank) {
      decision.decide(ranks);
      control_.retry(RequestKind::kShrink);
      continue;
    }
    if (request.cancelled()) return make_error(Code::kInvalidUsage, "aborted while shrinking");
    if (deadline.passed()) {
      fail({Code::kTimeout,
            fmt::format("{} is alive and not excluded, but did not call tuttiCommShrink in time",
                        describe_rank(control_.peers(), missing)),
            missing});
      continue;
    }
    if (now_ns() >= probe_ns) {
      lock.unlock();
      const bool gone = control_.nobody_listens(missing);
      lock.lock();
      if (gone) decision.mark_gone(missing);
      if (!gone) pause_ns = std::min(2 * pause_ns, kLongestProbePauseNs);
      probe_ns = gone ? 0 : now_ns() + pause_ns;
      continue;
    }
    shared_->changed.wait_for(lock, kLook);
  }
}

// Nothing where the question is to be asked again, of the same rank or the next.
Result<std::optional<ShrinkAnswer>> Shrink::ask(Rank leader, ShrinkReport report,
                                                Deadline deadline) {
  TUTTI_TRY_ASSIGN(std::optional<ShrinkAnswer> answer, ask_page(leader, report, deadline));
  while (answer && answer->verdict == ShrinkVerdict::kJoin &&
         answer->members.list.size() < answer->ranks) {
    report.first = static_cast<std::uint32_t>(answer->members.list.size());
    TUTTI_TRY_ASSIGN(std::optional<ShrinkAnswer> more, ask_page(leader, report, deadline));
    if (!more || more->verdict != ShrinkVerdict::kJoin || more->attempt != answer->attempt)
      return std::optional<ShrinkAnswer>();
    std::ranges::move(more->members.list, std::back_inserter(answer->members.list));
  }
  return answer;
}

Result<std::optional<ShrinkAnswer>> Shrink::ask_page(Rank leader, const ShrinkReport& report,
                                                     Deadline deadline) {
  const Deadline soon = Deadline::in_ns(kQuestionNs);
  const Result<Reply> reply =
      control_.call(leader, RequestKind::kShrink, encode(report),
                    {std::min(soon.at_ns, std::max(deadline.at_ns, now_ns() + kLateQuestionNs))});
  if (!reply) {
    if (reply.error().code == Code::kTimeout) return std::optional<ShrinkAnswer>();
    if (reply.error().code != Code::kRemoteError) return tl::unexpected(reply.error());
    if (control_.nobody_listens(leader)) {
      const std::lock_guard lock(shared_->mutex);
      shared_->decision.mark_gone(leader);
    } else {
      std::this_thread::sleep_for(kPause);
    }
    return std::optional<ShrinkAnswer>();
  }
  auto answer = decode_answer(reply->payload, static_cast<std::int32_t>(control_.peers().size()));
  if (!answer)
    return make_error(
        Code::kRemoteError,
        fmt::format("{} sent a malformed answer", describe_rank(control_.peers(), leader)), leader);
  return answer;
}

}  // namespace tutti
