#include "runtime/rank_on_device.hpp"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

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

std::optional<Error> RankOnDevice::fault() const {
  const auto found = job_->fault();
  if (!found) return std::nullopt;
  const Rank peer = found->what.peer;
  const std::string where =
      fmt::format("on device {} rank {}", job_->device_of(found->rank), found->rank);
  switch (found->what.fault) {
    case device::Fault::kSignature:
      return Error{Code::kInvalidUsage,
                   fmt::format("{} got a message of another operation from rank {}; all ranks must "
                               "issue the same calls in the same order",
                               where, peer),
                   peer};
    case device::Fault::kTimeout:
      return Error{Code::kTimeout,
                   fmt::format("{} waited for rank {} longer than the operation timeout "
                               "(TUTTI_OP_TIMEOUT_S)",
                               where, peer),
                   peer};
    default:
      return Error{Code::kRemoteError,
                   fmt::format("{} found a counter of rank {} overwritten; look for a kernel that "
                               "writes out of bounds",
                               where, peer),
                   peer};
  }
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
  Status first;
  const auto note = [&](Share& share, const Error& error) {
    if (first) first = tl::unexpected(error);
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
  const auto tell = [](Share& share) {
    if (share.status) return;
    for (Communicator* const rank : std::exchange(share.ranks, {}))
      rank->fail_on_device(share.status.error());
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

std::optional<Error> Communicator::device_fault() const {
  return on_device_ == nullptr ? std::nullopt : on_device_->fault();
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
  device::Platform* const platform = device::cuda_platform();
  if (!device || platform == nullptr) return {};
  TUTTI_TRY_ASSIGN(on_device_, RankOnDevice::join(*platform, control_->session(), rank_, ranks_,
                                                  *device, config_.op_timeout_ns));
  return {};
}

// What fails here matters to calls with device memory only, the first of which tries again.
void Communicator::allocate_on_device() {
  if (on_device_ == nullptr) return;
  if (const Status allocated = on_device_->allocate(); !allocated)
    TUTTI_LOG(log_, LogLevel::kInfo, "no calls with device memory yet: {}",
              allocated.error().message);
}

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
  if (issue) {
    ++completed_;
    return std::optional(*std::move(issue));
  }
  // What every rank finds alike leaves the communicator as it was.
  const Code code = issue.error().code;
  if (code != Code::kNotSupported && code != Code::kInvalidArgument) fail_on_device(issue.error());
  return tl::unexpected(issue.error());
}

void Communicator::fail_on_device(const Error& found) {
  // What a kernel found was first, then what another rank has told.
  Error error = found;
  if (const auto fault = device_fault())
    error = *fault;
  else if (const auto told = board_->read_poison())
    error = poison_error(*told, peers_);
  set_error(error);
  board_->poison({.code = error.code,
                  .culprit = error.culprit != kNoRank ? error.culprit : rank_,
                  .reporter = rank_,
                  .kind = Poison::Kind::kFailure});
  on_device_->abort();
}

}  // namespace tutti
