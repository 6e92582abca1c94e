// SPDX-License-Identifier: Apache-2.0
// Sends and receives: those of a group, or one alone, progress together on connections of their
// own, beside the communicator's operations.
//
// A pair's sends meet its receives in the order in which each end issued them; nothing else orders
// them, since ranks issue different numbers of them. So they have no number, no plan and no row on
// the board, and take no part in `done` and its gates: their slots are a pair's own
// (transports/pair_slots.hpp). Every message carries count and type of its send and the call that
// it is a part of (base/part_of.hpp), which the receiver compares with its own. The thread that
// holds the communicator's call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/call.hpp"
#include "comm/agreement.hpp"
#include "comm/ongoing_call.hpp"
#include "exec/host_executor.hpp"
#include "transports/connection.hpp"
#include "transports/pair_slots.hpp"

namespace tutti {

class Communicator;
struct HeldCall;

// The connections of a communicator's sends and receives; opened at first use.
class PairConnections {
 public:
  PairConnections(const Membership& members, Transport* transport)
      : members_(members),
        transport_(transport),
        slots_(members.ranks(), members.config().arena_bytes) {}

  // Blocks until the peer's service answers, at most for the operation timeout. Errors: those of
  // Transport::connect.
  [[nodiscard]] Result<Connection*> to(Rank peer);
  // Needs no peer.
  [[nodiscard]] Result<Connection*> from(Rank peer);
  [[nodiscard]] std::set<Rank> connected() const;
  // What a call is a part of, numbered as on every rank. Parts of one call follow each other; it
  // counts even if all of them are empty here.
  [[nodiscard]] PartOf part_of(const Call& call);
  // The number of the last call that was made of sends and receives.
  [[nodiscard]] std::uint64_t calls_of_parts() const { return calls_of_parts_; }
  [[nodiscard]] TrafficCounters& traffic() { return traffic_; }
  [[nodiscard]] const TrafficCounters& traffic() const { return traffic_; }

 private:
  const Membership& members_;
  Transport* const transport_;
  const PairSlots slots_;
  std::map<Rank, Connection> sends_, recvs_;  // addresses are stable
  std::uint64_t calls_of_parts_ = 0;
  std::uint64_t made_by_ = 0;  // of the last call that was a part of another
  TrafficCounters traffic_;
};

// A send or a receive, and what it is a part of.
struct Transfer {
  const Call* call;
  PartOf part;
  [[nodiscard]] OperationSignature signature() const;
  [[nodiscard]] std::uint64_t bytes() const { return call->count * element_bytes(call->type); }
};

// kInvalidUsage unless what a rank sends to itself in a group meets what it receives from itself.
[[nodiscard]] Status check_to_self(std::span<const Transfer> sends,
                                   std::span<const Transfer> receives);

class Transfers final : public OngoingCall {
 public:
  explicit Transfers(Communicator& communicator);

  // Before start(), in the order of issue. The call outlives the object.
  void add(const Call& call);
  // Opens connections and copies what a rank sends to itself. Errors: kInvalidUsage where that has
  // no receive of the same count and type among these, or the other way round; nothing was sent
  // then.
  [[nodiscard]] Status start() override;
  [[nodiscard]] Result<bool> advance() override;

 private:
  // The calls to one peer or from it, in issue order.
  struct Flow {
    std::vector<Transfer> calls;
    Connection* connection = nullptr;
    std::size_t next = 0;          // the call at hand
    std::uint64_t moved = 0;       // bytes of it
    std::uint64_t lent_until = 0;  // messages whose payload lies in the user's memory: all below

    [[nodiscard]] const Transfer& at_hand() const {
      return calls[std::min(next, calls.size() - 1)];
    }
    [[nodiscard]] Rank peer() const { return calls[0].call->root; }
    [[nodiscard]] bool sends() const { return calls[0].call->collective == Collective::kSend; }
    [[nodiscard]] bool over() const {
      return next == calls.size() && (lent_until == 0 || connection->state->taken >= lent_until);
    }
  };
  [[nodiscard]] Rank blocked_on() const override;
  // Of all flows that cannot go on, one whose peer will never do its part, whatever the others wait
  // for.
  [[nodiscard]] Rank suspect() const override;
  [[nodiscard]] std::optional<Error> own_fault() override;

  [[nodiscard]] Status copy_to_self() const;
  bool move(Flow& flow);
  bool send(Flow& flow, const Transfer& transfer, std::uint64_t left);
  bool receive(Flow& flow, const Transfer& transfer, std::uint64_t left);
  [[nodiscard]] bool is_lost(Rank peer) const;

  Communicator& communicator_;
  PairConnections& pairs_;
  std::map<std::pair<Rank, Collective>, Flow> flows_;  // by peer and direction
  std::vector<Transfer> to_self_, from_self_;
  std::size_t calls_ = 0;
  const Flow* blocked_ = nullptr;  // the first that is not over
  const Flow* faulty_ = nullptr;   // where a message was not what its receive expects
  OperationSignature theirs_;      // that message's send, as far as it says
};

// Numbers the parts of a group's calls in the order of issue, where host and device memory run one
// after the other: a rank without a part in a call does not know which of them the others use.
// kInvalidUsage where another thread is in a call of one of the communicators; nothing is numbered
// then.
[[nodiscard]] Status number_parts(std::span<HeldCall> calls);

// What sends and receives of one group would take this rank, in nanoseconds
// (model/transfer_price.hpp). Those of no elements move nothing and take nothing. Pure.
[[nodiscard]] double price_transfers(std::span<const Call> calls, Rank rank, std::int32_t ranks,
                                     const Agreement& agreement);

}  // namespace tutti
