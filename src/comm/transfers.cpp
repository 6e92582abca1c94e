// SPDX-License-Identifier: Apache-2.0
#include "comm/transfers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"
#include "model/transfer_price.hpp"
#include "transports/connection_ops.hpp"

namespace tutti {
namespace {

// The send that a message says it is of, at the rank whose receive found it; of such calls the
// last one there has `newest`.
OperationSignature send_of(std::uint64_t said, OperationSignature counterpart,
                           std::uint64_t newest) {
  counterpart.count = said >> Transfer::kCountAt;
  const std::uint64_t type = (said & ((1U << Transfer::kTypeBits) - 1)) - 1;
  if (type < kDataTypeCount) counterpart.type = static_cast<DataType>(type);
  PartOf part{static_cast<Whole>(said >> Transfer::kTypeBits & ((1U << Transfer::kWholeBits) - 1)),
              0};
  // Of all numbers with these low bits the nearest.
  if (part.whole != Whole::kItself)
    part.number = newest + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                               static_cast<std::int8_t>((said >> Transfer::kNumberAt) - newest)));
  counterpart.plan = part.word();
  return counterpart;
}

}  // namespace

Transfers::Transfers(Communicator& communicator)
    : OngoingCall(communicator.members(), communicator.transport()),
      communicator_(communicator),
      pairs_(communicator.pairs()),
      pumps_(!communicator.shares_everything()),
      flows_(pairs_.at_work()) {}

Transfers::~Transfers() {
  for (PairFlow* const flow : flows_) flow->clear();
  flows_.clear();
  if (!to_self_) return;
  for (const Collective direction : {Collective::kSend, Collective::kRecv})
    if (PairFlow* const flow = pairs_.find(members_.rank(), direction)) flow->clear();
}

void Transfers::add(const Transfer& transfer) {
  ++calls_;
  signature_ = transfer.signature();
  if (transfer.count == 0) return;
  (transfer.sends() ? sent_ : received_).add(transfer.buffer, transfer.bytes());
  if (!transfer.sends()) received_bytes_ += transfer.bytes();
  PairFlow& flow = pairs_.flow(transfer.peer, transfer.direction);
  if (transfer.peer == members_.rank())
    to_self_ = true;
  else if (flow.calls.empty())
    flows_.push_back(&flow);
  flow.add(transfer);
}

Status check_to_self(std::span<const Transfer> sends, std::span<const Transfer> receives) {
  const std::size_t pairs = std::min(sends.size(), receives.size());
  for (std::size_t i = 0; i < pairs; ++i)
    if (sends[i].message_signature() != receives[i].message_signature())
      return make_error(
          Code::kInvalidUsage,
          fmt::format("calls do not match: this rank called {} and {}",
                      sends[i].signature().to_string(), receives[i].signature().to_string()));
  if (sends.size() == receives.size()) return {};
  const bool more_sends = sends.size() > pairs;
  const OperationSignature odd = (more_sends ? sends : receives)[pairs].signature();
  return make_error(Code::kInvalidUsage,
                    fmt::format("{}: a rank that sends to itself needs a {} of the same count "
                                "and type in the same group",
                                odd.to_string(), more_sends ? "recv" : "send"));
}

Status Transfers::copy_to_self() {
  const std::vector<Transfer>& sends = pairs_.flow(members_.rank(), Collective::kSend).calls;
  const std::vector<Transfer>& receives = pairs_.flow(members_.rank(), Collective::kRecv).calls;
  TUTTI_TRY(check_to_self(sends, receives));
  for (std::size_t i = 0; i < sends.size(); ++i)
    copy_to_user(receives[i].buffer, sends[i].buffer, sends[i].bytes());
  return {};
}

// A plain store would fetch each line that it overwrites; but what is also sent is in the cache.
bool Transfers::outgrow_the_cache() const {
  const bool apart = sent_.end <= received_.begin || received_.end <= sent_.begin;
  return apart && received_bytes_ >= communicator_.nt_bytes();
}

void Transfers::copy_to_user(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
  if (!outgrow_the_cache()) {
    std::memmove(to, from, bytes);  // a rank may send to itself in place
    return;
  }
  copy_around(to, from, bytes);
  pairs_.traffic().around_bytes += bytes;
}

Status Transfers::start() {
  TUTTI_TRY(members_.open_to_calls());
  if (disturbed()) return tl::unexpected(fault_error());
  if (to_self_)
    if (Status copied = copy_to_self(); !copied) {
      if (!flows_.empty()) members_.poison_as_failed(signature_);  // others wait for its part
      return copied;
    }
  for (PairFlow* const flow : flows_) {
    if (flow->form != PairFlow::Form::kClosed) continue;
    signature_ = flow->at_hand().signature();
    const Status opened = pairs_.open(*flow);
    if (opened) continue;
    if (disturbed()) return tl::unexpected(fault_error());
    return tl::unexpected(unprepared(opened.error()));
  }
  return {};
}

// Is the message that has come of the call at hand?
bool Transfers::is_expected(PairFlow& flow, std::uint64_t said) {
  if (said == flow.message_signature) [[likely]]
    return true;
  faulty_ = &flow;
  theirs_ = send_of(said, counterpart(flow.at_hand().signature(), members_.rank()),
                    pairs_.calls_of_parts());
  return false;
}

// The next message of a send; false: there is no room for it.
bool Transfers::send_by_ring(PairFlow& flow, std::uint64_t bytes, const std::byte* from) {
  PairRing& ring = flow.ring;
  if (!can_send(ring, bytes)) return false;
  copy_for_reader(flow.gauge, send_place(ring, bytes), from, bytes);
  commit(ring, flow.message_signature, bytes);
  return true;
}

// The next message of a receive; false: it is not there, or is another's.
bool Transfers::receive_by_ring(PairFlow& flow, std::uint64_t bytes, std::byte* to) {
  PairRing& ring = flow.ring;
  if (!can_recv(ring) || !is_expected(flow, recv_signature(ring))) return false;
  copy_to_user(to, recv_place(ring, bytes), bytes);
  release(ring, bytes);
  return true;
}

// The same by slots.
bool Transfers::send(PairFlow& flow, std::uint64_t bytes, const std::byte* from) {
  if (flow.form == PairFlow::Form::kRing) return send_by_ring(flow, bytes, from);
  Connection& to = flow.connection;
  if (!can_send(to)) return false;
  if (bytes >= kLeastLentBytes && takes_lent(to) && transport_->may_lend({from, bytes})) {
    commit_lent(to, flow.message_signature, bytes, from);
    flow.lent_until = to.state->next;
    pairs_.traffic().lent_bytes += bytes;
  } else {
    std::memcpy(send_slot(to).base, from, bytes);
    commit(to, flow.message_signature, bytes);
  }
  return true;
}

bool Transfers::receive(PairFlow& flow, std::uint64_t bytes, std::byte* to) {
  if (flow.form == PairFlow::Form::kRing) return receive_by_ring(flow, bytes, to);
  Connection& from = flow.connection;
  if (!can_recv(from)) {
    if (bytes >= kLeastOfferedBytes && takes_offers(from) && !has_offered(from))
      offer_memory(from, flow.message_signature, bytes, to);
    return false;
  }
  if (!is_expected(flow, recv_signature(from))) return false;
  if (received_at(from) != nullptr)
    pairs_.traffic().placed_bytes += bytes;
  else
    copy_to_user(to, recv_slot(from).base, bytes);
  release(from);
  return true;
}

bool Transfers::move(PairFlow& flow) {
  bool moved = false;
  // In each turn, at most as many messages of a flow as it has slots, so that all progress.
  for (std::uint32_t i = 0; i < PairSlots::kSlots && flow.next < flow.calls.size(); ++i) {
    const Transfer& transfer = flow.calls[flow.next];
    const std::uint64_t bytes = std::min(transfer.bytes() - flow.moved, flow.message_bytes);
    std::byte* const at = transfer.buffer + flow.moved;
    if (!(flow.sends ? send(flow, bytes, at) : receive(flow, bytes, at))) break;
    if (flow.sends) pairs_.note_sent(bytes);
    flow.pass(bytes);
    moved = true;
  }
  if (flow.is_corrupt()) faulty_ = &flow;
  return moved;
}

void Transfers::drop_over() {
  std::erase_if(flows_, [this](PairFlow* flow) {
    const bool over = flow->over() && flow != faulty_;
    if (over) flow->clear();
    return over;
  });
}

Result<bool> Transfers::advance() {
  bool moved = false;
  for (PairFlow* const flow : flows_) moved |= move(*flow);
  drop_over();
  if (!flows_.empty()) signature_ = flows_[0]->at_hand().signature();
  if (moved) note_moved();
  if (faulty_ != nullptr) return tl::unexpected(fault_error());
  if (pumps_ && !(flows_.empty() && flushed())) {
    TUTTI_TRY(pump(flows_.empty()));
    drop_over();  // what was lent has been taken
  }
  if (flows_.empty() && (!pumps_ || flushed())) {
    note_moved();
    communicator_.counts().completed += calls_;
    done_ = true;
  }
  return moved;
}

Rank Transfers::blocked_on() const {
  if (!flows_.empty()) return flows_[0]->peer;
  return transport_ == nullptr ? kNoRank : transport_->unflushed();
}

bool Transfers::is_lost(Rank peer) const {
  return members_.is_gone(peer) || board_.state(peer) == RankState::kFailed ||
         !transport_->health(peer) || transport_->has_left(peer);
}

Rank Transfers::suspect() const {
  const auto lost =
      std::ranges::find_if(flows_, [this](const PairFlow* flow) { return is_lost(flow->peer); });
  return lost == flows_.end() ? blocked_on() : (*lost)->peer;
}

std::optional<Error> Transfers::own_fault() {
  if (faulty_ == nullptr) return std::nullopt;
  signature_ = faulty_->at_hand().signature();
  const Rank peer = faulty_->peer;
  const bool differs = theirs_.collective != Collective::kNone;
  const auto mismatch = differs ? diagnosis().mismatch_with(peer, theirs_) : std::nullopt;
  return members_.poison(mismatch.value_or(diagnosis().failure_of(peer)));
}

Status number_parts(std::span<HeldCall> calls) {
  const auto is_part = [](const HeldCall& held) { return held.call.whole != Whole::kItself; };
  // Of the others calls on streams may be under way, for which nothing here is to wait.
  HeldSlots slots;
  for (const HeldCall& held : calls)
    if (is_part(held)) TUTTI_TRY(hold_slot(slots, held));
  for (HeldCall& held : calls)
    if (is_part(held)) held.call.part_number = held.communicator->pairs().part_of(held.call).number;
  return {};
}

double price_transfers(std::span<const Call> calls, Rank rank, std::int32_t ranks,
                       const Agreement& agreement) {
  const Settings& settings = agreement.settings;
  const std::vector<std::int32_t>& hosts = agreement.wire_hosts;
  const PairSlots slots(ranks, settings.arena_bytes);
  const auto crosses = [&](Rank peer) {
    return !hosts.empty() &&
           hosts[static_cast<std::size_t>(peer)] != hosts[static_cast<std::size_t>(rank)];
  };
  std::map<std::pair<Rank, Collective>, TransferFlow> flows;
  std::uint64_t issued = 0, to_self_bytes = 0;
  for (const Call& call : calls) {
    if (call.count == 0) continue;
    ++issued;
    const bool sends = call.collective == Collective::kSend;
    const std::uint64_t bytes = call.count * element_bytes(call.type);
    if (call.root == rank) {  // a copy, which its send stands for
      to_self_bytes += sends ? bytes : 0;
      continue;
    }
    TransferFlow& flow = flows[{call.root, call.collective}];
    flow.sends = sends;
    flow.far = crosses(call.root);
    flow.add(bytes, slots.payload_bytes());
  }
  std::vector<TransferFlow> all;
  for (const auto& [key, flow] : flows) all.push_back(flow);
  return price_transfers(settings.costs.slotted, {.flows = all,
                                                  .calls = issued,
                                                  .to_self_bytes = to_self_bytes,
                                                  .slots = PairSlots::kSlots,
                                                  .ranks = ranks,
                                                  .cores = settings.cores,
                                                  .wire = settings.slots_wire});
}

}  // namespace tutti
