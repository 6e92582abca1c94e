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
std::vector<Call> blocks_of(const Call& call, std::int32_t ranks) {
  const bool gathers = call.collective == Collective::kAllGatherV;
  const auto at = [&](const void* whole, Rank rank) {
    auto* const begin = static_cast<std::byte*>(const_cast<void*>(whole));  // an input: only read
    return begin + call.sizes->begin(rank) * element_bytes(call.type);
  };
  std::vector<Call> blocks;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (call.sizes->of(rank) == 0) continue;
    Call& block = blocks.emplace_back(call);
    block.collective = gathers ? Collective::kBroadcast : Collective::kReduce;
    block.root = rank;
    block.count = call.sizes->of(rank);
    block.sizes = nullptr;
    if (gathers)
      block.output = at(call.output, rank);
    else
      block.input = at(call.input, rank);
  }
  return blocks;
}

// Adds the blocks' calls, or none of them where one would be refused: what was refused has not run.
Status add_blocks(const HeldCall& held, std::deque<HeldCall>& calls) {
  std::vector<Call> blocks = blocks_of(held.call, held.communicator->ranks());
  for (const Call& block : blocks) TUTTI_TRY(held.communicator->check_on_device(block));
  for (Call& block : blocks) calls.push_back({held.communicator, std::move(block), nullptr});
  return {};
}

}  // namespace

Status run_on_devices(std::span<HeldCall> calls) {
  HeldSlots slots;
  for (const HeldCall& held : calls) TUTTI_TRY(hold_slot(slots, held));
  TransfersOnDevices transfers;
  std::deque<HeldCall> operations;
  Status first;
  for (const HeldCall& held : calls) {
    const Call& call = held.call;
    Status added;
    if (is_point_to_point(call.collective))
      transfers.add(held);
    else if (call.sizes != nullptr)
      added = add_blocks(held, operations);
    else
      operations.push_back({held.communicator, call, nullptr});
    if (first) first = std::move(added);
  }
  transfers.begin();  // before any wait for others, who may wait for these
  std::vector<const HeldCall*> left;
  for (const HeldCall& operation : operations) left.push_back(&operation);
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
