// SPDX-License-Identifier: Apache-2.0
// Where the service thread leaves the messages of exchanges for the user's thread.
//
// A message is named by (source, exchange, round) and arrives in ordered pieces. Bounded: only the
// current exchange and the next one are kept (no rank can be further ahead: it would need one
// with our part in it), and at most kMaxExchangeBytes of one message. Ends every wait when a member
// dies, when the meeting is called off, or on close. Any thread; everything is guarded by mutex_.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "control/messages.hpp"

namespace tutti::control {

inline constexpr std::size_t kMaxExchangeBytes = std::size_t{64} << 20;

// Says how far a rank has come, for the search of the rank that all others wait for.
struct ExchangeState {
  std::uint64_t exchange = 0;  // the last one it entered, from 1
  Rank waits_for = kNoRank;    // in it, also after it gave up; kNoRank: it got all
};

class Mailbox {
 public:
  static constexpr std::int64_t kDeathGraceNs = 1'000'000'000;

  // Service thread. False: the peer broke the protocol.
  [[nodiscard]] bool deposit(Rank source, std::uint64_t exchange, std::uint32_t round,
                             const Piece& piece);
  void deposit_failure(Rank source, std::uint64_t exchange, std::uint32_t round, Error error);
  void source_came(Rank source);
  // The source's connection ended without a Bye.
  void source_gone(Rank source);
  // Ends all exchanges from now on; messages that are there are still given out. First one wins.
  void fail(Error error);
  // A member died. Its messages that are there stay good: an exchange may be complete without more
  // of it. Waits for its messages end at once, waits for others' after kDeathGraceNs: whoever
  // depends on the dead one fails first and says so.
  void member_died(Rank rank, Error error);
  // Returns the error that fail() or member_died() got first, and waits for it until `deadline`.
  [[nodiscard]] std::optional<Error> await_failure(Deadline deadline);
  // The same, or what a member said why it gave up, in the exchange at hand or a later one.
  [[nodiscard]] std::optional<Error> await_reason(Deadline deadline);

  // User thread: enters the next exchange and returns its number.
  [[nodiscard]] std::uint64_t enter();
  void leave();  // it is complete
  // This rank sends to another, and may have to wait for it.
  void note_waits_for(Rank rank);
  // The message, once all its `message_bytes` are there. Errors: kTimeout, kRemoteError,
  // kInvalidUsage if the source sends another size; with culprit.
  [[nodiscard]] Result<std::vector<std::byte>> take(Rank source, std::uint32_t round,
                                                    std::size_t message_bytes, Deadline deadline);
  [[nodiscard]] ExchangeState state() const;

 private:
  struct Message {
    std::vector<std::byte> bytes;
    std::uint64_t total_bytes = 0;
    bool begun = false;
    std::optional<Error> failure;
    [[nodiscard]] bool complete() const { return begun && bytes.size() == total_bytes; }
  };
  using Key = std::tuple<std::uint64_t, Rank, std::uint32_t>;  // exchange first: old ones go first

  [[nodiscard]] bool in_window(std::uint64_t exchange, std::uint32_t round) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ExchangeState state_;
  std::map<Key, Message> messages_;
  std::set<Rank> gone_;
  std::optional<Error> failure_;
  std::map<Rank, Error> dead_;
  std::optional<Error> first_death_;
  std::int64_t first_death_ns_ = 0;
};

}  // namespace tutti::control
