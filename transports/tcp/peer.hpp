// SPDX-License-Identifier: Apache-2.0
// What one rank knows of one peer over TCP, on which connection its frames go, and what the peer's
// frames may touch: the words and cells of its own pair, the arena, and memory that the receiver
// has offered for a payload of that size. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "transports/inbox.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/stream.hpp"

namespace tutti::tcp {

// This rank's inbox, and what else concerns every peer.
struct Home {
  Rank rank = kNoRank;
  InboxLayout layout;
  std::optional<PrivateInbox> inbox;  // there while any peer has a stream
  std::uint64_t done = 0;
  std::uint64_t done_due = 0;  // a peer may wait for a `done` of so much
};

class Peer final : public Sink {
 public:
  Peer(Rank rank, Home& home);

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] bool mirrored() const { return mirror_.has_value(); }
  [[nodiscard]] Status make_mirror();
  // Made by this rank, or by the peer; both, where both send.
  enum Side : std::uint8_t { kMade, kAccepted };
  [[nodiscard]] std::optional<Stream>& stream(Side side) { return streams_[side]; }
  void expect_reply(const Token& reply) { reply_ = reply; }
  // Does a frame of a stream wait for a turn of the call?
  [[nodiscard]] bool waits() const;
  // Goes on with the frames that wait.
  void receive_waiting();
  // Asks the stream that brought something last, and now and then the other.
  void receive();
  // Has it a stream that is not down, and is none broken?
  [[nodiscard]] bool connected() const {
    const auto up = [](const std::optional<Stream>& stream) { return stream && !stream->down(); };
    return (up(streams_[kMade]) || up(streams_[kAccepted])) && broken() == nullptr;
  }
  // A stream that is down, if any.
  [[nodiscard]] const Stream* broken() const;

  // The specs must have been checked; open_send needs the staging buffer.
  [[nodiscard]] Connection open_send(const ConnectionSpec& spec);
  [[nodiscard]] Connection open_recv(const ConnectionSpec& spec);

  // Sends what this rank has committed, and with it what it has consumed and done. Where nothing
  // was committed these words wait for some turns, since a packet costs as much as a small message:
  // the last ones of a call go with the first message of the next one.
  void pump();
  // What was lent or offered is needed no more.
  void take_back();
  // A call has ended.
  void end_call();
  // The words that the peer may soon lack, or wait for, leave with the next pump(); or all.
  void hasten() { hastened_ = is_due() || owes_credits(false); }
  void hasten_all() { hastened_ = has_words(); }
  // All words that there are now must have left before this rank is flushed().
  void tell_all() { words_due_ = has_words(); }
  // The last that is sent.
  void say_goodbye();
  // Has the kernel everything that was pumped? And what of it has the peer's kernel not?
  [[nodiscard]] bool flushed() const;
  [[nodiscard]] std::uint64_t unacknowledged_bytes() const;

  void give_up_if_silent();

  // What the peer has told.
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] bool has_left() const { return has_left_; }

  [[nodiscard]] std::string opening(std::span<const std::byte> bytes) override;
  [[nodiscard]] std::optional<std::byte*> landing(const Frame& frame, const std::byte* slot_header,
                                                  bool may_wait) override;
  [[nodiscard]] bool landed(const Frame& frame) override;
  [[nodiscard]] bool take(const Frame& frame, const std::byte* bytes) override;

 private:
  // A message's frame of at most a packet. Of both directions such frames go on one connection, if
  // it is there, so that each acknowledges what has come the other way; a larger one is
  // acknowledged at once, and goes on the connection that its sender made, whose socket nobody else
  // writes to.
  static constexpr std::size_t kMostSharedBytes = 1428 - 3 * sizeof(Frame);  // with words behind it
  // Null: there is none.
  [[nodiscard]] Stream* own();
  // The one that the lower rank made, or the only one.
  [[nodiscard]] Stream* shared();
  [[nodiscard]] Stream& way_of(const Frame& frame);
  void pump_messages(std::uint8_t index);
  void note_taken();
  void withdraw_offers();
  void pump_credit(Stream& way, std::uint8_t index);
  [[nodiscard]] bool has_words() const;
  [[nodiscard]] bool is_due() const { return words_due_ || done_said_ < home_.done_due; }
  [[nodiscard]] bool words_wait_no_longer();
  // Half of a connection's credits or more, so that the peer may lack some soon. Those of a call
  // that has ended may wait for this one's messages, unless they are all.
  [[nodiscard]] bool owes_credits(bool ended_may_wait) const;
  void pump_words(Stream& way);
  void take_credit(const Frame& frame);
  void land_cells(const Frame& frame, const std::byte* bytes);

  const Rank rank_;
  Home& home_;
  std::optional<Stream> streams_[2];
  Side last_heard_ = kMade;
  std::uint32_t turns_ = 0;  // of receive()
  Token reply_{};

  std::optional<PrivateInbox> mirror_;  // of the peer's inbox
  ConnectionStates send_, recv_;
  std::array<std::array<Post, kMaxSlots>, kMaxConnectionsPerPair> posts_{};
  std::array<Offer, kMaxConnectionsPerPair> offers_{};
  std::uint32_t sends_opened_ = 0, recvs_opened_ = 0;  // a bit an index
  // By index: messages and credits sent, and messages of slots that have landed.
  std::array<std::uint64_t, kMaxConnectionsPerPair> pumped_{}, credited_{}, produced_{};
  std::array<std::uint64_t, kMaxConnectionsPerPair> ended_{};  // received when a call had ended
  std::array<Stream*, kMaxConnectionsPerPair> slots_way_{};    // of the last message in a slot
  std::uint64_t done_ = 0, done_said_ = 0;
  std::uint32_t words_waited_ = 0;  // turns
  bool hastened_ = false;
  bool words_due_ = false;  // no call ends before they have left
  std::uint64_t byes_ = 0;
  bool has_left_ = false;
};

}  // namespace tutti::tcp
