// SPDX-License-Identifier: Apache-2.0
#include "comm/transfers_on_devices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "board/faults.hpp"
#include "comm/communicator.hpp"
#include "comm/diagnosis.hpp"

namespace tutti {

using device::Copies;
using device::CopyEnd;

namespace {

Error elsewhere(Rank rank) {
  return {Code::kNotSupported,
          fmt::format("rank {} is in another process, or joined before the program used CUDA; in "
                      "this version both ends of a send of device memory must be threads of one "
                      "process",
                      rank),
          rank};
}

}  // namespace

void TransfersOnDevices::add(const HeldCall& held) {
  Communicator& communicator = *held.communicator;
  const PartOf part = communicator.pairs().part_of(held.call);
  if (held.call.count == 0) {
    ++communicator.counts().completed;
    return;
  }
  Share& share = shares_[&communicator.on_device()->job()];
  share.ranks[communicator.rank()] = &communicator;
  share.transfers.push_back({&communicator, Transfer::of(held.call, part), held.call.stream});
}

// What is not over an exception ends, for want of memory.
TransfersOnDevices::~TransfersOnDevices() {
  for (auto& [job, share] : shares_) {
    if (share.over) continue;
    const Error ended{Code::kSystemError, "out of memory", kNoRank};
    job->copies().give_up(share.posted, ended);
    for (const auto& [rank, communicator] : share.ranks) try {
        static_cast<void>(communicator->on_device()->fail(ended));
      } catch (const std::bad_alloc&) {
        communicator->cannot_come();  // allocates nothing
      }
  }
}

void TransfersOnDevices::begin() {
  for (auto& [job, share] : shares_) {
    share.status = check(*job, share);
    if (!share.status) {  // nothing is posted, and nobody has been told of these calls
      share.over = true;
      continue;
    }
    share.status = post(*job, share);
    if (!share.status) tell(*job, share);
  }
}

// What leaves the communicators as they were.
Status TransfersOnDevices::check(device::Job& job, const Share& share) {
  for (const auto& [rank, communicator] : share.ranks) {
    TUTTI_TRY(communicator->members().manageable(false));
    std::vector<Transfer> sends, receives;  // to itself
    bool alone = true;
    for (const auto& [of, transfer, stream] : share.transfers) {
      if (of != communicator) continue;
      if (!job.has(transfer.peer)) return tl::unexpected(elsewhere(transfer.peer));
      alone = alone && transfer.peer == rank;
      if (transfer.peer != rank) continue;
      (transfer.sends() ? sends : receives).push_back(transfer);
    }
    Status itself = check_to_self(sends, receives);
    if (!itself && !alone)  // others wait for this rank's part
      return tl::unexpected(communicator->on_device()->fail(itself.error()));
    TUTTI_TRY(std::move(itself));
  }
  return {};
}

Status TransfersOnDevices::post(device::Job& job, Share& share) {
  for (const auto& [communicator, transfer, stream] : share.transfers) {
    const Rank rank = communicator->rank();
    const int device = job.device_of(rank);
    TUTTI_TRY_ASSIGN(const std::uint64_t capture, job.platform().capture_of(device, stream));
    if (capture == 0) TUTTI_TRY(job.follow_last(rank, stream));
    TUTTI_TRY(job.copies().post({.rank = rank,
                                 .peer = transfer.peer,
                                 .sends = transfer.sends(),
                                 .signature = transfer.signature(),
                                 .buffer = transfer.buffer,
                                 .device = device,
                                 .stream = stream,
                                 .capture = capture},
                                share.posted));
  }
  return {};
}

// Looks for what ends a wait: an error, a peer that has left, the timeout.
Status TransfersOnDevices::look(Share& share, const CopyEnd& end, std::int64_t waited_ns) {
  const Membership& members = share.ranks.at(end.rank)->members();
  if (auto error = members.error()) return tl::unexpected(*std::move(error));
  const Diagnosis here(members, end.signature);
  share.cause = here.departed(end.peer);
  if (!share.cause && waited_ns >= members.config().op_timeout_ns)
    share.cause = here.timeout_of(end.peer);
  if (share.cause) return tl::unexpected(poison_error(*share.cause, members.peers()));
  if (waited_ns >= members.config().warn_after_ns && !std::exchange(share.warned, true))
    TUTTI_LOG(members.log(), LogLevel::kWarn, "{} has waited {} s for {}",
              end.signature.to_string(), waited_ns / 1'000'000'000, members.describe(end.peer));
  return {};
}

// The cause comes first, so that every rank tells it; then who waits for these ends; then the rest.
// Both ends find that they are captured apart, and say so, whoever is first.
void TransfersOnDevices::tell(device::Job& job, Share& share) {
  share.over = true;
  const Error found = share.status.error();
  for (const device::Copies::Posted& one : share.posted)
    if (const auto theirs = job.copies().differs(one); theirs && !share.cause)
      share.cause = Diagnosis(share.ranks.at(one.end.rank)->members(), one.end.signature)
                        .mismatch_with(one.end.peer, *theirs);
  for (const auto& [rank, communicator] : share.ranks) {
    if (share.cause) communicator->members().poison(*share.cause);
    if (found.code == Code::kNotSupported) communicator->members().set_error(found);
  }
  job.copies().give_up(share.posted, found);
  for (const auto& [rank, communicator] : share.ranks)
    share.status = tl::unexpected(communicator->on_device()->fail(found));
}

Status TransfersOnDevices::end() {
  Status first;
  for (auto& [job, share] : shares_) {
    if (!share.over) {
      share.status = job->copies().await(
          share.posted, [&share = share](const CopyEnd& end, std::int64_t waited_ns) {
            return look(share, end, waited_ns);
          });
      if (share.status) share.status = note(*job, share);
      if (!share.status) tell(*job, share);
    }
    if (!share.status && first) first = share.status;
  }
  return first;
}

// What comes later on other streams of these ranks comes after their copies.
Status TransfersOnDevices::note(device::Job& job, Share& share) {
  share.cause.reset();  // of a look after which the peer came
  share.over = true;
  for (const Copies::Posted& one : share.posted)
    if (one.end.capture == 0) TUTTI_TRY(job.note_last(one.end.rank, one.end.stream));
  for (const Held& held : share.transfers) ++held.communicator->counts().completed;
  return {};
}

}  // namespace tutti
