// SPDX-License-Identifier: Apache-2.0
// What one rank knows of one peer over RDMA: the mirror that it sends from, and what has come. The
// user's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "transports/inbox.hpp"
#include "transports/verbs/link.hpp"
#include "transports/verbs/port.hpp"
#include "transports/verbs/registrations.hpp"
#include "transports/verbs/wire.hpp"

namespace tutti::verbs {

// This rank's memory, and what else concerns every peer.
struct Home {
  Rank rank = kNoRank;
  InboxLayout layout;
  std::optional<PrivateInbox> inbox;
  Landing* landings = nullptr;     // by rank; registered, for the peers to write in
  std::uint32_t landings_key = 0;  // for this rank's own requests
  std::uint64_t done = 0;
  Registrations* registrations = nullptr;
};

class Peer {
 public:
  Peer(Rank rank, Home& home) : rank_(rank), home_(home) {
    for (std::size_t i = 0; i < kMaxConnectionsPerPair; ++i) send_.of[i].posts = posts_[i].data();
  }

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] bool mirrored() const { return mirror_.has_value(); }
  [[nodiscard]] Status make_mirror(const Port& port);
  // Joined. It stays its maker's.
  void take_link(Link& link) { link_ = &link; }
  [[nodiscard]] bool has_link() const { return link_ != nullptr; }
  // Once the peer's end is joined too: what is sent before that is lost, and sent again late.
  void say_hello();
  [[nodiscard]] bool connected() const { return link_ != nullptr && !link_->down(); }
  // The link, if it is down; else null.
  [[nodiscard]] const Link* broken() const {
    return link_ != nullptr && link_->down() ? link_ : nullptr;
  }
  [[nodiscard]] Link* link() { return link_; }

  // The specs must have been checked; open_send needs the staging buffer.
  [[nodiscard]] Connection open_send(const ConnectionSpec& spec);
  [[nodiscard]] Connection open_recv(const ConnectionSpec& spec);

  // Posts what this rank has committed, and with it what it has consumed and done. Where nothing
  // was committed these words wait for the next time: mostly they go with the first message of the
  // next call.
  void pump();
  // A call has ended.
  void end_call() { credits_due_ = link_ != nullptr && ready_ && words_due(); }
  // What was lent and not yet posted is copied. The adapter may still read what was posted, pinned
  // as it is.
  void take_back();
  // Takes what has come; false: no message.
  bool poll();
  // What comes from now on ends Port::sleep().
  void arm() {
    if (connected()) link_->arm();
  }
  // Is there no room for the next message of some connection? Credits come in silence.
  [[nodiscard]] bool awaits_credit() const;
  // The last that is sent.
  void say_goodbye();
  // Has the adapter all that this rank has committed, its last `done`, and the credits that were
  // due when the last call ended?
  [[nodiscard]] bool flushed() const;
  // And the peer's adapter? Who has left needs nothing more, and its adapter may answer no more.
  [[nodiscard]] bool acknowledged() {
    return link_ == nullptr || has_left() || (flushed() && link_->acknowledged());
  }

  // What the peer has told.
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] bool has_left() const { return arrivals_.has_left(); }

 private:
  void pump_messages(std::uint8_t index);
  void add_message(std::uint8_t index, Post& post, std::uint64_t number);
  void note_taken();
  [[nodiscard]] bool done_due() const;
  [[nodiscard]] bool words_due() const;
  bool pump_returns();  // false: no room
  void take_returns();
  [[nodiscard]] Landing& landing() const { return home_.landings[rank_]; }

  const Rank rank_;
  Home& home_;
  Link* link_ = nullptr;
  bool ready_ = false;

  std::optional<PrivateInbox> mirror_;                              // of the peer's inbox
  Memory cells_memory_ = no_memory(), arena_memory_ = no_memory();  // of the mirror
  ConnectionStates send_, recv_;
  std::array<std::array<Post, kMaxSlots>, kMaxConnectionsPerPair> posts_{};
  std::uint32_t sends_opened_ = 0, recvs_opened_ = 0;  // a bit an index
  // By index: messages posted; credits returned; the fewest slots that a plan has, to send in and
  // to receive in.
  std::array<std::uint64_t, kMaxConnectionsPerPair> pumped_{}, credited_{};
  std::array<std::uint32_t, kMaxConnectionsPerPair> fewest_out_{}, fewest_in_{};
  // Lent messages that the adapter may still read, in the order of their requests.
  struct Lent {
    std::uint64_t request = 0;
    std::uint8_t index = 0;
    std::uint64_t messages = 0;  // up to this one
  };
  std::vector<Lent> lent_;
  std::uint64_t done_said_ = 0;
  std::uint64_t done_ = 0;
  bool words_wait_ = false;   // since the pump before
  bool credits_due_ = false;  // of a call that has ended
  Arrivals arrivals_;
};

}  // namespace tutti::verbs
