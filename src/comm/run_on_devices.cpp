// SPDX-License-Identifier: Apache-2.0
#include "comm/run_on_devices.hpp"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/transfers_on_devices.hpp"

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

// Blocks of different sizes: a rooted call for each block that is not empty. A device's partition
// is that of equal blocks, and only the ranks know where a block lies in their buffers.
void add_blocks(const HeldCall& held, std::deque<HeldCall>& calls) {
  const Call& call = held.call;
  const bool gathers = call.collective == Collective::kAllGatherV;
  const auto at = [&](const void* whole, Rank rank) {
    auto* const begin = static_cast<std::byte*>(const_cast<void*>(whole));  // an input: only read
    return begin + call.sizes->begin(rank) * element_bytes(call.type);
  };
  for (Rank rank = 0; rank < held.communicator->ranks(); ++rank) {
    if (call.sizes->of(rank) == 0) continue;
    HeldCall block{held.communicator, call, nullptr};
    block.call.collective = gathers ? Collective::kBroadcast : Collective::kReduce;
    block.call.root = rank;
    block.call.count = call.sizes->of(rank);
    block.call.sizes = nullptr;
    if (gathers)
      block.call.output = at(call.output, rank);
    else
      block.call.input = at(call.input, rank);
    calls.push_back(std::move(block));
  }
}

}  // namespace

Status run_on_devices(std::span<HeldCall> calls) {
  std::map<Communicator*, InFlightCall> in_flight;
  TransfersOnDevices transfers;
  std::deque<HeldCall> operations;
  for (const HeldCall& held : calls) {
    Communicator* const communicator = held.communicator;
    const Call& call = held.call;
    if (!in_flight.contains(communicator)) {
      InFlightCall own(communicator->call_slot(), info_of(call.collective).name.data());
      if (!own) return own.status();
      in_flight.emplace(communicator, std::move(own));
    }
    if (is_point_to_point(call.collective))
      transfers.add(held);
    else if (call.sizes != nullptr)
      add_blocks(held, operations);
    else
      operations.push_back({communicator, call, nullptr});
  }
  transfers.begin();  // before any wait for others, who may wait for these
  std::vector<const HeldCall*> left;
  for (const HeldCall& operation : operations) left.push_back(&operation);
  Status first;
  while (!left.empty()) {
    Round round;
    std::erase_if(
        left, [&](const HeldCall* held) { return round.emplace(held->communicator, held).second; });
    if (Status launched = launch_round(round); first) first = std::move(launched);
  }
  Status moved = transfers.end();
  return first ? std::move(moved) : std::move(first);
}

}  // namespace tutti
