// SPDX-License-Identifier: Apache-2.0
// A call at work, an operation or sends and receives: carried forward by turns, and ended. When
// nothing has moved for long it looks at peers, at what ended the job, and at the clock, and says
// who is to blame. The thread that holds the communicator's call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/signature.hpp"
#include "comm/diagnosis.hpp"
#include "comm/membership.hpp"
#include "transports/transport.hpp"

namespace tutti {

class OngoingCall {
 public:
  OngoingCall(Membership& members, Transport* transport)
      : members_(members), board_(members.board()), transport_(transport) {}
  OngoingCall(const OngoingCall&) = delete;
  OngoingCall& operator=(const OngoingCall&) = delete;

  // After an error, or where nothing is to do, done().
  [[nodiscard]] virtual Status start() = 0;
  // Fires what is ready; true if anything moved.
  [[nodiscard]] virtual Result<bool> advance() = 0;
  [[nodiscard]] bool done() const { return done_; }
  // Ends a call that failed, and tells those who wait for this rank.
  void give_up();
  // The same for one that an exception ended: poisons the job first.
  void give_up_by_exception();
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

 protected:
  ~OngoingCall() = default;

  // The peer at the first place that cannot go on, and the one to check and to report.
  [[nodiscard]] virtual Rank blocked_on() const = 0;
  [[nodiscard]] virtual Rank suspect() const { return blocked_on(); }
  [[nodiscard]] virtual WaitPlace place() const { return {}; }
  // What this call found wrong by itself, before anybody else told: nullopt, or its error.
  [[nodiscard]] virtual std::optional<Error> own_fault() = 0;
  // Takes back what peers may still read of a call that is given up.
  virtual void withdraw() {}

  [[nodiscard]] Diagnosis diagnosis() const { return {members_, signature_}; }
  // Why this call cannot go on, as every rank will tell it.
  [[nodiscard]] Error fault_error();
  [[nodiscard]] Error timed_out(Rank culprit);
  // What it means that this rank could not connect to all its peers, or lacks memory. A peer is to
  // blame only where it is gone.
  [[nodiscard]] Error unprepared(const Error& cause);
  // Something has moved: waits begin anew.
  void note_moved();
  // Moves what is pumped. An error poisons: the transport cannot go on. `silent`: this
  // call has no message to send, or none yet.
  [[nodiscard]] Status pump(bool silent);
  // Does nothing that was queued need this rank any more?
  [[nodiscard]] bool flushed() const {
    return transport_ == nullptr || transport_->unflushed() == kNoRank;
  }

  Membership& members_;
  Board& board_;
  Transport* const transport_;    // null: one rank
  OperationSignature signature_;  // of the call at hand
  bool done_ = false;

 private:
  [[nodiscard]] bool hopeless() const;
  // What a peer, looked at in a long wait, has done to this call. `left`, `differs`: it had, and
  // its calls did, before this rank looked for its messages the last time.
  [[nodiscard]] std::optional<Error> trouble_with(Rank peer, std::int64_t waited_ns, bool left,
                                                  const std::optional<Poison>& differs);
  // Checks whether the path to a peer works; of one of another host, now and then, what it does.
  [[nodiscard]] std::optional<Error> lost_way(Rank peer, std::int64_t waited_ns);
  [[nodiscard]] Status own_health();
  // Has its connection broken, or said goodbye?
  [[nodiscard]] bool is_cut_off(Rank peer) const;
  void tell_wait(Rank peer, std::int64_t waited_ns);
  void watch(Rank peer);

  static constexpr std::int64_t kFirstAskNs = 20'000'000;
  bool warned_ = false;
  std::array<Rank, 2> watched_{kNoRank, kNoRank};  // last
  bool looked_for_group_ = false;
  bool told_wait_ = false;                   // the board says that this call waits
  std::int64_t ask_after_ns_ = kFirstAskNs;  // of waiting for a far peer
  std::int64_t broken_since_ns_ = 0;         // a near peer's connections; 0: not seen so
  std::int64_t silent_since_ns_ = 0;         // a far peer that never connected; 0: it answers
};

// Moves what is pumped for a call that is no object of this kind. `over`: all its messages have
// been committed and received; `silent`: it sends none. An exception is told as an error.
[[nodiscard]] Status pump_straight(Transport& transport, bool over, bool silent);

}  // namespace tutti
