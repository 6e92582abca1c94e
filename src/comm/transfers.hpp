// SPDX-License-Identifier: Apache-2.0
// Sends and receives: those of a group, or one alone, progress together on connections of their
// own, beside the communicator's operations.
//
// A pair's sends meet its receives in the order in which each end issued them; nothing else orders
// them, since ranks issue different numbers of them. So they have no number, no plan and no row on
// the board, and take no part in `done` and its gates: their slots are a pair's own
// (transports/pair_slots.hpp). Every message carries count and type of its send, which the receiver
// compares with its own. The thread that holds the communicator's call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/call.hpp"
#include "comm/long_wait.hpp"
#include "exec/host_executor.hpp"
#include "transports/connection.hpp"
#include "transports/pair_slots.hpp"

namespace tutti {

class Communicator;

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
  [[nodiscard]] TrafficCounters& traffic() { return traffic_; }
  [[nodiscard]] const TrafficCounters& traffic() const { return traffic_; }

 private:
  const Membership& members_;
  Transport* const transport_;
  const PairSlots slots_;
  std::map<Rank, Connection> sends_, recvs_;  // addresses are stable
  TrafficCounters traffic_;
};

class Transfers final : public LongWait {
 public:
  explicit Transfers(Communicator& communicator);

  // Before start(). The call outlives the object.
  void add(const Call& call);
  // Opens connections and copies what a rank sends to itself. Errors: kInvalidUsage where that has
  // no receive of the same count and type among these, or the other way round; nothing was sent
  // then.
  [[nodiscard]] Status start();
  [[nodiscard]] bool done() const override { return done_; }
  [[nodiscard]] Result<bool> advance() override;
  void give_up();
  void give_up_by_exception();

 private:
  // The calls to one peer or from it, in issue order.
  struct Flow {
    Rank peer = kNoRank;
    bool sends = false;
    std::vector<const Call*> calls;
    Connection* connection = nullptr;
    std::size_t next = 0;          // the call at hand
    std::uint64_t moved = 0;       // bytes of it
    std::uint64_t lent_until = 0;  // messages whose payload lies in the user's memory: all below
  };
  [[nodiscard]] Rank blocked_on() const override;
  [[nodiscard]] Rank suspect() const override;
  [[nodiscard]] std::optional<Error> own_fault() override;

  [[nodiscard]] Flow& flow_of(Rank peer, bool sends);
  [[nodiscard]] Status copy_to_self() const;
  bool move(Flow& flow);
  bool send(Flow& flow, const Call& call, std::uint64_t left);
  bool receive(Flow& flow, const Call& call, std::uint64_t left);
  [[nodiscard]] static bool is_over(const Flow& flow);
  void block_on(const Flow& flow);
  [[nodiscard]] bool is_lost(Rank peer) const;

  Communicator& communicator_;
  PairConnections& pairs_;
  std::vector<Flow> flows_;
  std::vector<const Call*> to_self_, from_self_;
  std::size_t calls_ = 0;
  const Flow* blocked_ = nullptr;
  const Flow* faulty_ = nullptr;  // where a message was not what its receive expects
  OperationSignature theirs_;     // that message's send, as far as it says
  bool done_ = false;
};

}  // namespace tutti
