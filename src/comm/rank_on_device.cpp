// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_on_device.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/clock.hpp"
#include "board/faults.hpp"
#include "comm/diagnosis.hpp"

namespace tutti {

Result<std::unique_ptr<RankOnDevice>> RankOnDevice::join(device::Platform& platform,
                                                         Membership& members, int device) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<device::Job> job,
                   device::Job::join(platform, members.control().session(), members.rank(),
                                     members.ranks(), device));
  return std::unique_ptr<RankOnDevice>(new RankOnDevice(std::move(job), members));
}

RankOnDevice::RankOnDevice(std::shared_ptr<device::Job> job, Membership& members)
    : job_(std::move(job)), members_(members) {
  members_.attach({.abort = [this] { abort(); }, .fault = [this] { return fault(); }});
  members_.control().look_when([this] { return look(); });
}

RankOnDevice::~RankOnDevice() {
  members_.control().look_when(nullptr);
  members_.attach({});
}

void RankOnDevice::allocate() {
  if (const Status allocated = job_->allocate(); !allocated)
    TUTTI_LOG(members_.log(), LogLevel::kInfo, "calls with device memory are not possible yet: {}",
              allocated.error().message);
}

void RankOnDevice::drain() {
  job_->drain(rank());
  static_cast<void>(look());
}

Result<device::Issue> RankOnDevice::make_issue(const Call& call, const Forced& forced) {
  if (executor_ == nullptr) {
    TUTTI_TRY(job_->prepare());
    executor_ = std::make_unique<device::Executor>(
        job_, rank(), static_cast<std::uint64_t>(timeout_ns()), prices_);
  }
  return executor_->prepare(call, forced);
}

Status RankOnDevice::check(const Call& call, const Forced& forced) {
  Result<device::Issue> issue = make_issue(call, forced);
  const bool refused = !issue && (issue.error().code == Code::kNotSupported ||
                                  issue.error().code == Code::kInvalidArgument);
  return refused ? Status(tl::unexpected(issue.error())) : Status();
}

Result<device::Issue> RankOnDevice::prepare(const Call& call, const Forced& forced,
                                            OperationCounts& counts) {
  Result<device::Issue> issue = make_issue(call, forced);
  if (!issue &&
      (issue.error().code == Code::kNotSupported || issue.error().code == Code::kInvalidArgument))
    return issue;
  const OperationSignature signature{.operation = ++counts.issued,
                                     .collective = call.collective,
                                     .type = call.type,
                                     .op = call.op,
                                     .root = call.root,
                                     .count = call.count,
                                     .plan = issue ? issue->plan : 0,
                                     .on_device = true};
  const bool captured = issue && issue->capture != 0;
  if (members_.ranks() == 1) static_cast<void>(look());  // nobody else does
  members_.board().enter(signature);
  if (job_->calls_of(rank()).begin(signature, captured)) members_.control().look_soon();
  if (!issue) return tl::unexpected(fail(issue.error()));
  if (!captured) issue->common.call = counts.issued;
  ++counts.completed;
  counts.last_slices = issue->common.cut.slices();
  return issue;
}

Result<std::string> RankOnDevice::explain(const Call& call, const Forced& forced) {
  if (executor_ == nullptr)
    return fmt::format("device {}: the prices are known after the first call with device memory\n",
                       device());
  return executor_->explain(call, forced).map([](const Explanation& all) { return to_text(all); });
}

namespace {

// Where in its plan the kernel was, for whoever looks for the cause.
std::string place_text(const device::Job::Found& found) {
  const device::FaultPlace& at = found.what.place;
  if (at.expected == at.seen) return {};  // not at a step
  return fmt::format(
      " (rank {}'s kernel: block {}, lane {}, slice {}, step {}, a {}: expected {:#x}, saw {:#x})",
      found.rank, at.block, at.lane, at.slice, at.step, at.receives ? "message" : "credit",
      at.expected, at.seen);
}

}  // namespace

Error RankOnDevice::describe(const device::Job::Found& found) const {
  const std::string where =
      fmt::format("on device {} rank {}", job_->device_of(found.rank), found.rank);
  const Rank peer = found.what.peer;
  if (found.what.fault == device::Fault::kSignature)
    return {Code::kInvalidUsage,
            fmt::format("{} got a message of another operation from rank {}; all ranks must "
                        "issue the same calls in the same order",
                        where, peer),
            peer};
  return {Code::kRemoteError,
          fmt::format("{} found a counter of rank {} overwritten; look for a kernel that "
                      "writes out of bounds",
                      where, peer),
          peer};
}

std::optional<Poison> RankOnDevice::mismatch(Rank rank, const OperationSignature& mine) const {
  const Diagnosis here(members_, mine, rank);
  for (Rank peer = 0; peer < members_.ranks(); ++peer) {
    if (peer == rank) continue;
    auto theirs = members_.board().signature(peer, mine.operation);
    if (!theirs) {  // not yet, or so long ago that the board has forgotten it
      const auto oldest = calls_now(peer).oldest;
      if (!oldest || oldest->signature.operation != mine.operation) continue;
      theirs = oldest->signature;
    }
    if (auto found = here.mismatch_with(peer, *theirs)) return found;
  }
  return std::nullopt;
}

Poison RankOnDevice::poison_of(const device::Job::Found& found) const {
  const auto oldest = calls_now(found.rank).oldest;
  const OperationSignature mine = oldest ? oldest->signature : OperationSignature{};
  if (auto differs = mismatch(found.rank, mine)) return *differs;
  const Diagnosis here(members_, mine, found.rank);
  if (found.what.fault == device::Fault::kTimeout) {
    // Whom the kernel waited for may itself wait for a rank that has not called. A kernel names
    // nobody if the block waited for another of its own, or if what it waited for has come since.
    const Rank peer = found.what.peer == kNoRank ? found.rank : found.what.peer;
    const Rank late = here.has_entered(peer) ? here.late() : kNoRank;
    return here.timeout_of(late != kNoRank ? late : peer);
  }
  Poison poison = here.failure_of(found.what.peer);
  poison.code = describe(found).code;
  return poison;
}

std::optional<Poison> RankOnDevice::trouble() const {
  const auto found = job_->fault();
  if (found && found->rank == rank()) return poison_of(*found);
  const auto oldest = calls_now(rank()).oldest;
  if (!oldest) return std::nullopt;
  if (auto differs = mismatch(rank(), oldest->signature)) return differs;
  const Diagnosis here(members_, oldest->signature);
  for (Rank peer = 0; peer < members_.ranks(); ++peer)
    if (auto left = here.departed(peer)) return left;
  return std::nullopt;
}

std::optional<Error> RankOnDevice::fault() const {
  const auto found = job_->fault();
  if (!found) return std::nullopt;
  const Poison poison = poison_of(*found);
  Error error = poison.kind == Poison::Kind::kFailure ? describe(*found)
                                                      : poison_error(poison, members_.peers());
  error.message += place_text(*found);
  return error;
}

// So that other programs can see it too (tutti-info ranks).
void RankOnDevice::note_fault() {
  const auto found = job_->fault();
  if (!found || found->rank != rank()) return;
  const device::FaultPlace& at = found->what.place;
  members_.board().note_fault({.peer = found->what.peer,
                               .block = at.block,
                               .place = {.lane = at.lane, .step = at.step, .slice = at.slice},
                               .receives = at.receives,
                               .expected = at.expected,
                               .seen = at.seen});
}

std::int64_t RankOnDevice::look() {
  constexpr std::int64_t kEveryNs = 100'000'000;
  Board& board = members_.board();
  note_fault();
  if (board.poisoned()) {
    abort();
    return INT64_MAX;
  }
  const auto [ended, oldest] = calls_now(rank());
  const Rank late = oldest ? Diagnosis(members_, oldest->signature).late() : kNoRank;
  board.note_device(ended, late, oldest ? oldest->since_ns : 0);
  if (const auto found = trouble()) {
    members_.poison(*found);
    return INT64_MAX;
  }
  if (!oldest) return job_->calls_of(rank()).at_rest() ? INT64_MAX : now_ns() + kEveryNs;
  warn_of(*oldest, late);
  return now_ns() + kEveryNs;
}

void RankOnDevice::warn_of(const device::RunningCall& call, Rank late) const {
  const std::int64_t waited_ns = now_ns() - call.since_ns;
  if (waited_ns < members_.config().warn_after_ns || !job_->calls_of(rank()).warns_of(call)) return;
  TUTTI_LOG(members_.log(), LogLevel::kWarn, "{} has not ended for {} s; {}",
            call.signature.to_string(), waited_ns / 1'000'000'000,
            late == kNoRank
                ? "all ranks have called it: look for the work that their streams wait for"
                : members_.describe(late) + " has not called it");
}

// Returns what the call is to say: what is known of the others' calls, or else what was found here.
Error RankOnDevice::fail(const Error& found) {
  note_fault();
  auto known = members_.error();
  if (!known)
    if (const auto cause = trouble()) known = members_.poison(*cause);
  members_.board().poison({.code = found.code,
                           .culprit = found.culprit != kNoRank ? found.culprit : rank(),
                           .reporter = rank(),
                           .kind = Poison::Kind::kFailure});
  abort();
  members_.set_error(known.value_or(found));
  return known.value_or(found);
}

}  // namespace tutti
