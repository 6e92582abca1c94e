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

void TransfersOnDevices::add(const HeldCall& held) {
  Communicator& communicator = *held.communicator;
  const PartOf part = communicator.pairs().part_of(held.call);
  if (held.call.count == 0) {
    ++communicator.counts().completed;
    return;
  }
  Share& share = shares_[&communicator.on_device()->job()];
  share.ranks[communicator.rank()] = &communicator;
  share.transfers.emplace_back(&communicator, Transfer{&held.call, part});
}

void TransfersOnDevices::begin() {
  for (auto& [job, share] : shares_) {
    share.status = check(share);
    // Nobody waits for a rank's sends to itself.
    if (!share.status && std::ranges::all_of(share.transfers, [](const auto& one) {
          return one.second.call->root == one.first->rank();
        }))
      share.ranks.clear();
    if (share.status) share.status = post(*job, share);
  }
}

Status TransfersOnDevices::check(const Share& share) {
  for (const auto& [rank, communicator] : share.ranks) {
    TUTTI_TRY(communicator->members().manageable(false));
    std::vector<Transfer> sends, receives;  // to itself
    for (const auto& [of, transfer] : share.transfers) {
      if (of != communicator || transfer.call->root != rank) continue;
      (transfer.call->collective == Collective::kSend ? sends : receives).push_back(transfer);
    }
    TUTTI_TRY(check_to_self(sends, receives));
  }
  return {};
}

Status TransfersOnDevices::post(device::Job& job, Share& share) {
  for (const auto& [communicator, transfer] : share.transfers) {
    const Call& call = *transfer.call;
    if (!job.has(call.root))
      return make_error(
          Code::kNotSupported,
          fmt::format("rank {} is in another process, or joined before the program used CUDA; in "
                      "this version both ends of a send of device memory must be threads of one "
                      "process",
                      call.root),
          call.root);
    const int device = job.device_of(communicator->rank());
    TUTTI_TRY_ASSIGN(const std::uint64_t capture, job.platform().capture_of(device, call.stream));
    const bool sends = call.collective == Collective::kSend;
    auto* const buffer =
        sends ? const_cast<std::byte*>(static_cast<const std::byte*>(call.input))  // only read
              : static_cast<std::byte*>(call.output);
    TUTTI_TRY_ASSIGN(Copies::Posted posted, job.copies().post({.rank = communicator->rank(),
                                                               .signature = transfer.signature(),
                                                               .buffer = buffer,
                                                               .device = device,
                                                               .stream = call.stream,
                                                               .capture = capture}));
    share.posted.push_back(std::move(posted));
  }
  return {};
}

// Looks for what ends a wait: an error, a peer that has left, the timeout.
Status TransfersOnDevices::look(Share& share, const CopyEnd& end, std::int64_t waited_ns) {
  const Membership& members = share.ranks.at(end.rank)->members();
  if (auto error = members.error()) return tl::unexpected(*std::move(error));
  const Diagnosis here(members, end.signature);
  share.cause = here.departed(end.peer());
  if (!share.cause && waited_ns >= members.config().op_timeout_ns)
    share.cause = here.timeout_of(end.peer());
  if (share.cause) return tl::unexpected(poison_error(*share.cause, members.peers()));
  if (waited_ns >= members.config().warn_after_ns && !std::exchange(share.warned, true))
    TUTTI_LOG(members.log(), LogLevel::kWarn, "{} has waited {} s for {}",
              end.signature.to_string(), waited_ns / 1'000'000'000, members.describe(end.peer()));
  return {};
}

void TransfersOnDevices::finish(device::Job& job, Share& share, Finish finish) {
  if (!share.status) return;
  share.status = (job.copies().*finish)(
      share.posted,
      [&](const CopyEnd& end, std::int64_t waited_ns) { return look(share, end, waited_ns); });
  if (share.status) return;
  for (const Copies::Posted& one : share.posted)
    if (const auto theirs = job.copies().differs(one); theirs && !share.cause)
      share.cause = Diagnosis(share.ranks.at(one.end.rank)->members(), one.end.signature)
                        .mismatch_with(one.end.peer(), *theirs);
}

// Both ends find that they are captured apart, and say so, whoever is first to poison the job.
void TransfersOnDevices::tell(Share& share) {
  const Error found = share.status.error();
  for (const auto& [rank, communicator] : std::exchange(share.ranks, {})) {
    if (share.cause) communicator->members().poison(*share.cause);
    if (found.code == Code::kNotSupported) communicator->members().set_error(found);
    share.status = tl::unexpected(communicator->on_device()->fail(found));
  }
}

Status TransfersOnDevices::end() {
  for (auto& [job, share] : shares_) finish(*job, share, &Copies::receive);
  for (auto& [job, share] : shares_) finish(*job, share, &Copies::send);
  Status first;
  for (auto& [job, share] : shares_) {
    if (share.status) {
      for (const auto& [communicator, transfer] : share.transfers)
        ++communicator->counts().completed;
      continue;
    }
    job->copies().give_up(share.posted, share.status.error());
    tell(share);
    if (first) first = std::move(share.status);
  }
  return first;
}

}  // namespace tutti
