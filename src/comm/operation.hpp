// SPDX-License-Identifier: Apache-2.0
// One operation of one communicator, carried forward by turns: its number, signature, plan and
// fence, its steps, and the checks of a long wait. The thread that holds the communicator's call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/call.hpp"
#include "comm/communicator.hpp"
#include "comm/diagnosis.hpp"

namespace tutti {

class Operation {
 public:
  // `call` outlives the object.
  Operation(Communicator& communicator, const Call& call);

  // Numbers, announces and plans the operation. After an error, or where nothing is to do, done().
  [[nodiscard]] Status start();
  [[nodiscard]] bool done() const { return done_; }
  // Fires what is ready; true if anything moved.
  [[nodiscard]] Result<bool> advance();
  // Nothing has moved for waited_ns: looks at peers, poison and clocks.
  [[nodiscard]] Status look_around(std::int64_t waited_ns);
  // For a call that runs alone: kInvalidUsage if the rank that this one waits for belongs to this
  // process too, and no thread but the calling one could make its call.
  [[nodiscard]] Status look_for_group(std::int64_t waited_ns);
  // Sleeps until something may have moved, at most `ns`; false: nothing would wake it.
  [[nodiscard]] bool block(std::int64_t ns);
  // Does the rank that is waited for run on the core of this thread?
  [[nodiscard]] bool peer_shares_core() const;
  // The cheap check of every waiting round.
  [[nodiscard]] bool disturbed() const { return members_.disturbed(); }
  // Ends an operation that failed, and tells those who wait for this rank.
  void give_up();
  // The same for one that an exception ended: poisons the job first.
  void give_up_by_exception();

 private:
  [[nodiscard]] Diagnosis diagnosis() const { return {members_, signature_}; }
  [[nodiscard]] bool gate_open();
  [[nodiscard]] Rank blocked_on() const;
  // Chooses, among all ranks that this rank waits for in several lanes, the one to check and to
  // report: one of this host that has not come, else one of another host, where messages can get
  // lost.
  [[nodiscard]] Rank suspect() const;
  [[nodiscard]] bool hopeless() const;
  // What a peer, looked at in a long wait, has done to this operation.
  [[nodiscard]] std::optional<Error> trouble_with(Rank peer, std::int64_t waited_ns);
  // Checks whether the path to a peer works; of one of another host, now and then, what it does.
  [[nodiscard]] std::optional<Error> lost_way(Rank peer, std::int64_t waited_ns);
  [[nodiscard]] bool has_died(Rank peer) const;
  [[nodiscard]] Error fault_error();
  [[nodiscard]] Error executor_fault(Rank peer);
  [[nodiscard]] Error unprepared(const Error& cause);
  [[nodiscard]] Error timed_out(Rank culprit);
  void tell_wait(Rank peer, std::int64_t waited_ns);
  void finish();
  void scale_input();
  [[nodiscard]] bool may_lend(const void* memory, std::uint64_t bytes) const;

  Communicator& communicator_;
  Membership& members_;
  Board& board_;
  PlanCache& plans_;
  Transport* const transport_;  // null: one rank
  OperationCounts& counts_;
  Call call_;
  std::shared_ptr<const std::byte> scaled_input_;  // of a pre-multiplied sum
  OperationSignature signature_;
  BoundPlan* plan_ = nullptr;
  std::uint64_t gate_ = 0;
  Rank gate_peer_ = kNoRank;
  bool gated_ = false;
  bool done_ = false;
  bool warned_ = false;
  bool looked_for_group_ = false;
  bool told_wait_ = false;                   // the board says that this operation waits
  std::int64_t ask_after_ns_ = kFirstAskNs;  // of waiting for a far peer
  std::int64_t broken_since_ns_ = 0;         // a near peer's connections; 0: not seen so
  static constexpr std::int64_t kFirstAskNs = 20'000'000;
};

}  // namespace tutti
