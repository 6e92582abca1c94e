// SPDX-License-Identifier: Apache-2.0
#include "comm/transfers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/run_operations.hpp"
#include "model/transfer_price.hpp"
#include "transports/connection_ops.hpp"

namespace tutti {
namespace {

// What every message of a send says of it, never 0: type, what it is a part of, with the low bits
// of its number, and the count. No memory has more elements than are left room for.
constexpr unsigned kTypeBits = 6, kWholeBits = 2, kNumberBits = 8;
constexpr unsigned kNumberAt = kTypeBits + kWholeBits, kCountAt = kNumberAt + kNumberBits;
static_assert(kDataTypeCount < 1 << kTypeBits);
static_assert(kWholeNames.size() <= 1 << kWholeBits);

std::uint64_t message_signature(const Transfer& transfer) {
  const auto& [call, part] = transfer;
  return call->count << kCountAt | (part.number & ((1U << kNumberBits) - 1)) << kNumberAt |
         static_cast<std::uint64_t>(part.whole) << kTypeBits |
         (static_cast<std::uint64_t>(call->type) + 1);
}

// The send that a message says it is of, at the rank whose receive found it; of such calls the
// last one there has `newest`.
OperationSignature send_of(std::uint64_t said, OperationSignature counterpart,
                           std::uint64_t newest) {
  counterpart.count = said >> kCountAt;
  const std::uint64_t type = (said & ((1U << kTypeBits) - 1)) - 1;
  if (type < kDataTypeCount) counterpart.type = static_cast<DataType>(type);
  PartOf part{static_cast<Whole>(said >> kTypeBits & ((1U << kWholeBits) - 1)), 0};
  // Of all numbers with these low bits the nearest.
  if (part.whole != Whole::kItself)
    part.number = newest + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                               static_cast<std::int8_t>((said >> kNumberAt) - newest)));
  counterpart.plan = part.word();
  return counterpart;
}

}  // namespace

OperationSignature Transfer::signature() const {
  return {.collective = call->collective,
          .type = call->type,
          .root = call->root,
          .count = call->count,
          .plan = part.word()};
}

Result<Connection*> PairConnections::to(Rank peer) {
  if (const auto found = sends_.find(peer); found != sends_.end()) return &found->second;
  TUTTI_TRY(transport_->connect(peer, Deadline::in_ns(members_.config().op_timeout_ns)));
  TUTTI_TRY_ASSIGN(const Connection made,
                   transport_->open_send(slots_.spec(members_.rank(), peer)));
  Connection& kept = sends_.emplace(peer, made).first->second;
  begin_operation(kept, 0);
  return &kept;
}

Result<Connection*> PairConnections::from(Rank peer) {
  if (const auto found = recvs_.find(peer); found != recvs_.end()) return &found->second;
  TUTTI_TRY_ASSIGN(const Connection made,
                   transport_->open_recv(slots_.spec(peer, members_.rank())));
  Connection& kept = recvs_.emplace(peer, made).first->second;
  begin_operation(kept, 0);
  return &kept;
}

PartOf PairConnections::part_of(const Call& call) {
  if (call.whole == Whole::kItself) return {};
  if (call.part_number != 0) return {call.whole, call.part_number};
  if (std::exchange(made_by_, call.made_by) != call.made_by) ++calls_of_parts_;
  return {call.whole, calls_of_parts_};
}

std::set<Rank> PairConnections::connected() const {
  std::set<Rank> peers;
  for (const auto* const connections : {&sends_, &recvs_})
    for (const auto& [peer, connection] : *connections) peers.insert(peer);
  return peers;
}

Transfers::Transfers(Communicator& communicator)
    : OngoingCall(communicator.members(), communicator.transport()),
      communicator_(communicator),
      pairs_(communicator.pairs()) {}

void Transfers::add(const Call& call) {
  ++calls_;
  const Transfer transfer{&call, pairs_.part_of(call)};
  signature_ = transfer.signature();
  if (call.count == 0) return;
  const bool sends = call.collective == Collective::kSend;
  if (call.root == members_.rank())
    (sends ? to_self_ : from_self_).push_back(transfer);
  else
    flows_[{call.root, call.collective}].calls.push_back(transfer);
}

Status check_to_self(std::span<const Transfer> sends, std::span<const Transfer> receives) {
  const std::size_t pairs = std::min(sends.size(), receives.size());
  for (std::size_t i = 0; i < pairs; ++i)
    if (message_signature(sends[i]) != message_signature(receives[i]))
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

Status Transfers::copy_to_self() const {
  TUTTI_TRY(check_to_self(to_self_, from_self_));
  for (std::size_t i = 0; i < to_self_.size(); ++i)
    std::memmove(from_self_[i].call->output, to_self_[i].call->input, to_self_[i].bytes());
  return {};
}

Status Transfers::start() {
  TUTTI_TRY(members_.open_to_calls());
  if (disturbed()) return tl::unexpected(fault_error());
  if (Status copied = copy_to_self(); !copied) {
    if (!flows_.empty()) members_.poison_as_failed(signature_);  // others wait for this rank's part
    return copied;
  }
  for (auto& [key, flow] : flows_) {
    signature_ = flow.at_hand().signature();
    Result<Connection*> connection =
        flow.sends() ? pairs_.to(flow.peer()) : pairs_.from(flow.peer());
    if (!connection) {
      if (disturbed()) return tl::unexpected(fault_error());
      return tl::unexpected(unprepared(connection.error()));
    }
    flow.connection = *connection;
  }
  return {};
}

// The next message of a send; false: there is no slot.
bool Transfers::send(Flow& flow, const Transfer& transfer, std::uint64_t left) {
  Connection& to = *flow.connection;
  if (!can_send(to)) return false;
  const std::uint64_t bytes = std::min(left, capacity_bytes(to));
  const auto* const from = static_cast<const std::byte*>(transfer.call->input) + flow.moved;
  const std::uint64_t signature = message_signature(transfer);
  TrafficCounters& traffic = pairs_.traffic();
  if (bytes >= kLeastLentBytes && takes_lent(to) && transport_->may_lend({from, bytes})) {
    commit_lent(to, signature, bytes, from);
    flow.lent_until = to.state->next;
    traffic.lent_bytes += bytes;
  } else {
    std::memcpy(send_slot(to).base, from, bytes);
    commit(to, signature, bytes);
  }
  ++traffic.messages;
  traffic.payload_bytes += bytes;
  flow.moved += bytes;
  return true;
}

// The next message of a receive; false: it is not there, or is another's.
bool Transfers::receive(Flow& flow, const Transfer& transfer, std::uint64_t left) {
  Connection& from = *flow.connection;
  const std::uint64_t bytes = std::min(left, capacity_bytes(from));
  auto* const to = static_cast<std::byte*>(transfer.call->output) + flow.moved;
  if (!can_recv(from)) {
    if (bytes >= kLeastOfferedBytes && takes_offers(from) && !has_offered(from))
      offer_memory(from, message_signature(transfer), bytes, to);
    return false;
  }
  const std::uint64_t said = recv_signature(from);
  if (said != message_signature(transfer)) {
    faulty_ = &flow;
    theirs_ =
        send_of(said, counterpart(transfer.signature(), members_.rank()), pairs_.calls_of_parts());
    return false;
  }
  if (received_at(from) != nullptr)
    pairs_.traffic().placed_bytes += bytes;
  else
    std::memcpy(to, recv_slot(from).base, bytes);
  release(from);
  flow.moved += bytes;
  return true;
}

bool Transfers::move(Flow& flow) {
  bool moved = false;
  // In each turn, at most as many messages of a flow as it has slots, so that all progress.
  for (std::uint32_t i = 0; i < PairSlots::kSlots && flow.next < flow.calls.size(); ++i) {
    const Transfer& transfer = flow.at_hand();
    const std::uint64_t left = transfer.bytes() - flow.moved;
    if (!(flow.sends() ? send(flow, transfer, left) : receive(flow, transfer, left))) break;
    moved = true;
    if (flow.moved < transfer.bytes()) continue;
    flow.moved = 0;
    ++flow.next;
  }
  if (is_corrupt(*flow.connection)) faulty_ = &flow;
  return moved;
}

Result<bool> Transfers::advance() {
  bool moved = false;
  blocked_ = nullptr;
  for (auto& [key, flow] : flows_) {
    moved |= move(flow);
    if (blocked_ == nullptr && !flow.over()) blocked_ = &flow;
  }
  if (blocked_ != nullptr) signature_ = blocked_->at_hand().signature();
  if (moved) note_moved();
  if (faulty_ != nullptr) return tl::unexpected(fault_error());
  TUTTI_TRY(pump());
  const bool over =
      std::ranges::all_of(flows_, [](const auto& flow) { return flow.second.over(); });
  if (over && flushed()) {
    note_moved();
    communicator_.counts().completed += calls_;
    done_ = true;
  }
  return moved;
}

Rank Transfers::blocked_on() const {
  if (blocked_ != nullptr) return blocked_->peer();
  return transport_ == nullptr ? kNoRank : transport_->unflushed();
}

bool Transfers::is_lost(Rank peer) const {
  return members_.is_gone(peer) || board_.state(peer) == RankState::kFailed ||
         !transport_->health(peer) || transport_->has_left(peer);
}

Rank Transfers::suspect() const {
  const auto lost = std::ranges::find_if(flows_, [&](const auto& entry) {
    return !entry.second.over() && is_lost(entry.second.peer());
  });
  return lost == flows_.end() ? blocked_on() : lost->second.peer();
}

std::optional<Error> Transfers::own_fault() {
  if (faulty_ == nullptr) return std::nullopt;
  signature_ = faulty_->at_hand().signature();
  const Rank peer = faulty_->peer();
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
