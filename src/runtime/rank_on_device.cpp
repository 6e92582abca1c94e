#include "runtime/rank_on_device.hpp"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "runtime/communicator.hpp"

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

// All jobs' calls are enqueued before any is waited for: other threads may take them in another
// order.
Status launch_round(const Round& round) {
  std::map<device::Job*, std::vector<device::Issue>> issues;
  for (const auto& [communicator, held] : round) {
    TUTTI_TRY_ASSIGN(const std::optional<device::Issue> issue,
                     communicator->prepare_on_device(held->call));
    if (issue) issues[&communicator->on_device()->job()].push_back(*issue);
  }
  std::map<device::Job*, device::Job::Ticket> tickets;
  Status status;
  for (const auto& [job, some] : issues) {
    Result<device::Job::Ticket> ticket = job->enqueue(some);
    if (ticket)
      tickets.emplace(job, *std::move(ticket));
    else if (status)
      status = tl::unexpected(ticket.error());
  }
  for (const auto& [communicator, held] : round) {
    const auto ticket = tickets.find(&communicator->on_device()->job());
    if (status && ticket != tickets.end())
      status = ticket->first->await(ticket->second, communicator->on_device()->timeout_ns());
  }
  if (!status)
    for (const auto& [communicator, held] : round) communicator->fail_on_device(status.error());
  return status;
}

}  // namespace

Status run_on_devices(std::span<HeldCall> calls) {
  std::vector<const HeldCall*> left;
  for (const HeldCall& call : calls) left.push_back(&call);
  while (!left.empty()) {
    Round round;
    std::erase_if(
        left, [&](const HeldCall* held) { return round.emplace(held->communicator, held).second; });
    TUTTI_TRY(launch_round(round));
  }
  return {};
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
  const Error error = device_fault().value_or(found);  // what a kernel found was first
  set_error(error);
  board_->poison({.code = error.code,
                  .culprit = error.culprit != kNoRank ? error.culprit : rank_,
                  .reporter = rank_,
                  .kind = Poison::Kind::kFailure});
  on_device_->abort();
}

}  // namespace tutti
