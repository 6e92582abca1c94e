#include "runtime/rank_on_device.hpp"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "runtime/communicator.hpp"
#include "runtime/faults.hpp"

namespace tutti {

Result<std::unique_ptr<RankOnDevice>> RankOnDevice::join(device::Platform& platform,
                                                         const control::SessionId& session,
                                                         Rank rank, std::int32_t ranks, int device,
                                                         std::int64_t timeout_ns) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<device::Job> job,
                   device::Job::join(platform, session, rank, ranks, device));
  return std::unique_ptr<RankOnDevice>(new RankOnDevice(std::move(job), rank, timeout_ns));
}

Result<device::Issue> RankOnDevice::prepare(const device::DeviceCall& call, const Forced& forced) {
  if (executor_ == nullptr) {
    TUTTI_TRY(job_->prepare());
    executor_ =
        std::make_unique<device::Executor>(job_, rank_, static_cast<std::uint64_t>(timeout_ns_));
  }
  return executor_->prepare(call, forced);
}

Result<std::string> RankOnDevice::explain(std::uint64_t bytes, const Forced& forced) {
  if (executor_ == nullptr)
    return fmt::format(
        "device {}: told of once the first call with device memory has taken its "
        "blocks\n",
        device());
  return executor_->explain(bytes, forced).map([](const Explanation& all) { return to_text(all); });
}

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

namespace {

using Round = std::map<Communicator*, const HeldCall*>;  // one call of every communicator

// What a round asks of the ranks of one job that this thread has.
struct Share {
  std::vector<Communicator*> ranks;
  std::vector<device::Issue> issues;
  std::int64_t timeout_ns = 0;
  device::Job::Ticket ticket;
  Status status;
};

// All jobs' calls are enqueued before any is waited for: other threads may take them in another
// order. Where a rank's call cannot be, those of its job's other ranks are not, and the job is
// told; other jobs' calls run.
Status launch_round(const Round& round) {
  std::map<device::Job*, Share> shares;
  const auto note = [](Share& share, const Error& error) {
    if (share.status) share.status = tl::unexpected(error);
  };
  for (const auto& [communicator, held] : round) {
    Share& share = shares[&communicator->on_device()->job()];
    share.ranks.push_back(communicator);
    share.timeout_ns = communicator->on_device()->timeout_ns();
    auto issue = communicator->prepare_on_device(held->call);
    if (!issue)
      note(share, issue.error());
    else if (*issue)
      share.issues.push_back(**issue);
  }
  for (auto& [job, share] : shares) {
    // What all have found alike leaves them as they were.
    if (!share.status && share.issues.empty()) share.ranks.clear();
    if (!share.status || share.issues.empty()) continue;
    Result<device::Job::Ticket> ticket = job->enqueue(share.issues);
    if (ticket)
      share.ticket = *std::move(ticket);
    else
      note(share, ticket.error());
  }
  // At once: before any wait for others, who may wait for these.
  Status first;
  const auto tell = [&first](Share& share) {
    if (share.status) return;
    Error found = share.status.error();
    for (Communicator* const rank : std::exchange(share.ranks, {}))
      found = rank->fail_on_device(found);
    if (first) first = tl::unexpected(found);
  };
  for (auto& [job, share] : shares) tell(share);
  for (auto& [job, share] : shares) {
    if (!share.status) continue;
    if (const Status done = job->await(share.ticket, share.timeout_ns); !done)
      note(share, done.error());
    tell(share);
  }
  return first;
}

}  // namespace

Status run_on_devices(std::span<HeldCall> calls) {
  std::vector<const HeldCall*> left;
  for (const HeldCall& call : calls) left.push_back(&call);
  Status first;
  while (!left.empty()) {
    Round round;
    std::erase_if(
        left, [&](const HeldCall* held) { return round.emplace(held->communicator, held).second; });
    if (const Status launched = launch_round(round); first) first = launched;
  }
  return first;
}

namespace {

// Once a process: what its ranks will not do, before the first call that wants it.
void warn_of_cuda_fault(const Log& log) {
  static std::atomic<bool> told{false};
  const std::string_view fault = device::cuda_fault();
  // Relaxed: it guards nothing but the line.
  if (fault.empty() || told.exchange(true, std::memory_order_relaxed)) return;
  TUTTI_LOG(log, LogLevel::kWarn,
            "the program uses CUDA, which this build cannot: {}; calls with device memory will be "
            "refused",
            fault);
}

}  // namespace

Status Communicator::join_on_device(std::optional<int> device) {
  warn_of_cuda_fault(log_);
  device::Platform* const platform = platform_ != nullptr ? platform_ : device::cuda_platform();
  if (!device || platform == nullptr) return {};
  TUTTI_TRY_ASSIGN(on_device_, RankOnDevice::join(*platform, control_->session(), rank_, ranks_,
                                                  *device, config_.op_timeout_ns));
  on_device_->limit_blocks(blocks_);
  control_->look_when([this] { return look_on_device(); });
  return {};
}

// What fails here matters to calls with device memory only, the first of which tries again.
void Communicator::allocate_on_device() {
  if (on_device_ == nullptr) return;
  if (const Status allocated = on_device_->allocate(); !allocated)
    TUTTI_LOG(log_, LogLevel::kInfo, "no calls with device memory yet: {}",
              allocated.error().message);
}

// What every rank finds alike is refused before the call has a number, and leaves the communicator
// as it was.
Result<std::optional<device::Issue>> Communicator::prepare_on_device(const AllReduceCall& call) {
  TUTTI_TRY(manageable(false));
  if (call.count == 0) return std::nullopt;
  auto issue = on_device_->prepare({.input = call.input,
                                    .output = call.output,
                                    .count = call.count,
                                    .type = call.type,
                                    .op = call.op,
                                    .stream = call.stream},
                                   forced_);
  if (!issue &&
      (issue.error().code == Code::kNotSupported || issue.error().code == Code::kInvalidArgument))
    return tl::unexpected(issue.error());
  const OperationSignature signature{.operation = ++operation_,
                                     .type = call.type,
                                     .op = call.op,
                                     .count = call.count,
                                     .plan = issue ? issue->plan : 0,
                                     .on_device = true};
  const bool captured = issue && issue->capture != 0;
  if (ranks_ == 1) static_cast<void>(look_on_device());  // nobody else does
  board_->enter(signature);
  // Host memory has no part in it; what came before has ended.
  if (transport_) transport_->publish_done(operation_);
  if (on_device_->calls().begin(signature, captured)) control_->look_soon();
  if (!issue) return tl::unexpected(fail_on_device(issue.error()));
  if (!captured) issue->task.call = operation_;
  ++completed_;
  last_plan_ = nullptr;
  last_slices_ = issue->task.cut.slices;
  return std::optional(*std::move(issue));
}

Result<std::string> Communicator::explain_on_device(std::uint64_t bytes) {
  return on_device_ == nullptr ? std::string() : on_device_->explain(bytes, forced_);
}

// ---- what becomes of calls that have returned ---------------------------------------------------

// A rank that has not made the call of this number, if there is one.
Rank Communicator::late_for(std::uint64_t operation) const {
  for (Rank peer = 0; peer < ranks_; ++peer)
    if (board_->last_entered(peer) < operation) return peer;
  return kNoRank;
}

std::optional<Poison> Communicator::mismatch_on_device(Rank rank,
                                                       const OperationSignature& mine) const {
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank) continue;
    auto theirs = board_->signature(peer, mine.operation);
    if (!theirs) {  // not yet, or so long ago that the board has forgotten it
      const auto oldest = on_device_->calls_now(peer).oldest;
      if (!oldest || oldest->signature.operation != mine.operation) continue;
      theirs = oldest->signature;
    }
    OperationSignature alike = *theirs;
    // Who got no plan called the same; it says so itself.
    if (alike.plan == 0 || mine.plan == 0) alike.plan = mine.plan;
    if (alike != mine)
      return Poison{.code = Code::kInvalidUsage,
                    .culprit = peer,
                    .reporter = rank,
                    .kind = Poison::Kind::kMismatch,
                    .mine = mine,
                    .theirs = *theirs};
  }
  return std::nullopt;
}

Poison Communicator::poison_of(const device::Job::Found& found) const {
  const auto oldest = on_device_->calls_now(found.rank).oldest;
  const OperationSignature mine = oldest ? oldest->signature : OperationSignature{};
  if (auto mismatch = mismatch_on_device(found.rank, mine)) return *mismatch;
  const bool timeout = found.what.fault == device::Fault::kTimeout;
  const Rank late = timeout ? late_for(mine.operation) : kNoRank;
  return {.code = timeout ? Code::kTimeout : on_device_->describe(found).code,
          .culprit = late != kNoRank ? late : found.what.peer,
          .reporter = found.rank,
          .kind = timeout ? Poison::Kind::kTimeout : Poison::Kind::kFailure,
          .mine = mine};
}

// Only the rank's own kernel and calls: the others tell of theirs.
std::optional<Poison> Communicator::trouble_on_device() const {
  const auto found = on_device_->job().fault();
  if (found && found->rank == rank_) return poison_of(*found);
  const auto oldest = on_device_->calls_now(rank_).oldest;
  if (!oldest) return std::nullopt;
  if (auto mismatch = mismatch_on_device(rank_, oldest->signature)) return mismatch;
  for (Rank peer = 0; peer < ranks_; ++peer) {
    const RankState state = board_->state(peer);
    if (board_->last_entered(peer) < oldest->signature.operation &&
        (state == RankState::kLeft || state == RankState::kLeaving))
      return Poison{.code = Code::kRemoteError,
                    .culprit = peer,
                    .reporter = rank_,
                    .kind = Poison::Kind::kLeft,
                    .mine = oldest->signature};
  }
  return std::nullopt;
}

std::optional<Error> Communicator::device_fault() const {
  const auto found = on_device_ == nullptr ? std::nullopt : on_device_->job().fault();
  if (!found) return std::nullopt;
  const Poison poison = poison_of(*found);
  return poison.kind == Poison::Kind::kFailure ? on_device_->describe(*found)
                                               : poison_error(poison, peers_);
}

// The service thread, now and then while calls have not ended.
std::int64_t Communicator::look_on_device() {
  constexpr std::int64_t kEveryNs = 100'000'000;
  if (board_->poisoned()) {
    on_device_->abort();
    return INT64_MAX;
  }
  const auto [ended, oldest] = on_device_->calls_now(rank_);
  const Rank late = oldest ? late_for(oldest->signature.operation) : kNoRank;
  board_->note_device(ended, late, oldest ? oldest->since_ns : 0);
  if (const auto trouble = trouble_on_device()) {
    poison(*trouble);
    return INT64_MAX;
  }
  if (!oldest) return on_device_->calls().at_rest() ? INT64_MAX : now_ns() + kEveryNs;
  const std::int64_t waited_ns = now_ns() - oldest->since_ns;
  if (waited_ns >= config_.warn_after_ns && on_device_->calls().warns_of(*oldest))
    TUTTI_LOG(log_, LogLevel::kWarn, "{} has not ended for {} s; {}", oldest->signature.to_string(),
              waited_ns / 1'000'000'000,
              late == kNoRank ? "all ranks have called it: look for what their streams wait for"
                              : describe_rank(peers_, late) + " has not called it");
  return now_ns() + kEveryNs;
}

// Returns what the call is to say: what is known of the others' calls, or else what was found here.
Error Communicator::fail_on_device(const Error& found) {
  auto known = this->error();
  if (!known)
    if (const auto trouble = trouble_on_device()) known = poison(*trouble);
  const Rank culprit = found.culprit != kNoRank ? found.culprit : rank_;
  board_->poison(
      {.code = found.code, .culprit = culprit, .reporter = rank_, .kind = Poison::Kind::kFailure});
  on_device_->abort();
  set_error(known.value_or(found));
  return known.value_or(found);
}

}  // namespace tutti
