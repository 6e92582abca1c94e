// SPDX-License-Identifier: Apache-2.0
// Outgoing connections: opened and proved by the thread that needs them, then kept.
//
// All waits are poll(2) until a deadline and end at once when stop() is called. Nothing here is
// touched by the service thread, so a call needs only the *peer's* service.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "control/messages.hpp"
#include "control/stop.hpp"

namespace tutti::control {

// Sends, waiting for room; all of it has been handed to the kernel then. Errors: those of wait_for,
// kRemoteError if the peer hung up.
[[nodiscard]] Status send_within(Channel& channel, std::span<const std::byte> packet,
                                 const Stop& stop, Deadline deadline);
// The next packet, in `buffer`. Errors: those of wait_for, kRemoteError if the peer hung up.
[[nodiscard]] Result<Received> receive_within(Channel& channel, std::span<std::byte> buffer,
                                              bool want_fd, const Stop& stop, Deadline deadline);

// Describes how to reach an acceptor.
struct Way {
  Way(std::string address) : addresses{std::move(address)} {}
  Way(std::vector<std::string> all, bool comes_later)
      : addresses(std::move(all)), awaited(comes_later) {}
  std::vector<std::string> addresses;  // one at least; tried by turns
  bool awaited = false;                // nobody may listen there yet
};

// Connects and does the handshake as `claim`. Tries again while the other end hangs up before it
// has the proof (it sheds load), or is not there and awaited; never when it refused. Errors:
// kRemoteError (gone, or not of this job), kInvalidUsage (refused, or stopped), kTimeout.
[[nodiscard]] Result<Channel> open_connection(const Way& way, const SessionKey& key,
                                              const Claim& claim, const Stop& stop,
                                              Deadline deadline);

// A mutex that can be waited for until a deadline. (ThreadSanitizer does not know
// std::timed_mutex's clock.)
class Turn {
 public:
  // False: `deadline` passed.
  [[nodiscard]] bool take(Deadline deadline);
  void give_back();

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;  // guarded by mutex_
};

class Links {
 public:
  // At most so many are open; the one that was used longest ago goes first. A rank needs one for
  // each step of an exchange, again for the next exchange. Where a process has many ranks each
  // keeps fewer, so that 64 that are threads stay below 1024 descriptors.
  static constexpr std::size_t kMaxOpen = 16;
  static constexpr std::size_t kAlwaysOpen = 4;
  static constexpr std::size_t kMaxOpenOfProcess = 128;
  // At a packet whose connection ends: the peer's service sheds those whose proof is late.
  static constexpr int kMostAttempts = 8;

  Links(const SessionKey& key, Rank self, std::int32_t ranks, int stop_fd);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links();

  void set_address(Rank peer, std::string address);  // empty: there is no way to it
  [[nodiscard]] bool has_address(Rank peer);
  // Ends calls and posts once `over` says so; asked by the thread that waits.
  void end_when(std::function<bool()> over);
  // Asks and waits for the answer. Errors: as ControlChannel::call.
  [[nodiscard]] Result<Reply> call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                   Deadline deadline);
  // Sends a message of an exchange in pieces; does not wait for the peer to read it, only for room.
  [[nodiscard]] Status post(Rank peer, std::uint64_t exchange, std::uint32_t round,
                            std::span<const std::byte> message, Deadline deadline);
  [[nodiscard]] Status post_failure(Rank peer, std::uint64_t exchange, std::uint32_t round,
                                    const Error& error, Deadline deadline);
  void close();  // with a Bye to every peer

 private:
  struct Link {
    Channel channel;
    std::uint64_t used = 0;  // by use_count_
  };

  [[nodiscard]] Result<Reply> call_in_turn(Rank peer, RequestKind kind,
                                           std::span<const std::byte> payload, Deadline deadline);
  [[nodiscard]] Status post_in_turn(Rank peer, const FrameHeader& header,
                                    std::span<const std::byte> message, Deadline deadline);
  [[nodiscard]] Result<Channel*> open(Rank peer, Deadline deadline);
  [[nodiscard]] Status send(Rank peer, std::span<const std::byte> packet, Deadline deadline);
  [[nodiscard]] Result<Reply> receive_reply(Rank peer, std::uint64_t number, Deadline deadline);
  [[nodiscard]] Error blame(Rank peer, Error error) const;
  [[nodiscard]] Stop stop() const { return {stop_fd_, over_ ? &over_ : nullptr}; }
  void drop(Rank peer, bool orderly);

  const SessionKey key_;
  const Rank self_;
  const std::int32_t ranks_;
  const int stop_fd_;
  Turn turn_;  // one user thread at a time; guards all below, and the private functions
  std::function<bool()> over_;
  std::vector<std::string> addresses_;
  std::map<Rank, Link> links_;
  const std::vector<std::byte> bye_ = start_frame({.type = FrameType::kBye}).take();
  PacketBuffer buffer_;
  std::uint64_t use_count_ = 0;
  std::uint64_t call_count_ = 0;
};

}  // namespace tutti::control
