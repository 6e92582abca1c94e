// SPDX-License-Identifier: Apache-2.0
#include "comm/straight_transfers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/prefetch.hpp"
#include "comm/communicator.hpp"
#include "exec/waiter.hpp"
#include "transports/pair_ring.hpp"

namespace tutti {
namespace {

// Of more transfers than these, what comes first is to be taken first.
constexpr std::size_t kMostTransfers = 32;

// The flow of a transfer that is one message between ranks that share memory and have met; else
// null.
PairFlow* flow_of(PairConnections& pairs, const Transfer& transfer, std::uint64_t bytes) {
  PairFlow* const flow = pairs.find(transfer.peer, transfer.direction);
  const bool fits =
      flow != nullptr && flow->form == PairFlow::Form::kRing && bytes <= flow->message_bytes;
  return fits ? flow : nullptr;
}

// What has been sent.
struct Sent {
  PairFlow* flow;
  std::uint64_t bytes;
};

bool send_at_once(PairConnections& pairs, const Transfer& transfer, Sent& sent) {
  const std::uint64_t bytes = transfer.bytes();
  PairFlow* const flow = flow_of(pairs, transfer, bytes);
  if (flow == nullptr || !can_send(flow->ring, bytes)) return false;
  copy_for_reader(flow->gauge, send_place(flow->ring, bytes), transfer.buffer, bytes);
  commit(flow->ring, transfer.message_signature(), bytes);
  pairs.note_sent(bytes);
  sent = {flow, bytes};
  return true;
}

// Looks at most `looks` times, which are counted down.
bool receive_at_once(PairConnections& pairs, const Transfer& transfer, std::uint32_t& looks) {
  const std::uint64_t bytes = transfer.bytes();
  PairFlow* const flow = flow_of(pairs, transfer, bytes);
  if (flow == nullptr) return false;
  PairRing& ring = flow->ring;
  while (!can_recv(ring)) {
    if (looks == 0) return false;
    --looks;
    Waiter::relax();
  }
  if (recv_signature(ring) != transfer.message_signature()) return false;
  std::memcpy(transfer.buffer, recv_place(ring, bytes), bytes);
  release(ring, bytes);
  return true;
}

// Takes the next message's cell from the cache of its reader. Nobody waits for that.
void fetch_next(const Sent& sent) {
  if (sent.bytes > kRingCellPayloadBytes) return;
  const PairRing& ring = sent.flow->ring;
  prefetch_lines_to_write(reinterpret_cast<const std::byte*>(&ring.cell(ring.state.next)),
                          lines_of(sizeof(RingCell) - kRingCellPayloadBytes + sent.bytes));
}

// Copies what a rank sends to itself; false: it does not match, or all that is received outgrows
// the cache, and nothing is copied.
bool copy_to_self(const Communicator& communicator, std::span<const Transfer> all) {
  const Rank self = communicator.rank();
  std::array<const Transfer*, kMostTransfers> sends, receives;
  std::size_t sent = 0, received = 0;
  std::uint64_t received_bytes = 0;
  for (const Transfer& transfer : all) {
    if (!transfer.sends()) received_bytes += transfer.bytes();
    if (transfer.peer == self && transfer.count > 0)
      (transfer.sends() ? sends[sent++] : receives[received++]) = &transfer;
  }
  if (sent != received || received_bytes >= communicator.nt_bytes()) return false;
  for (std::size_t i = 0; i < sent; ++i)
    if (sends[i]->message_signature() != receives[i]->message_signature()) return false;
  for (std::size_t i = 0; i < sent; ++i)
    std::memmove(receives[i]->buffer, sends[i]->buffer, sends[i]->bytes());
  return true;
}

}  // namespace

TransfersLeft run_straight(Communicator& communicator, std::span<const Transfer> all) {
  TransfersLeft left;
  const Membership& members = communicator.members();
  if (all.size() > kMostTransfers || !communicator.shares_everything() || !members.is_open() ||
      members.disturbed())
    return left;
  const Rank self = communicator.rank();
  std::uint64_t& completed = communicator.counts().completed;
  if (std::ranges::find(all, self, &Transfer::peer) != all.end()) {
    if (!copy_to_self(communicator, all)) return left;
    left.over = self;
    completed += static_cast<std::uint64_t>(std::ranges::count(all, self, &Transfer::peer));
  }
  PairConnections& pairs = communicator.pairs();
  std::array<Sent, kMostTransfers> sent;
  std::size_t sends = 0;
  for (; left.sends < all.size(); ++left.sends) {
    const Transfer& transfer = all[left.sends];
    if (!transfer.sends() || transfer.peer == self) continue;
    if (transfer.count > 0 && !send_at_once(pairs, transfer, sent[sends++])) return left;
    ++completed;
  }
  // Until it is time to ask whether the peer runs on this core.
  const WaitPolicy& policy = communicator.wait_policy();
  std::uint32_t looks = std::min(policy.spins, policy.look_at);
  bool received = false;
  for (; left.receives < all.size(); ++left.receives) {
    const Transfer& transfer = all[left.receives];
    if (transfer.sends() || transfer.peer == self) continue;
    // In an exchange, who looks at a line that is about to be written takes it from its writer.
    if (sends > 0 && !received) Waiter::relax();
    received = true;
    if (transfer.count > 0 && !receive_at_once(pairs, transfer, looks)) return left;
    ++completed;
  }
  // Of one that only sends the receiver may be behind, and have the next cell yet to read.
  if (received) std::for_each_n(sent.begin(), sends, fetch_next);
  return left;
}

}  // namespace tutti
