// SPDX-License-Identifier: Apache-2.0
// Accepts connections and lets in only those that prove the session's secret.
//
// A connection gets a place here only while its first packet is incomplete, at most kMaxHalfOpen,
// or its proof is awaited, at most kMaxChallenged; for kHandshakeNs. A newcomer is heard as soon as
// it is accepted, and most have spoken by then; when all places are taken, the oldest connection of
// its kind loses its own to the newcomer, at once. So strangers never make a rank wait for longer
// than it takes to accept and read those that came before it, kMostAccepts in each turn of the
// loop. A rank that loses its place comes again. An acceptable hello has a MAC under the session's
// secret, hence only members get to the second step, and a hello that somebody recorded has one
// place at a time however often it is sent. A peer that breaks the handshake is unauthenticated;
// the log warns of the 1st, 2nd, 4th, 8th ... of them. Runs on the thread of its loop. Knows
// nothing of what is spoken after the handshake.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "base/log.hpp"
#include "control/event_loop.hpp"
#include "control/handshake.hpp"
#include "control/socket.hpp"

namespace tutti::control {

class Lobby {
 public:
  static constexpr std::size_t kMaxHalfOpen = 64;
  // Ranks that start together on few cores say hello at one time, and prove it much later.
  static constexpr std::size_t kMaxChallenged = 1024;
  static constexpr std::int64_t kHandshakeNs = 10'000'000'000;
  static constexpr int kMostAccepts = 64;  // in one turn of the loop
  static constexpr std::int64_t kOutOfFdsPauseNs = 50'000'000;
  static constexpr std::int64_t kStarvedNs = 1'000'000'000;

  struct Options {
    Acceptor::FindKey find_key;
    Rank self = kRootRank;
    std::int32_t ranks = 0;  // 0: any
    Log log = Log();
  };
  // Takes a proved connection, protected where its medium needs that. Packets that the peer sent
  // after the proof wait in the socket.
  using Admit = std::function<void(Channel channel, const SessionId& session, const Claim& claim)>;

  Lobby(EventLoop& loop, Listener listener, Options options, Admit admit);
  ~Lobby();
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  // Starts accepting. Error: kSystemError.
  [[nodiscard]] Status open();
  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  // Drops who is late, accepts again after a pause. Call after every turn of the loop.
  void tick(std::int64_t at_ns);
  // For kStarvedNs the process has had no descriptor for those who knock: nobody should wait for
  // it. Then the errno, else 0.
  [[nodiscard]] int starved(std::int64_t at_ns) const;
  // When tick() has something to do at the latest; INT64_MAX: never.
  [[nodiscard]] std::int64_t next_tick_ns() const;
  // Sends `packet`, as the first after the handshake, to all whose handshake may be complete in
  // their eyes. Before the end, and nothing after it. Where memory is short, nothing is sent.
  void send_last(std::span<const std::byte> packet) noexcept;
  // Dropped unproved, for whatever reason.
  [[nodiscard]] std::uint64_t strangers() const { return strangers_; }
  // The protocol version of the last of them that spoke another one; 0: none did.
  [[nodiscard]] std::uint16_t other_version() const { return other_version_; }

 private:
  struct HalfOpen {
    Channel channel;
    Acceptor acceptor;
    EventLoop::Token token = 0;
    std::int64_t since_ns = 0;
    bool challenged = false;
  };
  using Arrival = std::uint64_t;  // ascending, so the oldest comes first

  void accept_some();
  [[nodiscard]] bool somebody_waits() const;
  void starve(int error_number);
  void greet(Channel channel);
  void advance(Arrival arrival);
  // kInfo: it may be a rank that was late; kWarn: no honest one does that.
  void drop(Arrival arrival, LogLevel level, std::string_view why);
  void forget(std::map<Arrival, HalfOpen>::const_iterator guest);
  void count_stranger(LogLevel level, std::string_view why);
  void drop_unwelcome(Arrival arrival);
  void answer_hello(Arrival arrival, std::span<const std::byte> hello);
  void take_proof(Arrival arrival, std::span<const std::byte> proof);
  [[nodiscard]] bool is_repeated(Arrival arrival) const;
  [[nodiscard]] std::map<Arrival, HalfOpen>::const_iterator oldest(bool challenged) const;
  void shed(std::map<Arrival, HalfOpen>::const_iterator guest);

  EventLoop& loop_;
  Listener listener_;
  Options options_;
  Admit admit_;
  EventLoop::Token listener_token_ = 0;
  std::int64_t resume_ns_ = INT64_MAX;         // INT64_MAX: not paused
  std::int64_t starved_since_ns_ = INT64_MAX;  // INT64_MAX: not
  int starved_errno_ = 0;
  Arrival next_arrival_ = 0;
  std::map<Arrival, HalfOpen> half_open_;
  std::size_t challenged_ = 0;  // of them
  std::uint64_t strangers_ = 0;
  std::uint16_t other_version_ = 0;
  std::uint64_t warnings_ = 0;  // of them, those that a line may have said
};

// What that is to people.
[[nodiscard]] Error starved_error(int error_number);

}  // namespace tutti::control
