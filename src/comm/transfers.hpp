// SPDX-License-Identifier: Apache-2.0
// Sends and receives: those of a group, or one alone, progress together on connections of their
// own, beside the communicator's operations.
//
// A pair's sends meet its receives in the order in which each end issued them; nothing else orders
// them, since ranks issue different numbers of them. So they have no number, no plan and no row on
// the board, and take no part in `done` and its fences: their slots are a pair's own
// (transports/pair_slots.hpp). Every message carries count and type of its send and the call that
// it is a part of (base/part_of.hpp), which the receiver compares with its own. The thread that
// holds the communicator's call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "comm/agreement.hpp"
#include "comm/ongoing_call.hpp"
#include "comm/pair_connections.hpp"
#include "comm/transfer.hpp"

namespace tutti {

class Communicator;
struct HeldCall;

// kInvalidUsage unless what a rank sends to itself in a group meets what it receives from itself.
[[nodiscard]] Status check_to_self(std::span<const Transfer> sends,
                                   std::span<const Transfer> receives);

class Transfers final : public OngoingCall {
 public:
  explicit Transfers(Communicator& communicator);

  ~Transfers();

  // Before start(), in the order of issue.
  void add(const Call& call) { add(Transfer::of(call, pairs_.part_of(call))); }
  void add(const Transfer& transfer);
  // Opens connections and copies what a rank sends to itself. Errors: kInvalidUsage where that has
  // no receive of the same count and type among these, or the other way round; nothing was sent
  // then.
  [[nodiscard]] Status start() override;
  [[nodiscard]] Result<bool> advance() override;

 private:
  [[nodiscard]] Rank blocked_on() const override;
  // Of all flows that cannot go on, one whose peer will never do its part, whatever the others wait
  // for.
  [[nodiscard]] Rank suspect() const override;
  [[nodiscard]] std::optional<Error> own_fault() override;

  [[nodiscard]] Status copy_to_self();
  bool move(PairFlow& flow);
  void drop_over();
  bool send(PairFlow& flow, std::uint64_t bytes, const std::byte* from);
  bool receive(PairFlow& flow, std::uint64_t bytes, std::byte* to);
  bool send_by_ring(PairFlow& flow, std::uint64_t bytes, const std::byte* from);
  bool receive_by_ring(PairFlow& flow, std::uint64_t bytes, std::byte* to);
  [[nodiscard]] bool outgrow_the_cache() const;
  void copy_to_user(std::byte* to, const std::byte* from, std::uint64_t bytes) const;
  [[nodiscard]] bool is_expected(PairFlow& flow, std::uint64_t said);
  [[nodiscard]] bool is_lost(Rank peer) const;

  Communicator& communicator_;
  PairConnections& pairs_;
  const bool pumps_;
  std::vector<PairFlow*>& flows_;  // that are not over, in the order of issue
  bool to_self_ = false;
  // What all sends, and all receives, lie in.
  struct Extent {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    void add(const std::byte* from, std::uint64_t bytes) {
      begin = begin == nullptr ? from : std::min(begin, from);
      end = std::max(end, from + bytes);
    }
  };
  Extent sent_, received_;
  std::uint64_t received_bytes_ = 0;
  std::size_t calls_ = 0;
  const PairFlow* faulty_ = nullptr;  // where a message was not what its receive expects
  OperationSignature theirs_;         // that message's send, as far as it says
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
