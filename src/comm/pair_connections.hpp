// SPDX-License-Identifier: Apache-2.0
// The connections of a communicator's sends and receives, a pair's own (transports/pair_slots.hpp),
// and the calls that wait on each. Kept between calls with their memory, so that one like the last
// allocates nothing. The thread that holds the communicator's call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/call.hpp"
#include "comm/membership.hpp"
#include "comm/transfer.hpp"
#include "exec/host_executor.hpp"
#include "exec/store_gauge.hpp"
#include "transports/connection.hpp"
#include "transports/pair_ring.hpp"
#include "transports/pair_slots.hpp"
#include "transports/transport.hpp"

namespace tutti {

// One direction between this rank and a peer: the connection, and the calls at hand, in the order
// of issue.
struct PairFlow {
  const Rank peer;
  const bool sends;
  enum class Form : std::uint8_t { kClosed, kRing, kSlots } form = Form::kClosed;
  PairRing ring = {};               // kRing
  Connection connection = {};       // kSlots
  StoreGauge gauge = {};            // of what a send writes to the ring
  std::uint64_t message_bytes = 0;  // the most that one message carries
  std::vector<Transfer> calls = {};
  std::size_t next = 0;                 // the call at hand
  std::uint64_t moved = 0;              // bytes of it
  std::uint64_t message_signature = 0;  // its messages' (Transfer::message_signature)
  std::uint64_t lent_until = 0;  // messages whose payload lies in the user's memory: all below

  [[nodiscard]] const Transfer& at_hand() const {
    return calls[next < calls.size() ? next : calls.size() - 1];
  }
  [[nodiscard]] bool over() const {
    return next == calls.size() && (lent_until == 0 || connection.state->taken >= lent_until);
  }
  // Has the peer written what no correct one writes? It moves nothing any more.
  [[nodiscard]] bool is_corrupt() const {
    return form == Form::kRing    ? ring.state.corrupt
           : form == Form::kSlots ? connection.state->corrupt
                                  : false;
  }
  void add(const Transfer& transfer) {
    if (calls.empty()) message_signature = transfer.message_signature();
    calls.push_back(transfer);
  }
  // So many bytes of the call at hand have been moved.
  void pass(std::uint64_t bytes) {
    moved += bytes;
    if (moved < calls[next].bytes()) return;
    moved = 0;
    if (++next < calls.size()) message_signature = calls[next].message_signature();
  }
  // No call is left; the connection stays.
  void clear() {
    calls.clear();
    next = moved = lent_until = 0;
  }
};

class PairConnections {
 public:
  PairConnections(const Membership& members, Transport* transport)
      : members_(members),
        transport_(transport),
        slots_(members.ranks(), members.config().arena_bytes) {}

  // Closed at first.
  [[nodiscard]] PairFlow& flow(Rank peer, Collective direction) {
    PairFlow* const found = find(peer, direction);
    return found != nullptr ? *found : make_flow(peer, direction);
  }
  // Null: never used. Allocates nothing.
  [[nodiscard]] PairFlow* find(Rank peer, Collective direction) const {
    const std::size_t i = index_of(peer, direction);
    return i < flows_.size() ? flows_[i].get() : nullptr;
  }
  // Of a send it blocks until the peer's service answers, at most for the operation timeout; a
  // receive needs no peer. Errors: those of Transport::connect.
  [[nodiscard]] Status open(PairFlow& flow);
  // Memory for those that have calls.
  [[nodiscard]] std::vector<PairFlow*>& at_work() { return at_work_; }
  [[nodiscard]] std::set<Rank> connected() const;
  // What a call is a part of, numbered as on every rank. Parts of one call follow each other; it
  // counts even if all of them are empty here.
  [[nodiscard]] PartOf part_of(Whole whole, std::uint64_t made_by);
  [[nodiscard]] PartOf part_of(const Call& call) {
    if (call.part_number != 0) return {call.whole, call.part_number};
    return part_of(call.whole, call.made_by);
  }
  // The number of the last call that was made of sends and receives.
  [[nodiscard]] std::uint64_t calls_of_parts() const { return calls_of_parts_; }
  void note_sent(std::uint64_t bytes) {
    ++traffic_.messages;
    traffic_.payload_bytes += bytes;
  }
  [[nodiscard]] TrafficCounters& traffic() { return traffic_; }
  [[nodiscard]] const TrafficCounters& traffic() const { return traffic_; }

 private:
  [[nodiscard]] static std::size_t index_of(Rank peer, Collective direction) {
    return 2 * static_cast<std::size_t>(peer) + (direction == Collective::kSend ? 0 : 1);
  }
  [[nodiscard]] PairFlow& make_flow(Rank peer, Collective direction);

  const Membership& members_;
  Transport* const transport_;
  const PairSlots slots_;
  std::vector<std::unique_ptr<PairFlow>> flows_;  // two of each peer; null: not used yet
  std::vector<PairFlow*> at_work_;
  std::uint64_t calls_of_parts_ = 0;
  std::uint64_t made_by_ = 0;  // of the last call that was a part of another
  TrafficCounters traffic_;
};

}  // namespace tutti
