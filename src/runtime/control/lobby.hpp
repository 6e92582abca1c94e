// Accepts connections and lets in only those that prove the session's secret.
//
// Never waits on one peer: a connection has kHandshakeNs to finish, at most kMaxHalfOpen are
// half-open at once. When that many are, the oldest that has not said hello is dropped, but not
// before it had kPatienceNs: until then newcomers wait in the kernel's queue. Who has said an
// acceptable hello is most likely a rank that waits for a core (hundreds of ranks may share one),
// and keeps its place. A rank that is dropped comes again.
// Who breaks the handshake is a stranger; the log warns of the 1st, 2nd, 4th, 8th ... of them.
// Runs on the thread of its loop. Knows nothing of what is spoken after the handshake.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "base/log.hpp"
#include "runtime/control/event_loop.hpp"
#include "runtime/control/handshake.hpp"
#include "runtime/control/socket.hpp"

namespace tutti::control {

class Lobby {
 public:
  static constexpr std::size_t kMaxHalfOpen = 64;
  static constexpr std::int64_t kHandshakeNs = 10'000'000'000;
  static constexpr std::int64_t kPatienceNs = 250'000'000;
  static constexpr std::int64_t kOutOfFdsPauseNs = 50'000'000;
  static constexpr std::int64_t kStarvedNs = 1'000'000'000;

  struct Options {
    SessionKey key;
    Rank self = kRootRank;
    std::int32_t ranks = 0;  // 0: any
    Log log = Log();
  };
  // Takes a proved connection, protected where its medium needs that. What its peer sent after the
  // proof waits in the socket.
  using Admit = std::function<void(Channel channel, const Claim& claim)>;

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
  // it. Then why, else nothing.
  [[nodiscard]] std::optional<Error> starved(std::int64_t at_ns) const;
  // When tick() has something to do at the latest; INT64_MAX: never.
  [[nodiscard]] std::int64_t next_tick_ns() const;
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

  void accept_all();
  void pause(std::int64_t until_ns);
  void starve(int error_number);
  void greet(Channel channel);
  void advance(Arrival arrival);
  // kInfo: it may be a rank that was late; kWarn: no honest one does that.
  void drop(Arrival arrival, LogLevel level, std::string_view why);
  void count_stranger(LogLevel level, std::string_view why);
  void drop_unwelcome(Arrival arrival);
  [[nodiscard]] std::map<Arrival, HalfOpen>::const_iterator oldest_silent() const;

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
  std::uint64_t strangers_ = 0;
  std::uint16_t other_version_ = 0;
  std::uint64_t warnings_ = 0;  // of them, those that a line may have said
};

}  // namespace tutti::control
