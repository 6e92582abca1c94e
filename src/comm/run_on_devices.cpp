// SPDX-License-Identifier: Apache-2.0
#include "comm/run_on_devices.hpp"

#include <map>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace tutti {
namespace {

using Round = std::map<Communicator*, const HeldCall*>;  // one call of every communicator

// Holds the calls of a round for the ranks of one job that this thread has.
struct Share {
  std::vector<Communicator*> ranks;
  std::vector<device::Issue> issues;
  std::int64_t timeout_ns = 0;
  device::Job::Ticket ticket;
  Status status;
};

// All jobs' calls are enqueued before any is waited for: other threads may take them in another
// order. If a rank's call cannot be issued, those of its job's other ranks are not issued
// either, and the job is told; other jobs' calls run.
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
    // An error that all ranks find equally leaves them as they were.
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
      found = rank->on_device()->fail(found);
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
  std::map<Communicator*, InFlightCall> in_flight;
  for (const HeldCall& call : calls) {
    left.push_back(&call);
    if (in_flight.contains(call.communicator)) continue;
    InFlightCall own(call.communicator->call_slot(), info_of(call.call.collective).name.data());
    if (!own) return own.status();
    in_flight.emplace(call.communicator, std::move(own));
  }
  Status first;
  while (!left.empty()) {
    Round round;
    std::erase_if(
        left, [&](const HeldCall* held) { return round.emplace(held->communicator, held).second; });
    if (Status launched = launch_round(round); first) first = std::move(launched);
  }
  return first;
}

}  // namespace tutti
